"""The policies of selection that the product's is compared with."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from benchmarks.quality.selection_policies import POLICIES, ByColumnSums
from core.backend.cpu.backend import CpuBackend
from core.cache.base import KVShape
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache

SHAPE, HEADS, CHUNK = KVShape(layers=2, kv_heads=2, head_dim=8), 4, 4
LENGTH, CAPACITY = 45, 64


def feed(cache: FullKVCache, n: int, dice: torch.Generator) -> list[torch.Tensor]:
    """A pass of n random rows. Returns each layer's queries [n, heads, head_dim]."""
    queries = []
    for layer in range(SHAPE.layers):
        q, k, v = (torch.randn(n, heads, SHAPE.head_dim, generator=dice) for heads in (HEADS, 2, 2))
        cache.attend(layer, q, k, v)
        queries.append(q)
    cache.advance(n)
    return queries


@pytest.mark.parametrize("chunk", [3, LENGTH])
def test_column_sums_are_those_of_the_dense_softmax(chunk: int):
    """H2O's measure, by its definition: every row's attention, summed over rows and over the heads of a
    group.
    """
    cache = FullKVCache(SHAPE, CAPACITY, CpuBackend(), block_tokens=16)
    policy, dice = ByColumnSums(cache, CHUNK), torch.Generator().manual_seed(1)
    cache.observer = policy.tap
    fed = [feed(cache, chunk, dice) for _ in range(0, LENGTH, chunk)]
    for layer in range(SHAPE.layers):
        queries = torch.cat([layers[layer] for layers in fed]).double()
        keys = cache.rows(layer, 0, LENGTH)[0].double()
        want = torch.zeros(SHAPE.kv_heads, CAPACITY, dtype=torch.float64)
        for row, head in product(range(LENGTH), range(HEADS)):
            own = head // (HEADS // SHAPE.kv_heads)
            scores = keys[: row + 1, own] @ queries[row, head] / SHAPE.head_dim**0.5
            want[own, : row + 1] += torch.softmax(scores, 0)
        want = want.unflatten(1, (-1, CHUNK)).sum(-1)
        assert torch.allclose(policy.columns[layer].double(), want, atol=1e-4)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_fills_the_budget_and_keeps_the_sinks(name: str):
    """A comparison with one that selects less, or loses the sinks, would flatter the others."""
    cache = FullKVCache(SHAPE, CAPACITY, CpuBackend(), block_tokens=16)
    view = RetrievalKVCache(cache, budget=16, chunk=CHUNK, recent=4, policy=POLICIES[name])
    cache.observer = view.policy.tap
    feed(cache, LENGTH, torch.Generator().manual_seed(2))
    cache.commit(LENGTH)
    chosen = view.policy.choose(10, 4)
    assert chosen.shape == (SHAPE.layers, SHAPE.kv_heads, 4) and chosen.max() < 10
    assert torch.equal(chosen, chosen.sort(dim=-1).values) and (chosen[..., 0] == 0).all()
    assert (chosen[..., 1:] > chosen[..., :-1]).all()
    if name == "streaming":
        assert chosen[0, 0].tolist() == [0, 7, 8, 9]


def test_what_was_summed_before_is_where_another_begins():
    """One prefill serves all budgets: whoever begins with its sums must not change them."""
    cache = FullKVCache(SHAPE, CAPACITY, CpuBackend(), block_tokens=16)
    first, dice = ByColumnSums(cache, CHUNK), torch.Generator().manual_seed(3)
    cache.observer = first.tap
    feed(cache, 20, dice)
    kept = [sums.clone() for sums in first.columns]
    second = ByColumnSums(cache, CHUNK, begun=first)
    assert second.ready
    cache.observer = second.observe
    feed(cache, 5, dice)
    assert not torch.equal(second.columns[0], kept[0])
    second.reset()
    for other in (first, second):
        assert all(torch.equal(one, two) for one, two in zip(other.columns, kept, strict=True))
