"""Short passes over one cache's memory, recorded once and repeated as a whole where that is faster. Knows
nothing of decoding.

A pass of a few rows is hundreds of small operations, and asking for each can take longer than doing it. What
differs between two such passes (ids, positions, slots) lies in tensors that are filled beforehand; everything
else is the same operations on the same memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from core.backend.base import Replay
from core.backend.shared.transfer import to_device
from core.cache.base import SlotCache
from core.model.llama import LlamaModel

log = logging.getLogger(__name__)

MOST_ROWS = 16  # longer passes are rare and keep the device busy by themselves
_TIMES = 7  # passes of each kind that are timed; the median counts
# tokens behind which a replay is tried: over rows that mean nothing, rounding alone decides
_READ = 96
# of the logits' spread; the same operations give the same numbers, a row too few or too many made 0.1 to 1
_DIFFERENCE = 0.05
# of the eager time that a replay may take at most: a tie is no reason to hold the memory
_GAIN = 0.97


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Median milliseconds of a pass of so many rows, launched operation by operation and replayed."""

    rows: int
    eager_ms: float
    replay_ms: float

    @property
    def gains(self) -> bool:
        """Whether replaying is clearly faster."""
        return self.replay_ms < _GAIN * self.eager_ms


class ReplayedPass:
    """One pass of `n` rows, recorded over the memory of `cache`, of which the next `n` rows are
    overwritten.
    """

    def __init__(self, model: LlamaModel, cache: SlotCache, n: int) -> None:
        self._ids = torch.zeros(n, dtype=torch.long, device=model.backend.device)
        self._rows = cache.fixed(n)
        self._rows.place(*cache.place())
        # None: cannot be recorded
        self.replay: Replay | None = model.backend.capture(lambda: model.forward(self._ids, self._rows))

    def forward(self, ids: Sequence[int] | torch.Tensor, cache: SlotCache) -> torch.Tensor:
        """See LlamaModel.forward. Over any cache with the memory that was recorded."""
        self._ids.copy_(to_device(ids, self._ids.device))
        self._rows.place(*cache.place())
        logits = self.replay().clone()  # the next replay writes where this one did
        cache.advance(len(ids))
        return logits


class GraphedForward:
    """`model`, with passes of certain numbers of rows over one cache's memory replayed; all others are
    computed as ever.

    The memory is that of `cache`, whose length is one in the middle of an answer: what is timed is what will
    happen. Nothing in it is committed, and its rows are overwritten. With `only_faster` a replay is kept
    where it takes less time than the eager pass, else wherever it can be recorded; never where it does not
    say what the same pass says unrecorded. What is `known` from an earlier start decides without a clock:
    which passes are replayed changes rounding, and with it what a seed gives, though never the distribution.
    A device that cannot record, or has no memory for it, replays nothing.
    """

    def __init__(
        self,
        model: LlamaModel,
        cache: SlotCache,
        rows: Iterable[int],
        *,
        only_faster: bool = True,
        known: Iterable[PassTimes] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model, self._clock = model, clock
        self._known = {times.rows: times for times in known}
        self.store = cache.store
        self.times: list[PassTimes] = []
        self._replayed: dict[int, ReplayedPass] = {}
        self._place = min(_READ, cache.length // 2)
        self._read(cache)
        for n in rows:
            if n <= MOST_ROWS and not self._record(n, cache, only_faster):
                break

    @property
    def rows(self) -> tuple[int, ...]:
        """The numbers of rows whose passes are replayed."""
        return tuple(self._replayed)

    def forward(self, ids: Sequence[int] | torch.Tensor, cache: SlotCache) -> torch.Tensor:
        """See LlamaModel."""
        replayed = self._replayed.get(len(ids)) if cache.store is self.store else None
        return (replayed or self._model).forward(ids, cache)

    def _record(self, n: int, cache: SlotCache, only_faster: bool) -> bool:
        """Records a pass of `n` rows, and keeps it if it should be. Returns whether it is worth trying the
        next.
        """
        times = self._known.get(n) if only_faster else None
        if times is None or times.gains:
            replayed = ReplayedPass(self._model, cache, n)
            if replayed.replay is None or not self._agrees(n, cache, replayed):
                return False
            if only_faster:
                times = times or self._time(n, cache, replayed)
            if times is None or times.gains:
                self._replayed[n] = replayed
        if times is not None:
            self.times.append(times)
        return True

    def _read(self, cache: SlotCache) -> None:
        """Fills the first rows by tokens from all over the vocabulary."""
        length = cache.length
        cache.rollback(0)
        if self._place:
            self._model.forward(self._tokens(self._place), cache)
        cache.advance(length - self._place)

    def _tokens(self, n: int) -> list[int]:
        return [(7919 * i + 100) % self._model.config.vocab for i in range(n)]

    def _agrees(self, n: int, cache: SlotCache, replayed: ReplayedPass) -> bool:
        """Whether a replay says what the pass says unrecorded, at another place and with other ids than it
        was recorded with.
        """
        length, ids, rows = cache.length, self._tokens(n), cache.fixed(n)
        cache.rollback(self._place)
        rows.place(*cache.place())
        # the replay first: it must write its own rows
        logits = replayed.forward(ids, cache), self._model.forward(ids, rows)
        cache.rollback(self._place)
        cache.advance(length - self._place)
        known = logits[1][0].isfinite()  # a draft's head may cover a part of the tokens
        got, want = (part[:, known] - part[:, known].mean(-1, keepdim=True) for part in logits)
        share = float((got - want).square().mean().sqrt() / want.square().mean().sqrt())
        if not share < _DIFFERENCE:
            log.warning(
                "a recorded pass of %d rows is off by %.2g of its logits' spread; passes stay as they are",
                n,
                share,
            )
        return share < _DIFFERENCE

    def _time(self, n: int, cache: SlotCache, replayed: ReplayedPass) -> PassTimes:
        """Both ways in turns, so that a clock rate that changes touches both."""
        eager, replays = [], []
        for _ in range(_TIMES):
            eager.append(self._milliseconds(self._model, n, cache))
            replays.append(self._milliseconds(replayed, n, cache))
        times = PassTimes(n, median(eager), median(replays))
        log.info(
            "a pass of %d rows: %.2f ms launched by operation, %.2f ms replayed",
            n,
            times.eager_ms,
            times.replay_ms,
        )
        return times

    def _milliseconds(self, one: LlamaModel | ReplayedPass, n: int, cache: SlotCache) -> float:
        length = cache.length
        self._wait()
        started = self._clock()
        one.forward([0] * n, cache)
        self._wait()
        passed = 1e3 * (self._clock() - started)
        cache.rollback(length)
        return passed

    def _wait(self) -> None:
        """Reading a number waits for all that was asked for before it."""
        torch.zeros(1, device=self._model.backend.device).item()
