"""The figures in the panel: counted as documented, from rounds that took known times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.events import Acceptance, DecodingStarted, Delta, Piece, ReadingStep, RoundStats, Stats
from core.stats import AnswerStats, StatsRecorder, combined_stats, thinned


def recorder() -> StatsRecorder:
    return StatsRecorder(DecodingStarted("triforce", "tiny", 1_000, 100, 40))


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
    counted.round(RoundStats(1, 0.5))
    counted.round(RoundStats(4, 0.4, Acceptance(2, 3), Acceptance(3, 3), bytes_moved=10))
    counted.round(RoundStats(1, 0.3, Acceptance(0, 1), Acceptance(0, 1), bytes_moved=5, peak_memory_bytes=7))
    stats = counted.stats()
    assert stats.ttft_s == 2.5 and stats.prefill_s == 2.0
    assert stats.new_tokens == 6 and stats.rounds == 3 and stats.tokens_per_round == 2.0
    assert stats.tbt_mean_ms == pytest.approx(1e3 * 0.7 / 5)
    assert stats.tbt_p50_ms == pytest.approx(100.0) and stats.tbt_p95_ms == pytest.approx(260.0)
    assert stats.tbt_last_ms == pytest.approx(300.0) and stats.longest_wait_ms == pytest.approx(400.0)
    assert stats.tokens_per_s == pytest.approx(5 / 0.7)
    assert (stats.acceptance_draft.accepted, stats.acceptance_draft.evaluated) == (2, 4)
    assert stats.acceptance_retrieval.rate == 0.75
    assert stats.bytes_moved == 15 and stats.context_used == 106 and stats.peak_memory_bytes == 7
    assert stats.tbt_series_ms == (100.0, 300.0) and stats.acceptance_series == (1.0, 0.0)


def test_the_series_covers_the_whole_answer_at_its_length():
    """A long answer must not make every update longer."""
    counted = recorder()
    for index in range(400):
        counted.round(RoundStats(1, index / 1e3, Acceptance(), Acceptance(1, 1)))
    series = counted.stats().tbt_series_ms
    assert len(series) == 200 and series[0] == 1.0 and series[1] == 3.5 and series[-1] == 399.0
    assert thinned([1.0, 3.0, 8.0], most=2) == (2.0, 8.0) and thinned([], most=2) == ()


def test_the_highest_stays_the_highest_as_the_answer_grows():
    """The panel said "highest 329 ms" and, later in the same answer, 196: a mean with its neighbours."""
    counted = recorder()
    for index in range(1, 2_000):
        counted.round(RoundStats(1, 0.329 if index == 50 else 0.002 if index == 70 else 0.02))
    series = counted.stats().tbt_series_ms
    assert len(series) <= 300 and (max(series), min(series)) == (329.0, 2.0)
    assert set(series) - {329.0, 2.0} == {20.0}, "and between them the line stays a line"
    several = combined_stats([replace(counted.stats(), new_tokens=1)] * 3).tbt_series_ms
    assert len(several) <= 300 and (max(several), min(several)) == (329.0, 2.0)


def test_a_round_for_which_nothing_was_proposed_has_no_acceptance():
    """Most rounds of an answer from a short text: they drew the line to 0 % beside a bar of 100 %."""
    counted = recorder()
    for index in range(1, 602):
        proposed = index % 10 == 0
        counted.round(RoundStats(1, 0.1, Acceptance(), Acceptance(2 * proposed, 2 * proposed)))
    series = counted.stats().acceptance_series
    assert set(series) == {None, 1.0}
    assert thinned([None, 0.5, None, None], most=2) == (0.5, None)


def test_rounds_are_counted_by_the_tokens_they_brought():
    counted = recorder()
    for tokens in (1, 3, 3, 1, 1):
        counted.round(RoundStats(tokens, 0.1))
    assert counted.stats().round_sizes == (3, 0, 2)
    assert recorder().stats().round_sizes == ()


def test_several_stretches_are_one_answer_in_every_figure():
    """The panel showed the last stretch of a summary alone."""
    one, other = recorder(), recorder()
    one.round(RoundStats(2, 0.5, Acceptance(1, 2), Acceptance(1, 1)))
    other.round(RoundStats(1, 0.1, Acceptance(0, 1), Acceptance(0, 1)))
    other.round(RoundStats(3, 0.3, Acceptance(1, 1), Acceptance(3, 3)))
    whole = combined_stats([one.stats(), Stats(model="known before"), other.stats()])
    assert (whole.new_tokens, whole.rounds, whole.round_sizes) == (6, 3, (1, 1, 1))
    assert whole.tbt_series_ms == (100.0,) and whole.acceptance_series == (1.0,)
    assert whole.acceptance_draft == Acceptance(2, 4)
    assert combined_stats([other.stats(), Stats(model="known before")]) == other.stats()


def test_rounds_without_proposals_time_plain_decoding():
    """The first round is no measure: it waits for the prompt's end."""
    made = recorder()
    for seconds, proposed in ((9.0, 0), (0.02, 0), (0.05, 3), (0.04, 0)):
        made.round(RoundStats(1, seconds, Acceptance(), Acceptance(0, proposed)))
    stats = made.stats()
    assert (stats.plain_rounds, stats.plain_tbt_ms) == (2, pytest.approx(30.0))
    both = combined_stats([replace(stats, new_tokens=4), replace(stats, plain_rounds=1, plain_tbt_ms=60.0)])
    assert (both.plain_rounds, both.plain_tbt_ms) == (3, pytest.approx(40.0))


def test_who_shows_an_answer_counts_what_the_engine_counted():
    """The panel counts, the end brings the engine's totals: they must not differ."""
    engine, shown = recorder(), AnswerStats()
    assert shown.stats() is None
    engine.prefilled(2.0)
    shown.take(engine.started)
    rounds = [
        RoundStats(1 + at % 4, 0.1 + at / 100, Acceptance(1, 2), Acceptance(at % 3, 3)) for at in range(9)
    ]
    for one in rounds:
        engine.round(one)
    for start, end in ((0, 1), (1, 4), (4, 9)):  # a round whose text waits comes with the next
        shown.take(Delta((Piece("x", "draft"),), tuple(rounds[start:end])))
    assert shown.stats() == engine.stats()


def test_stretches_of_one_answer_are_added_up_by_who_shows_it():
    """The panel showed the last stretch of a summary alone."""
    shown, one, other = AnswerStats(), recorder(), recorder()
    one.round(RoundStats(2, 0.5, Acceptance(1, 2), Acceptance(1, 1)))
    other.round(RoundStats(3, 0.1, Acceptance(0, 1), Acceptance(2, 3)))
    for counted, rounds in ((one, RoundStats(2, 0.5, Acceptance(1, 2), Acceptance(1, 1))), (other, None)):
        shown.take(ReadingStep(1, 2, "One", "part summary"))
        shown.take(counted.started)
        shown.take(Delta((Piece("there at once", ""),)))
        shown.take(Delta((), (rounds or RoundStats(3, 0.1, Acceptance(0, 1), Acceptance(2, 3)),)))
    assert shown.stats() == combined_stats([one.stats(), other.stats()])
