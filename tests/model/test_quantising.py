"""A checkpoint of 16 bits in 8 or 4: what runs is exactly what it was rounded to, made once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import gguf
import pytest
import torch
from gguf.quants import dequantize, quantize

from core import build
from core.assembly.engines import build_engine
from core.backend.cpu.backend import CpuBackend
from core.config import Settings
from core.errors import UserError
from core.hardware.gpus import imagined_hardware
from core.model.gguf.dequantize import planes
from core.model.gguf.quantize_blocks import q4_0, q8_0
from core.model.gguf.size_estimates import ROUNDED
from core.model.loader import load_model
from core.model.store import quantize_checkpoint
from core.model.store.catalogue import from_folder
from core.model.store.disk_usage import kept_bytes, remove_model
from core.model.store.fetch import model_folder
from core.model.store.quantize_checkpoint import quantised
from core.planning.budget import KV_BEFORE
from core.planning.offers import choose_model
from core.planning.planner import make_plan
from tests.support.checkpoints import checkpoint
from tests.support.gguf_models import IDS
from tests.support.said import values, worded_by
from tests.support.tiny import SHARED, whole_cache

MAKERS = {"Q8_0": q8_0, "Q4_0": q4_0}


def rounded(model: torch.nn.Module, kind: str) -> torch.nn.Module:
    """Its matrices as the blocks say, by the `gguf` package."""
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim == 2:
                blocks = MAKERS[kind](value)
                value.copy_(torch.from_numpy(dequantize(blocks, gguf.GGMLQuantizationType[kind])))
    return model


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("family", "tied"),
    [
        ("llama", False),
        ("llama", True),
        ("qwen2", False),
        ("qwen3", True),
        ("qwen3_5_text", False),
        ("gemma4_text", True),
        (SHARED, True),
        ("lfm2", True),
    ],
)
def test_what_runs_is_what_it_was_rounded_to(tmp_path, family, tied, kind):
    """Rows of q and k, biases, norms and a tied output in their places; loaded from codes."""
    model = checkpoint(tmp_path / "model", family, tied=tied)
    shares: list[float] = []
    folder = quantised(tmp_path / "model", kind, lambda stage, share: shares.append(share))
    assert shares[-1] == 1 and shares == sorted(shares)
    with torch.inference_mode():
        want = rounded(model, kind)(torch.tensor([IDS])).logits[0]
        ours = load_model(folder, CpuBackend(), positions=64)
        cache = whole_cache(ours, 64)
        found = ours.forward(IDS, cache)
    assert float((found - want).abs().max()) < 1e-4 * max(1.0, float(want.std()))
    assert (folder / "tokenizer.json").is_file() and folder.name == "model"
    file = next(folder.glob("*.gguf"))
    matrices = [value for value in model.parameters() if value.ndim == 2]
    weights = sum(value.numel() for value in matrices)
    assert file.stat().st_size < weights * (1.08 if kind == "Q8_0" else 0.58) + 40_000


def test_four_bits_are_nearer_than_plain_rounding():
    """In squared error, over every group; and the blocks mean what the `gguf` package says."""
    weight = torch.randn(64, 512, generator=torch.Generator().manual_seed(2))
    weight[3, :32] = 0  # a group without any
    kind = gguf.GGMLQuantizationType.Q4_0
    found = torch.from_numpy(dequantize(q4_0(weight), kind))
    assert torch.equal(planes(q4_0(weight), "Q4_0", (64, 512)).decoded(), found)
    plain = torch.from_numpy(dequantize(quantize(weight.numpy(), kind), kind))
    ours, theirs = ((one - weight).square().view(64, -1, 32).sum(-1).double() for one in (found, plain))
    assert float(ours.sum()) < 0.95 * float(theirs.sum())
    assert (ours <= theirs * 1.02 + 1e-6).all() and found[3, :32].abs().max() == 0


def test_a_stopped_rounding_goes_on_where_it_was(tmp_path, monkeypatch):
    """Hours of a large model must not be lost; half of one must never be loaded."""
    checkpoint(tmp_path / "model")
    whole = next(quantised(tmp_path / "model", "Q8_0", lambda *said: None).glob("*.gguf")).read_bytes()
    monkeypatch.setenv("TRIFORCE_HOME", str(tmp_path / "other"))
    made: list[str] = []
    blocks = quantize_checkpoint._blocks

    def counted(name: str, *given):
        if len(made) == 7:
            made.append("stopped")
            raise KeyboardInterrupt
        made.append(name)
        return blocks(name, *given)

    monkeypatch.setattr(quantize_checkpoint, "_blocks", counted)
    with pytest.raises(KeyboardInterrupt):
        quantised(tmp_path / "model", "Q8_0", lambda *said: None)
    begun = made.copy()
    folder = quantised(tmp_path / "model", "Q8_0", lambda *said: None)
    assert not set(begun) & set(made[len(begun) :]) and next(folder.glob("*.gguf")).read_bytes() == whole
    count = len(made)
    assert quantised(tmp_path / "model", "Q8_0", lambda *said: None) == folder and len(made) == count


def test_formats_and_checkpoints_are_kept_apart(tmp_path):
    """And another file under the old name is rounded anew."""
    checkpoint(tmp_path / "model")
    eight, four = (quantised(tmp_path / "model", kind, lambda *said: None) for kind in MAKERS)
    checkpoint(tmp_path / "model", tied=True)
    assert len({eight, four, quantised(tmp_path / "model", "Q8_0", lambda *said: None)}) == 3


def test_a_full_disk_is_said_before(tmp_path, monkeypatch):
    checkpoint(tmp_path / "model")
    monkeypatch.setattr(quantize_checkpoint.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(UserError, match="is free.*weights: 16"):
        quantised(tmp_path / "model", "Q8_0", lambda *said: None)


@pytest.mark.parametrize("bits", ROUNDED)
def test_the_setting_reaches_what_is_loaded(tmp_path, bits):
    """`weights: 8` plans codes and loads them; auto leaves a checkpoint that fits as it is."""
    checkpoint(tmp_path / "model")
    entry, machine = from_folder(tmp_path / "model"), imagined_hardware(ram_gib=16)
    made = make_plan(machine, Settings(weights=bits, context_tokens=256), target=entry.shape)
    assert (made.weights_kernel, made.weights_bits, made.weights_format) == ("codes", bits, ROUNDED[bits])
    assert values(made.exact_for.values["weights"]) == {"bits": bits, "format": ROUNDED[bits]}
    choice = SimpleNamespace(entry=entry, plan=made, draft=None)
    folder, _draft = build._folders(choice, lambda *said: None)
    assert folder == model_folder(entry, lambda *said: None, weights=ROUNDED[bits])
    ours = load_model(folder, CpuBackend(), positions=64)
    assert ours.config.name == "model"
    plain = make_plan(machine, Settings(context_tokens=256), target=entry.shape)
    choice = SimpleNamespace(entry=entry, plan=plain, draft=None)
    assert build._folders(choice, lambda *said: None)[0] == tmp_path / "model"


def test_auto_rounds_what_does_not_fit_and_the_engine_is_that(tmp_path):
    """Planned, made with progress, loaded, and said; the next start makes nothing. With one byte more the
    checkpoint runs as it is.
    """
    checkpoint(tmp_path / "model")
    entry = from_folder(tmp_path / "model")
    settings = Settings(model=str(tmp_path / "model"), context_tokens=256, kv=16)
    roomy = imagined_hardware(ram_gib=16)
    whole = choose_model(roomy, settings, is_downloaded=lambda one: True)
    assert not whole.plan.rounded and build._folders(whole, lambda *said: None)[0] == tmp_path / "model"

    needed = sum(line.bytes for line in whole.plan.budget if line.place == "RAM" and line.name != KV_BEFORE)
    choices = [
        choose_model(replace(roomy, ram_available_bytes=free), settings, is_downloaded=lambda one: True)
        for free in (needed, needed - 1)
    ]
    assert [one.plan.rounded for one in choices] == [False, True]
    said: list[str] = []
    folder, _draft = build._folders(choices[1], lambda stage, share: said.append(stage))
    assert {values(one)["kind"] for one in worded_by(quantised, *said)} == {"Q4_0"}
    engine = build_engine(choices[1].plan, settings, folder, backend=CpuBackend())
    exact = engine.plan.exact_for.values
    assert exact["model"] == "model" and values(exact["weights"]) == {"bits": 4, "format": "Q4_0"}
    assert folder == model_folder(entry, said.append, weights="Q4_0")
    said.clear()
    assert build._folders(choices[1], lambda stage, share: said.append(stage))[0] == folder and not said


def test_a_deleted_model_takes_what_was_made_of_it_along(tmp_path):
    """Gigabytes that nobody would find."""
    checkpoint(tmp_path / "model")
    folder = quantised(tmp_path / "model", "Q8_0", lambda *said: None)
    taken = sum(path.stat().st_size for path in folder.iterdir())
    assert kept_bytes("model") == taken == remove_model("model")
    assert not folder.exists() and (tmp_path / "model" / "config.json").is_file()
