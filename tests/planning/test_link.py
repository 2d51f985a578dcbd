"""A bus far slower than planned is noticed, one a little slower is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.events import DecodingStarted, RoundStats
from core.planning.plan import Plan
from core.planning.slow_link import slow_note
from core.stats import StatsRecorder
from tests.support.tiny import PLAN

# 10 GB and 10 middle passes: 0.6 s
FAST = replace(PLAN, pcie_gb_per_s=25.0, expected_middle_ms=20.0, gamma=9)


def rounds(seconds: float, moved: int) -> StatsRecorder:
    """Three of them."""
    recorder = StatsRecorder(DecodingStarted("triforce", "x", 9, 5, 0))
    for _ in range(3):
        recorder.round(RoundStats(1, seconds, bytes_moved=moved))
    return recorder


@pytest.mark.parametrize(("free", "said"), [(10**9, "system memory"), (None, "lanes")])
def test_far_slower_than_planned_is_explained(free: int | None, said: str):
    """Spilled memory does not fail, it crawls; nobody would know why."""
    note = slow_note(replace(FAST, keep_free_bytes=free), rounds(6.0, 10 * 10**9))
    assert said in note and "10 times" in note


@pytest.mark.parametrize(
    ("plan", "seconds", "moved"),
    [(FAST, 1.5, 10 * 10**9), (FAST, 9.0, 10**8), (replace(FAST, pcie_gb_per_s=None), 60.0, 10 * 10**9)],
    ids=["somewhat slower", "too little to tell", "nothing crosses a bus"],
)
def test_otherwise_nothing_is_said(plan: Plan, seconds: float, moved: int):
    """A note that comes for nothing is soon not read."""
    assert slow_note(plan, rounds(seconds, moved)) is None
