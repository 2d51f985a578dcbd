"""Acceptance computed from both laws, on tiny random models: what it must equal, whatever the model says."""

from __future__ import annotations

import pytest
import torch

from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.decoding import forced
from core.decoding.drafters import next_logits
from core.decoding.forced import ExpectedTokens, RetrievalLane, SourceStandIn
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.model.llama import LlamaModel
from tests.support.tiny import VOCAB, oracle, ours

IDS = [int(token) for token in torch.randint(0, VOCAB, (180,), generator=torch.Generator().manual_seed(3))]
START = 150
WARM = Sampling(temperature=1.0)


@pytest.fixture(scope="module")
def tiny() -> LlamaModel:
    return ours(oracle())


def read(tiny: LlamaModel) -> FullKVCache:
    """A full cache that holds the prompt but its last two tokens."""
    source = FullKVCache(tiny.config.kv_shape, 256, tiny.backend, block_tokens=64)
    for _ in tiny.prefill(
        IDS[: START - 2], source, segment_tokens=64, chunk_tokens=32, should_stop=lambda: False
    ):
        pass
    return source


def lane(source: FullKVCache, budget: int, every: int = 2) -> RetrievalLane:
    cache = RetrievalKVCache(source, budget=budget, chunk=4, recent=8, tail_tokens=64)
    watch = SourceStandIn()
    return RetrievalLane(cache, RetrievalRefresh(watch, cache, every=every, floor=0.0), watch)


def run(
    tiny: LlamaModel, *budgets: int, samplings: tuple[Sampling, ...] = (WARM,), **how
) -> list[list[ExpectedTokens]]:
    source = read(tiny)
    lanes = [lane(source, budget, **how) for budget in budgets]
    with torch.inference_mode():
        forced.select_first(tiny, source, IDS[:START], lanes, chunk_tokens=32)
        return forced.force(tiny, source, IDS, START, lanes, samplings, gamma=4)


def test_a_cache_that_holds_everything_is_always_accepted(tiny: LlamaModel):
    """A row at the wrong position, or a law at the wrong row, would show as a loss that no selection
    explains.
    """
    ((found,),) = run(tiny, 180)
    assert found.rate == pytest.approx(1.0, abs=1e-4)
    assert found.rounds == 8 and found.tokens_per_round == pytest.approx(1 + 30 / 8, abs=1e-3)


def test_lanes_side_by_side_are_as_if_alone(tiny: LlamaModel):
    """One verification serves all: what one lane observes or is told must not move another."""
    together = run(tiny, 16, 48)
    assert [lane[0].rate for lane in together] == pytest.approx(
        [run(tiny, 16)[0][0].rate, run(tiny, 48)[0][0].rate], abs=1e-6
    )
    assert together[0][0].rate < 0.99


def test_without_refresh_it_is_the_overlap_of_two_passes(tiny: LlamaModel):
    """By hand: the cache selected once, exact rows behind it, four tokens at a time; sum(min(p, q)) and the
    chain of a draft.
    """
    ((found,),) = run(tiny, 16, every=10**6)
    source = read(tiny)
    alone = lane(source, 16)
    sums = ExpectedTokens()
    with torch.inference_mode():
        forced.select_first(tiny, source, IDS[:START], [alone], chunk_tokens=32)
        alone.cache.refresh()
        for s in range(START, len(IDS), 4):
            g = min(4, len(IDS) - s)
            q = torch.softmax(next_logits(tiny, alone.cache, IDS[:s], IDS[s : s + g - 1]), -1)
            p = torch.softmax(next_logits(tiny, source, IDS[:s], IDS[s : s + g - 1]), -1)
            reach = 1.0
            for share in torch.minimum(p, q).sum(-1).tolist():
                sums += ExpectedTokens(reach * share, reach)
                reach *= share
            source.commit(s + g - 1)
            alone.cache.commit(s + g - 1)
    assert (found.accepted, found.evaluated) == pytest.approx((sums.accepted, sums.evaluated), abs=1e-4)


def test_greedy_counts_equal_choices(tiny: LlamaModel):
    """At temperature 0 a position is accepted or not; several temperatures come from the same passes."""
    ((warm, greedy),) = run(tiny, 16, samplings=(WARM, Sampling()))
    assert greedy.accepted == int(greedy.accepted) and greedy.accepted != warm.accepted


def test_it_ends_when_told(tiny: LlamaModel):
    """A tuner's time may be over in the middle of a text."""
    source = read(tiny)
    lanes = [lane(source, 16)]
    left = iter([True, False])
    forced.select_first(tiny, source, IDS[:START], lanes, chunk_tokens=32)
    ((found,),) = forced.force(tiny, source, IDS, START, lanes, [WARM], gamma=4, going_on=lambda: next(left))
    assert found.rounds == 2 and source.length == START + 7


def test_a_chain_breaks_at_its_first_rejection():
    """0.5, then 0.5: the second is reached half the time."""
    assert forced.of_draft([0.5, 0.5]) == ExpectedTokens(0.75, 1.5, 1)
    assert forced.of_draft([]) == ExpectedTokens(0.0, 0.0, 1)
