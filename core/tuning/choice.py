"""From what was measured to the lengths of speculation with the least time between tokens. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.config import Settings
from core.planning import costs
from core.planning.plan import Plan
from core.planning.tuned import Times, interpolated_ms

BUDGET_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the plan's budget
CHUNKS = (4, 8, 16)
LEAST_BUDGET = 64


@dataclass(frozen=True, slots=True, order=True)
class Selection:
    """What the retrieval cache holds."""

    budget: int
    chunk: int


@dataclass(frozen=True, slots=True)
class MeasuredPasses:
    """Passes in milliseconds by rows, those of the middle level by budget; acceptance p by selection and q of
    level 0.
    """

    verify_ms: Times
    middle_ms: Mapping[int, Times]
    draft_ms: float
    acceptance: Mapping[Selection, float]
    draft_acceptance: float


@dataclass(frozen=True, slots=True)
class TunedChoice:
    """A selection with its best draft lengths."""

    selection: Selection
    lengths: costs.Speculation


def candidates(plan: Plan, settings: Settings) -> list[Selection]:
    """What is worth trying, the plan's own first, then its chunk with other budgets; what the user set stays
    as it is.
    """
    chunks = (
        [settings.retrieval_chunk] if settings.retrieval_chunk else sorted({plan.retrieval_chunk, *CHUNKS})
    )
    budgets = (
        [settings.retrieval_budget]
        if settings.retrieval_budget
        else [
            budget
            for step in BUDGET_STEPS
            if LEAST_BUDGET <= (budget := int(plan.retrieval_budget * step)) <= plan.context_tokens // 2
        ]
    )
    own = Selection(plan.retrieval_budget, plan.retrieval_chunk)
    found = {
        own,
        *(Selection(max(2, budget // chunk) * chunk, chunk) for budget in budgets for chunk in chunks),
    }
    return sorted(
        found, key=lambda one: (one != own, one.chunk != own.chunk, abs(one.budget - own.budget), one)
    )


def choose_tuning(measured: MeasuredPasses, settings: Settings) -> TunedChoice:
    """The selection and lengths with which a token should take least. A length of the user's stays."""
    options = [
        TunedChoice(selection, _lengths(measured, selection, settings))
        for selection in sorted(measured.acceptance)
    ]
    return min(options, key=lambda one: one.lengths.tbt_s)


def _lengths(measured: MeasuredPasses, selection: Selection, settings: Settings) -> costs.Speculation:
    middle = measured.middle_ms[selection.budget]
    return costs.best_speculation(
        _seconds(measured.verify_ms, settings.gamma or costs.MAX_GAMMA),
        _seconds(middle, settings.middle_gamma or costs.MAX_MIDDLE_GAMMA),
        draft_s=measured.draft_ms / 1e3,
        p=measured.acceptance[selection],
        q=measured.draft_acceptance,
        gamma=settings.gamma,
        middle_gamma=settings.middle_gamma,
    )


def _seconds(times: Times, longest: int) -> list[float]:
    """For passes of 1 row to one more than the longest draft."""
    return [interpolated_ms(times, rows) / 1e3 for rows in range(1, longest + 2)]


def level_zero(levels: Sequence[str], middle_gamma: int) -> float | None:
    """q: the acceptance of level 0 that explains how many of its tokens stand for one of the middle level's
    own in an answer.

    Passes before which level 0 found nothing count as rejections, as in core.planning.costs. None when the
    answer has no drafted token.
    """
    own = levels.count("retrieval")
    if not own:
        return None
    per_pass = 1 + sum(level not in ("retrieval", "target") for level in levels) / own
    low, high = 0.0, 1.0
    for _ in range(30):  # E(q, m) grows with q
        q = (low + high) / 2
        low, high = (q, high) if costs.expected_tokens(q, middle_gamma) < per_pass else (low, q)
    return (low + high) / 2
