"""The target that a draft model learns from is the one that runs, whatever its file."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.model.gguf.folder import opened
from core.training.target import in_transformers
from tests.support.gguf_files import write_gguf
from tests.support.gguf_models import IDS, MIXED, as_stored, logits, wide


@pytest.mark.parametrize("factors", [None, [1.0 + number / 4 for number in range(32)]])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_gguf_in_transformers_is_what_runs_here(tmp_path, family, factors):
    """Its decoded weights, and Llama 3's factors, which transformers' configuration cannot say."""
    model = wide(family)
    file = write_gguf(tmp_path / "model.gguf", model, MIXED, factors=factors)
    with torch.inference_mode():
        found = in_transformers(opened(file), torch.float32)(torch.tensor([IDS * 6])).logits[0]
        without = as_stored(model, file)(torch.tensor([IDS * 6])).logits[0]
    want = logits(file, CpuBackend(), IDS * 6)
    assert float((found - want).abs().max()) < 1e-4 * max(1.0, float(want.std()))
    assert (float((without - want).abs().max()) > 0.01) == (factors is not None)


def test_a_checkpoint_too(tmp_path):
    model = wide("qwen2", tied=True)
    model.save_pretrained(tmp_path / "model")
    with torch.inference_mode():
        want = model(torch.tensor([IDS])).logits
        found = in_transformers(tmp_path / "model", torch.float32)(torch.tensor([IDS])).logits
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)
