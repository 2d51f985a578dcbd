"""What is tried and what is chosen, from figures whose best answer is known by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.config import Settings
from core.planning.costs import expected_tokens
from core.tuning.choice import MeasuredPasses, Selection, candidates, choose_tuning, level_zero
from tests.support.tiny import PLAN

FLAT = ((1, 100.0), (33, 100.0))  # milliseconds of a pass, however many rows
SMALL, LARGE = Selection(256, 8), Selection(1024, 8)
MEASURED = MeasuredPasses(
    FLAT, {256: ((1, 10.0), (9, 90.0)), 1024: ((1, 30.0), (9, 110.0))}, 0.0, {SMALL: 0.8, LARGE: 0.8}, 0.2
)


def test_equal_acceptance_goes_to_the_cheaper_cache():
    """Rows that add 10 ms each do not pay at q = .2, so one is drafted at a time; E(.2, 1) = 1.2 tokens for
    20 ms.
    """
    choice = choose_tuning(MEASURED, Settings())
    assert choice.selection == SMALL and choice.lengths.middle_gamma == 1
    g = choice.lengths.gamma
    assert choice.lengths.tbt_s == pytest.approx((0.1 + g * 0.020 / 1.2) / expected_tokens(0.8, g))


def test_more_acceptance_pays_for_a_dearer_cache():
    """Not the acceptance alone decides, nor the pass alone."""

    def chosen(acceptance: float) -> Selection:
        return choose_tuning(
            replace(MEASURED, acceptance={SMALL: 0.8, LARGE: acceptance}), Settings()
        ).selection

    assert (chosen(0.82), chosen(0.97)) == (SMALL, LARGE)


def test_what_the_user_set_stays():
    """Lengths and selections are not tried against the user's will."""
    lengths = choose_tuning(MEASURED, Settings(gamma=3, middle_gamma=2)).lengths
    assert (lengths.gamma, lengths.middle_gamma) == (3, 2)
    plan = replace(PLAN, retrieval_budget=512, context_tokens=8192)
    assert {one.budget for one in candidates(plan, Settings(retrieval_budget=512))} == {512}
    assert {one.chunk for one in candidates(plan, Settings(retrieval_chunk=8))} == {8}


def test_the_plans_own_selection_is_tried_first():
    """When time ends early, the default is the one thing that must be known; whole chunks, at most half of
    the context.
    """
    plan = replace(PLAN, retrieval_budget=512, context_tokens=3000)
    tried = candidates(plan, Settings())
    assert tried[0] == Selection(512, 8) and len(set(tried)) == len(tried) == 12
    assert [one.budget for one in tried[1:4]] == [256, 128, 1024] and all(
        one.budget % one.chunk == 0 for one in tried
    )


def test_level_zero_is_what_an_answer_shows():
    """Two middle tokens, one of level 0 between them: 1.5 tokens per pass, q + q^2 = .5."""
    q = level_zero(["retrieval", "ngram", "retrieval", "target"], 2)
    assert q is not None and q + q * q == pytest.approx(0.5)
    assert level_zero(["target"], 2) is None
    assert level_zero(["retrieval"], 3) == pytest.approx(0.0, abs=1e-6)
