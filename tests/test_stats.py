"""The figures in the panel: counted as documented, from rounds that took known times."""

from __future__ import annotations

import pytest

from core.events import Acceptance
from core.stats import StatsRecorder


def recorder() -> StatsRecorder:
    return StatsRecorder(
        mode="triforce", model="tiny", context_total=1_000, prompt_tokens=100, reused_tokens=40
    )


def test_nothing_yet_is_zero_not_an_error():
    """The panel asks before the first token."""
    stats = recorder().stats()
    assert (
        stats.new_tokens,
        stats.tbt_mean_ms,
        stats.tokens_per_s,
        stats.tokens_per_round,
        stats.context_used,
    ) == (0, 0, 0, 0, 100)
    assert stats.acceptance_draft.rate is None


def test_one_answer_of_three_rounds():
    """TBT of a token is its round's time over its tokens; the first round belongs to TTFT."""
    counted = recorder()
    counted.prefilled(2.0)
    counted.round(1, 0.5, Acceptance(), Acceptance())
    counted.round(4, 0.4, Acceptance(2, 3), Acceptance(3, 3), bytes_moved=10)
    counted.round(1, 0.3, Acceptance(0, 1), Acceptance(0, 1), bytes_moved=5)
    stats = counted.stats(peak_memory_bytes=7)
    assert stats.ttft_s == 2.5 and stats.prefill_s == 2.0
    assert stats.new_tokens == 6 and stats.rounds == 3 and stats.tokens_per_round == 2.0
    assert stats.tbt_mean_ms == pytest.approx(1e3 * 0.7 / 5)
    assert stats.tbt_p50_ms == pytest.approx(100.0) and stats.tbt_p95_ms == pytest.approx(260.0)
    assert stats.tbt_last_ms == pytest.approx(300.0) and stats.longest_wait_ms == pytest.approx(400.0)
    assert stats.tokens_per_s == pytest.approx(5 / 0.7)
    assert (stats.acceptance_draft.accepted, stats.acceptance_draft.evaluated) == (2, 4)
    assert stats.acceptance_retrieval.rate == 0.75
    assert stats.bytes_moved == 15 and stats.context_used == 106 and stats.peak_memory_bytes == 7
    assert stats.tbt_series_ms == (500.0, 100.0, 300.0) and stats.acceptance_series == (0.0, 1.0, 0.0)


def test_the_series_keeps_the_newest_rounds():
    """A long answer must not make every update longer."""
    counted = recorder()
    for index in range(400):
        counted.round(1, index / 1e3, Acceptance(), Acceptance(1, 1))
    assert len(counted.stats().tbt_series_ms) == 300 and counted.stats().tbt_series_ms[-1] == 399.0
