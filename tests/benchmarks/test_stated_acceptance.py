"""Coins in the place of laws: each level is judged by its own, in the product's decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.card.stated_acceptance import StatedComposer, StatedRandomness
from core.engine import Done
from tests.support.engine_runs import GREEDY, PROMPT
from tests.support.tiny import PLAN, engine, oracle, ours


@pytest.mark.parametrize(("retrieval", "draft"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_each_level_is_accepted_as_stated(retrieval: float, draft: float):
    """A coin thrown at the wrong level gives the times of another algorithm."""
    model, small = ours(oracle()), ours(oracle(tied=True))
    plan = replace(PLAN, fixed_gamma=True)
    composer = StatedComposer(plan, model, small, retrieval=retrieval, draft=draft)
    tiny = engine(model, draft=small)
    tiny._compose = composer.compose
    params = replace(GREEDY, mode="triforce", temperature=1.0, max_new_tokens=60)
    with torch.inference_mode():
        *_rounds, last = tiny.generate(tiny.new_context(400), PROMPT, params)
    assert isinstance(last, Done)
    stats = last.stats
    assert (stats.acceptance_retrieval.rate, stats.acceptance_draft.rate) == (retrieval, draft)


def test_coins_fall_as_often_as_stated():
    """And never for a token that its law rules out: the next level would find it impossible."""
    coins = StatedRandomness(0, 0.92)
    certain = torch.full((1,), 0.3)
    stood = sum(int(coins.first_rejection(certain)) for _ in range(4000))
    assert abs(stood / 4000 - 0.92) < 0.02
    assert int(StatedRandomness(0, 1.0).first_rejection(torch.tensor([0.3, 0.0, 0.3]))) == 1
