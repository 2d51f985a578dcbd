"""The model file against transformers' own classes: same weights, same logits, whatever the pieces they are
computed in.
"""

from __future__ import annotations

import pytest
import torch

from core.cache.full import FullKVCache
from tests.support.rope_kinds import ROPES
from tests.support.tiny import FAMILIES, VOCAB, oracle, ours, whole_cache

IDS = [int(token) for token in torch.randint(0, VOCAB, (75,), generator=torch.Generator().manual_seed(2))]


def logits(model: object, segment: int, chunk: int, rows: int = 5) -> torch.Tensor:
    """The last `rows` rows: all but them prefilled in segments and chunks, then one pass."""
    cache = whole_cache(model, 128, block_tokens=32)
    with torch.inference_mode():
        for _ in model.prefill(
            IDS[:-rows], cache, segment_tokens=segment, chunk_tokens=chunk, should_stop=lambda: False
        ):
            pass
        return model.forward(IDS[-rows:], cache)


def same(reference: torch.nn.Module, model: object) -> None:
    with torch.inference_mode():
        want = reference(torch.tensor([IDS])).logits[0, -5:]
    scale = float(want.abs().max())
    for segment, chunk in ((200, 200), (31, 7), (13, 64)):
        assert float((logits(model, segment, chunk) - want).abs().max()) < 1e-4 * scale, (segment, chunk)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_logits_equal_transformers(family: str, kv_heads: int, tied: bool):
    """Biases (Qwen2), q/k norms (Qwen3), grouped heads, tied embeddings; odd segments against one pass."""
    reference = oracle(family, kv_heads=kv_heads, tied=tied)
    same(reference, ours(reference))


@pytest.mark.parametrize("kind", ROPES)
def test_rope_kinds_equal_transformers(kind: str):
    """Kinds whose frequencies depend on the longest position are frozen at the given length: one transformers
    pass of that length.
    """
    reference = oracle(rope=ROPES[kind], max_position_embeddings=32 if kind == "dynamic" else 128)
    same(reference, ours(reference, positions=len(IDS)))


def test_a_wrong_position_would_show():
    """The comparison is worth something: the same logits do not come from rows one position further."""
    reference = oracle()
    model = ours(reference)
    cache = FullKVCache(model.config.kv_shape, 128, model.backend, block_tokens=32)
    with torch.inference_mode():
        want = reference(torch.tensor([IDS])).logits[0, -1]
        got = model.forward([IDS[0], *IDS], cache)[-1]
    assert float((got - want).abs().max()) > 1e-2
