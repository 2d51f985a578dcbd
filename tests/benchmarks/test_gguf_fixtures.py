"""Files that benchmarks compare hold the model they are made of."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from gguf.quants import dequantize, quantize

from benchmarks.lib import gguf_fixtures
from benchmarks.quality import llamacpp_agreement, weight_formats
from core.backend.cpu.backend import CpuBackend
from core.model.gguf.reader import read_header
from core.model.gguf.weights import GgufWeights
from core.model.lora import save_factors
from core.model.shapes import Sizes
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import logits, wide


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", wide(tied=True), "Q8_0")


def test_sixteen_bits_are_the_files_own_numbers(tmp_path: Path, file: Path):
    """Rows of q and k where they stood: another order would show."""
    made = gguf_fixtures.sixteen_bits(file, tmp_path / "made" / "model-F16.gguf")
    kinds = {tensor.kind for tensor in read_header(made).tensors.values()}
    assert kinds == {"F16", "F32"} and read_header(made).metadata == read_header(file).metadata
    torch.testing.assert_close(logits(made, CpuBackend()), logits(file, CpuBackend()), rtol=0, atol=0.02)
    before = made.stat().st_mtime_ns
    assert gguf_fixtures.sixteen_bits(file, made).stat().st_mtime_ns == before


def test_what_was_taught_is_in_them(tmp_path: Path, file: Path):
    dice, name = torch.Generator().manual_seed(1), "model.layers.1.self_attn.q_proj"
    down, up = torch.randn(2, 256, generator=dice), torch.randn(256, 2, generator=dice)
    save_factors(tmp_path / "adapter.safetensors", {name: (down, up)})
    made = gguf_fixtures.sixteen_bits(file, tmp_path / "taught-F16.gguf", tmp_path / "adapter.safetensors")
    plain, taught = (GgufWeights(read_header(one)).tensor(f"{name}.weight").float() for one in (file, made))
    torch.testing.assert_close(taught - plain, up @ down, rtol=0, atol=0.1)


def test_the_larger_shape_computes_the_same(tmp_path: Path, file: Path):
    """By the whole way: written with its tokenizer and settings, read, and computed."""
    shape = Sizes("large", 3, 512, 8, 4, 128, 768)
    made = gguf_fixtures.expanded(file, shape, tmp_path / "large-F16.gguf", positions=512)
    own, larger = read_header(file).metadata, read_header(made).metadata
    kept = [key for key in own if key.startswith("tokenizer.")]
    assert kept and {key: own[key] for key in kept} == {key: larger[key] for key in kept}
    want = logits(file, CpuBackend())
    assert float((logits(made, CpuBackend()) - want).abs().max()) < 0.02 * float(want.abs().max())


def test_decoded_weights_are_those_that_the_codes_stand_for(tmp_path: Path, file: Path):
    """Rows of q and k in the file's own order: the other program turns them itself."""
    made = gguf_fixtures.decoded_gguf(file)
    kinds = {tensor.kind for tensor in read_header(made).tensors.values()}
    assert kinds == {"F32"} and read_header(made).metadata == read_header(file).metadata
    for name in ("model.layers.1.self_attn.q_proj.weight", "model.norm.weight"):
        own, other = (GgufWeights(read_header(one)).tensor(name).float() for one in (file, made))
        assert torch.equal(own, other)


def test_a_format_that_was_not_measured_has_no_row():
    """And what is missing of one is a dash beside laws that are there."""
    law = {"mb": 1.0, "kl_mean": 0.1, "kl_p99": 0.2, "agreement": 0.9, "perplexity": 30.0}
    done = {
        "distributions, 8-bit KV": {"F16": law, "Q4_K_M": law},
        "acceptance, Q4_K_M, 8-bit KV": {"T 0.6": 0.8, "T 0": 0.7},
        "reading, F16, 8-bit KV": {"questions": 80, "f1_gold": 0.4, "refused_own": 0.1},
        "llama.cpp, Q4_K_M, whole blocks": {
            "most": "Q4_K",
            "pairs": [["llama.cpp", one, law] for one in ("ours, fp32", llamacpp_agreement.DECODED)],
        },
    }
    costs, beside = weight_formats.format_tables(done, ["F16", "Q4_K_M", "Q8_0"])
    assert costs.rows == (
        ("F16", "8 bits", 1.0, 0.1, 0.2, 0.9, 30.0, None, None, 0.4, 0.1),
        ("Q4_K_M", "8 bits", 1.0, 0.1, 0.2, 0.9, 30.0, 0.8, 0.7, None, None),
    )
    assert costs.notes[-1].endswith("the same questions for all: 80.")
    assert [row[:5] for row in beside.rows] == [
        ("Q4_K_M", "Q4_K", "whole blocks", "llama.cpp", of)
        for of in ("ours, fp32", llamacpp_agreement.DECODED)
    ]


def test_every_format_is_measured_over_both_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A case that is never asked for would be a dash for ever; one without data or program is not asked."""
    monkeypatch.setattr(weight_formats, "_has_llama_cpp", lambda: True)
    options = weight_formats._arguments([f"--reading={tmp_path}", f"--made={tmp_path}"])
    names = [name for name, _case in weight_formats._cases(["F16", "Q8_0"], options)]
    for what in ("reading", "acceptance"):
        wanted = {f"{what}, {kind}, {kv}-bit KV" for kind in ("F16", "Q8_0") for kv in (16, 8)}
        assert {name for name in names if name.startswith(what)} == wanted
    assert sum(name.startswith("llama.cpp, ") for name in names) == len(weight_formats.BESIDE)
    monkeypatch.setattr(weight_formats, "_has_llama_cpp", lambda: False)
    options.reading = None
    left = [name for name, _case in weight_formats._cases(["F16"], options)]
    assert left == [
        "distributions, 16-bit KV",
        "distributions, 8-bit KV",
        "acceptance, F16, 16-bit KV",
        "acceptance, F16, 8-bit KV",
    ]


@pytest.mark.parametrize(("kind", "group"), [("Q8_0", 32), ("Q4_K", 256)])
def test_activations_are_rounded_as_llama_cpp_rounds_them_for_the_format(tmp_path: Path, kind, group):
    """By the package's own blocks of 8 bits, and by the group that belongs to the weights' format."""
    x = torch.randn(3, 512, generator=torch.Generator().manual_seed(4))
    part = GgufWeights(read_header(write_gguf(tmp_path / "one.gguf", wide(tied=True), kind))).planes(
        "model.layers.0.mlp.up_proj"
    )
    rounded = llamacpp_agreement._rounding(part)(x)
    steps = rounded / (x.unflatten(1, (-1, group)).abs().amax(-1, keepdim=True) / 127).expand(
        -1, -1, group
    ).flatten(1)
    assert float((steps - steps.round()).abs().max()) < 0.1 and float((rounded - x).abs().max()) < 0.02
    if group == 32:
        blocks = quantize(x.numpy(), gguf.GGMLQuantizationType.Q8_0)
        theirs = torch.from_numpy(dequantize(blocks, gguf.GGMLQuantizationType.Q8_0))
        torch.testing.assert_close(rounded, theirs, rtol=0, atol=2e-5)


def test_a_pass_with_rounded_activations_is_another_one(file: Path):
    """Every product of it: were some left out, the comparison would say too little."""
    plain, rounded = CpuBackend(torch.float32), llamacpp_agreement.RoundingBackend(torch.float32)
    want, found = logits(file, plain), logits(file, rounded)
    assert 1e-4 < float((found - want).abs().max()) < 0.2 * float(want.std())
