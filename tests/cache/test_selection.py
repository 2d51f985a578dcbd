"""Which chunks the product's policy chooses, against dense attention computed here."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.selection import ByMass

SHAPE, HEADS, CHUNK = KVShape(layers=2, kv_heads=2, head_dim=8), 4, 4
LENGTH = 40


def observed(
    seed: int, *, away_from_sinks: bool = False
) -> tuple[ByMass, list[tuple[torch.Tensor, torch.Tensor]]]:
    """A policy that has seen a verification of three rows behind a book, and each layer's first query
    [heads, head_dim] with the keys it sees [tokens, kv_heads, head_dim].
    """
    cache, dice = FullKVCache(SHAPE, 64, CpuBackend(), block_tokens=16), torch.Generator().manual_seed(seed)
    policy = ByMass(cache, CHUNK)
    rows = {
        (layer, n): [2 * torch.randn(n, heads, SHAPE.head_dim, generator=dice) for heads in (HEADS, 2, 2)]
        for n in (LENGTH, 3)
        for layer in range(SHAPE.layers)
    }
    if away_from_sinks:  # every head of a group would rather look anywhere else
        for layer in range(SHAPE.layers):
            groups = rows[layer, 3][0][0].view(SHAPE.kv_heads, -1, SHAPE.head_dim)
            groups[:, 1:] = groups[:, :1]
            rows[layer, LENGTH][1][:CHUNK] = -10 * groups[:, 0]
    for n in (LENGTH, 3):
        cache.observer = policy.observe if n == 3 else None
        for layer in range(SHAPE.layers):
            cache.attend(layer, *rows[layer, n])
        cache.advance(n)
    seen = [
        (rows[layer, 3][0][0], torch.cat((rows[layer, LENGTH][1], rows[layer, 3][1][:1])))
        for layer in range(SHAPE.layers)
    ]
    return policy, seen


def masses(q: torch.Tensor, k: torch.Tensor, head: int) -> torch.Tensor:
    """What each whole chunk receives of the attention of one query head."""
    own = head // (HEADS // SHAPE.kv_heads)
    weights = torch.softmax(k[:, own].double() @ q[head].double() / SHAPE.head_dim**0.5, 0)
    return weights[:LENGTH].view(-1, CHUNK).sum(1)


@pytest.mark.parametrize("seed", range(4))
def test_a_kv_head_gets_the_chunks_that_its_own_query_heads_look_at(seed: int):
    """Heads that are grouped wrongly choose for each other: the law stays right and acceptance falls."""
    policy, seen = observed(seed)
    assert policy.ready
    chosen = policy.choose(LENGTH // CHUNK, 5)
    group = HEADS // SHAPE.kv_heads
    for layer, (q, k) in enumerate(seen):
        for head in range(SHAPE.kv_heads):
            shares = sum(masses(q, k, one) for one in range(head * group, (head + 1) * group))
            shares[0] = torch.inf
            assert chosen[layer, head].tolist() == shares.topk(5).indices.sort().values.tolist()
    assert not policy.ready, "what was observed is used up"


def test_the_sinks_are_chosen_whatever_they_score():
    """Attention leans on the first tokens in nearly every pass, also where this query did not."""
    policy, seen = observed(7, away_from_sinks=True)
    for q, k in seen:
        assert all(masses(q, k, head).argmin() == 0 for head in range(HEADS))
    assert (policy.choose(LENGTH // CHUNK, 3)[..., 0] == 0).all()
