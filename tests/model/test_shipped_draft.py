"""The draft model that comes with the program, beside the model it was trained for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.cache.streaming import StreamingKVCache
from core.model.loader import load_draft, load_model
from core.model.store.catalogue import EMBEDDED, draft_for, find
from core.text.tokenizer import Tokenizer

DRAFT = "SmolLM2-135M-Draft"
SAMPLE = Path(__file__).resolve().parent.parent.parent / "assets" / "samples" / "the-thursday-clock.md"


def test_it_is_small_and_carries_its_card():
    """It travels with every download of the program."""
    folder = find(DRAFT).folder
    assert sum(path.stat().st_size for path in folder.iterdir()) < 20_000_000
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "Apache-2.0" in card
    assert "SmolLM2-135M-Instruct" in card


@pytest.mark.wide
def test_it_agrees_with_its_target_far_more_often_than_chance(embedded_model_dir: Path):
    """Rows of the head in another order, or other positions, leave a draft that nobody accepts."""
    backend = CpuBackend(torch.float32)
    target = load_model(embedded_model_dir, backend, positions=512)
    draft = load_draft(
        find(DRAFT).folder, backend, target=target, target_dir=embedded_model_dir, positions=512
    )
    ids = Tokenizer.load(embedded_model_dir).encode(SAMPLE.read_text(encoding="utf-8"))[:400]
    with torch.inference_mode():
        wanted = target.forward(
            ids, FullKVCache(target.config.kv_shape, 512, backend, block_tokens=512)
        ).argmax(-1)
        cache = StreamingKVCache(
            draft.config.kv_shape, backend, draft.rope.rotate, sinks=16, window=240, slack=16
        )
        rows = []
        for start in range(0, len(ids), 8):
            rows.append(draft.forward(ids[start : start + 8], cache).argmax(-1))
            cache.commit(cache.length)
    agreed = float((torch.cat(rows) == wanted).float().mean())
    assert agreed > 0.2, f"{agreed:.0%} of the likeliest tokens are the target's"


@pytest.mark.parametrize("name", ["SmolLM2-135M-Draft", "smollm2-135m-draft"])
def test_it_can_be_named_in_the_settings(name: str):
    assert draft_for(find(EMBEDDED), name).role == "draft"
