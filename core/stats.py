"""Counts and times of one answer, round by round, into the Stats everyone shows. No torch, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import zip_longest
from statistics import quantiles
from typing import TypeVar

from core.events import Acceptance, DecodingStarted, Delta, Event, ReadingStep, RoundStats, Stats

_SERIES = 300
_Value = TypeVar("_Value")


class StatsRecorder:
    """Adds up the rounds of one answer. TBT of a token is its round's time over the tokens it emitted; the
    first round's is in TTFT instead.
    """

    def __init__(self, started: DecodingStarted) -> None:
        self.started = started
        self._first_s = self._longest_s = self._decode_s = 0.0
        self._token_s: list[float] = []
        self._new = self._rounds = self._bytes = self._peak = self._last_tokens = self._plain = 0
        self._plain_s = 0.0
        self._last_s = 0.0
        self._draft = self._retrieval = Acceptance()
        self._tbt_series: list[float] = []
        self._acceptance_series: list[float | None] = []
        self._sizes: Counter[int] = Counter()

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return self._rounds

    @property
    def decode_s(self) -> float:
        """Seconds they took, the first included."""
        return self._first_s + self._decode_s

    @property
    def bytes_moved(self) -> int:
        """Bytes of keys and values they moved from host memory to the device."""
        return self._bytes

    def prefilled(self, seconds: float) -> None:
        """The prompt took so long."""
        self.started = replace(self.started, prefill_s=seconds)

    def round(self, one: RoundStats) -> None:
        """Adds a round."""
        seconds, tokens, retrieval = one.seconds, one.tokens, one.acceptance_retrieval
        self._new += tokens
        self._rounds += 1
        self._draft += one.acceptance_draft
        self._retrieval += retrieval
        self._bytes += one.bytes_moved
        self._peak = max(self._peak, one.peak_memory_bytes)
        if self._rounds == 1:
            self._first_s = seconds
        else:
            self._longest_s = max(self._longest_s, seconds)
            self._decode_s += seconds
            self._token_s.extend([seconds / tokens] * tokens)
            self._tbt_series.append(round(1e3 * seconds / tokens, 2))
            self._acceptance_series.append(None if retrieval.rate is None else round(retrieval.rate, 4))
            if not one.acceptance_draft.evaluated and not retrieval.evaluated:
                self._plain += 1
                self._plain_s += seconds
        self._last_s, self._last_tokens = seconds, tokens
        self._sizes[tokens] += 1

    def stats(self) -> Stats:
        """Everything so far."""
        timed = len(self._token_s)
        return Stats(
            **asdict(self.started),
            new_tokens=self._new,
            ttft_s=self.started.prefill_s + self._first_s,
            tbt_last_ms=1e3 * self._last_s / self._last_tokens if self._last_tokens else 0.0,
            tbt_mean_ms=1e3 * self._decode_s / timed if timed else 0.0,
            tbt_p50_ms=1e3 * _quantile(self._token_s, 0.50),
            tbt_p95_ms=1e3 * _quantile(self._token_s, 0.95),
            longest_wait_ms=1e3 * self._longest_s,
            tokens_per_s=timed / self._decode_s if self._decode_s else 0.0,
            acceptance_draft=self._draft,
            acceptance_retrieval=self._retrieval,
            tokens_per_round=self._new / self._rounds if self._rounds else 0.0,
            rounds=self._rounds,
            plain_rounds=self._plain,
            plain_tbt_ms=1e3 * self._plain_s / self._plain if self._plain else 0.0,
            context_used=self.started.prompt_tokens + self._new,
            peak_memory_bytes=self._peak,
            bytes_moved=self._bytes,
            tbt_series_ms=thinned_times(self._tbt_series),
            acceptance_series=thinned(self._acceptance_series),
            round_sizes=tuple(self._sizes[size] for size in range(1, max(self._sizes, default=0) + 1)),
        )


class AnswerStats:
    """The record of whoever shows an answer: figures from its events, of all its stretches together."""

    def __init__(self) -> None:
        self._done: list[Stats] = []  # of the stretches before the one that is being written
        self._recorder: StatsRecorder | None = None

    def take(self, event: Event) -> None:
        """Notes what an event says of the figures; most say nothing."""
        if isinstance(event, (ReadingStep, DecodingStarted)):
            self._end_stretch()
        if isinstance(event, DecodingStarted):
            self._recorder = StatsRecorder(event)
        elif isinstance(event, Delta) and self._recorder is not None:
            for one in event.rounds:
                self._recorder.round(one)

    def stats(self) -> Stats | None:
        """Everything so far; None before the first round."""
        running = self._recorder is not None and self._recorder.rounds
        stretches = [*self._done, self._recorder.stats()] if running else self._done
        return combined_stats(stretches) if stretches else None

    def _end_stretch(self) -> None:
        if self._recorder is not None and self._recorder.rounds:
            self._done.append(self._recorder.stats())
        self._recorder = None


def thinned(values: Sequence[float | None], most: int = _SERIES) -> tuple[float | None, ...]:
    """A series of at most `most` values: means of equally many neighbours, of those that are known."""
    if len(values) <= most:
        return tuple(values)
    known = ([value for value in run if value is not None] for run in _runs(values, most))
    return tuple(round(sum(run) / len(run), 4) if run else None for run in known)


def thinned_times(values: Sequence[float], most: int = _SERIES) -> tuple[float, ...]:
    """Likewise, but the lowest and the highest of all stand for their neighbours: so they stay what they are
    while the series grows.
    """
    if len(values) <= most:
        return tuple(values)
    ends = sorted({values.index(min(values)), values.index(max(values))})
    found, start = [], 0
    for run in _runs(values, most - 1):
        kept = [values[at] for at in ends if start <= at < start + len(run)]
        found.extend(kept or [round(sum(run) / len(run), 4)])
        start += len(run)
    return tuple(found)


def _runs(values: Sequence[_Value], most: int) -> list[Sequence[_Value]]:
    wide = -(-len(values) // most)
    return [values[at : at + wide] for at in range(0, len(values), wide)]


def combined_stats(parts: Sequence[Stats]) -> Stats:
    """Figures of a text written in several answers: sums, and means and percentiles weighted by tokens."""
    parts = [part for part in parts if part.new_tokens or part.prompt_tokens] or list(parts[:1])
    if len(parts) < 2:
        return parts[0] if parts else Stats()
    tokens = sum(part.new_tokens for part in parts) or 1

    def weighted(name: str) -> float:
        return sum(getattr(part, name) * part.new_tokens for part in parts) / tokens

    def added(name: str) -> int | float:
        return sum(getattr(part, name) for part in parts)

    mean_ms, rounds, plain = weighted("tbt_mean_ms"), added("rounds"), added("plain_rounds")
    plain_ms = sum(part.plain_tbt_ms * part.plain_rounds for part in parts)
    return replace(
        parts[-1],
        prompt_tokens=added("prompt_tokens"),
        reused_tokens=added("reused_tokens"),
        new_tokens=added("new_tokens"),
        prefill_s=added("prefill_s"),
        ttft_s=parts[0].ttft_s,
        tbt_mean_ms=mean_ms,
        tbt_p50_ms=weighted("tbt_p50_ms"),
        tbt_p95_ms=weighted("tbt_p95_ms"),
        longest_wait_ms=max(part.longest_wait_ms for part in parts),
        tokens_per_s=1e3 / mean_ms if mean_ms else 0.0,
        rounds=rounds,
        plain_rounds=plain,
        plain_tbt_ms=plain_ms / plain if plain else 0.0,
        tokens_per_round=tokens / rounds if rounds else 0.0,
        acceptance_draft=sum((part.acceptance_draft for part in parts), Acceptance()),
        acceptance_retrieval=sum((part.acceptance_retrieval for part in parts), Acceptance()),
        bytes_moved=added("bytes_moved"),
        peak_memory_bytes=max(part.peak_memory_bytes for part in parts),
        tbt_series_ms=thinned_times([value for part in parts for value in part.tbt_series_ms]),
        acceptance_series=thinned([value for part in parts for value in part.acceptance_series]),
        round_sizes=tuple(map(sum, zip_longest(*(part.round_sizes for part in parts), fillvalue=0))),
    )


def _quantile(values: Sequence[float], share: float) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[round(100 * share) - 1]
