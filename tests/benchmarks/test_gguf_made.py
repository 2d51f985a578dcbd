"""Files that benchmarks compare hold the model they are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import formats, gguf_made
from core.backend.cpu import CpuBackend
from core.model.adapter import save
from core.model.gguf import read_header
from core.model.gguf_weights import GgufWeights
from core.model.shapes import Sizes
from tests.gguf_files import write_gguf
from tests.model.test_gguf import logits, wide


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", wide(tied=True), "Q8_0")


def test_sixteen_bits_are_the_files_own_numbers(tmp_path: Path, file: Path):
    """Rows of q and k where they stood: another order would show."""
    made = gguf_made.sixteen_bits(file, tmp_path / "made" / "model-F16.gguf")
    kinds = {tensor.kind for tensor in read_header(made).tensors.values()}
    assert kinds == {"F16", "F32"} and read_header(made).metadata == read_header(file).metadata
    torch.testing.assert_close(logits(made, CpuBackend()), logits(file, CpuBackend()), rtol=0, atol=0.02)
    before = made.stat().st_mtime_ns
    assert gguf_made.sixteen_bits(file, made).stat().st_mtime_ns == before


def test_what_was_taught_is_in_them(tmp_path: Path, file: Path):
    dice, name = torch.Generator().manual_seed(1), "model.layers.1.self_attn.q_proj"
    down, up = torch.randn(2, 256, generator=dice), torch.randn(256, 2, generator=dice)
    save(tmp_path / "adapter.safetensors", {name: (down, up)})
    made = gguf_made.sixteen_bits(file, tmp_path / "taught-F16.gguf", tmp_path / "adapter.safetensors")
    plain, taught = (GgufWeights(read_header(one)).tensor(f"{name}.weight").float() for one in (file, made))
    torch.testing.assert_close(taught - plain, up @ down, rtol=0, atol=0.1)


def test_the_larger_shape_computes_the_same(tmp_path: Path, file: Path):
    """By the whole way: written with its tokenizer and settings, read, and computed."""
    shape = Sizes("large", 3, 512, 8, 4, 128, 768)
    made = gguf_made.expanded(file, shape, tmp_path / "large-F16.gguf", positions=512)
    own, larger = read_header(file).metadata, read_header(made).metadata
    kept = [key for key in own if key.startswith("tokenizer.")]
    assert kept and {key: own[key] for key in kept} == {key: larger[key] for key in kept}
    want = logits(file, CpuBackend())
    assert float((logits(made, CpuBackend()) - want).abs().max()) < 0.02 * float(want.abs().max())


def test_a_format_that_was_not_measured_has_no_row():
    """And acceptance that is missing is a dash beside laws that are there."""
    law = {"mb": 1.0, "kl_mean": 0.1, "kl_p99": 0.2, "agreement": 0.9, "perplexity": 30.0}
    done = {
        "laws, 8-bit KV": {"F16": law, "Q4_K_M": law},
        "acceptance, Q4_K_M, 8-bit KV": {"T 0.6": 0.8, "T 0": 0.7},
        "llama.cpp, Q4_K_M, whole blocks": {"most": "Q4_K", "fp32": law, "bf16": law},
    }
    costs, beside = formats.tables(done, ["F16", "Q4_K_M", "Q8_0"])
    assert costs.rows == (
        ("F16", "8 bits", 1.0, 0.1, 0.2, 0.9, 30.0, None, None),
        ("Q4_K_M", "8 bits", 1.0, 0.1, 0.2, 0.9, 30.0, 0.8, 0.7),
    )
    assert [row[:4] for row in beside.rows] == [
        ("Q4_K_M", "Q4_K", "whole blocks", computed) for computed in ("fp32", "bf16")
    ]
