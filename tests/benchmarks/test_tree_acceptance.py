"""Trees of drafts: their acceptance by enumeration, and the arithmetic over them."""

from __future__ import annotations

import pytest
import torch

from benchmarks.quality.tree_acceptance import TreeRow, accepted_with, promised, tokens_of_tree, tree_tables


def drawn(seed: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, tokens, generator=dice) ** 3
    return p / p.sum(), q / q.sum()


def simulated(p: torch.Tensor, q: torch.Tensor, candidates: int) -> tuple[float, torch.Tensor]:
    """The chance that one is accepted, and the law of what comes out, by walking every order of draws."""
    accepted, law = 0.0, torch.zeros_like(p)

    def walk(reach: float, p: torch.Tensor, q: torch.Tensor, left: int) -> None:
        nonlocal accepted, law
        if left == 0 or reach == 0.0 or float(q.sum()) == 0.0:
            law += reach * p
            return
        q = q / q.sum()
        rest = (p - q).clamp(min=0)
        rest = rest / rest.sum() if float(rest.sum()) > 0 else p
        for token in range(len(p)):
            taken = float(torch.minimum(p, q)[token])
            accepted += reach * taken
            law[token] += reach * taken
            other = q.clone()
            other[token] = 0.0
            walk(reach * (float(q[token]) - taken), rest, other, left - 1)

    walk(1.0, p.clone(), q.clone(), candidates)
    return accepted, law


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_acceptance_is_that_of_every_order_of_draws(seed: int, candidates: int):
    """And what comes out of them follows the target's law, which is why trees may be drafted at all."""
    p, q = (part.double() for part in drawn(seed, 5))
    accepted, law = simulated(p, q, candidates)
    assert accepted_with(p, q, candidates)[-1] == pytest.approx(accepted, abs=5e-3)
    assert torch.allclose(law, p, atol=1e-9)


def test_more_candidates_are_accepted_more_often():
    for seed in range(6):
        rates = accepted_with(*drawn(seed, 30), 3)
        assert 0 < rates[0] < rates[1] <= rates[2] <= 1 + 1e-6
    greedy, other = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    assert accepted_with(greedy, other, 2) == [0.0, 0.0] and accepted_with(greedy, greedy, 2) == [1.0, 1.0]


def test_a_tree_that_mends_nothing_is_a_chain():
    chain = sum(0.9**n for n in range(8))
    assert tokens_of_tree(0.9, 0.0, nodes=50, depth=7) == pytest.approx(chain)
    small = tokens_of_tree(0.9, 0.5, nodes=2, depth=1)
    assert small == pytest.approx(1 + 0.9 + 0.05)
    assert tokens_of_tree(0.9, 0.5, nodes=60, depth=7) > chain


def test_what_trees_are_held_against_is_the_plan():
    """A promise that counts the chain's own gain would build what gains nothing."""
    chain, tree = promised(0.0, 63)
    assert tree == pytest.approx(chain, rel=0.01) and promised(1.0, 63)[1] < tree
    row = TreeRow(4096, 0.0, 256, (0.8, 0.9, 0.95))
    assert row.mended(2) == pytest.approx(0.5)
    _, planned = tree_tables([row])
    assert planned.rows[0][0].startswith("0.50 mended (measured), 39")
