"""Notices when something else slows the machine, and has what it slowed done again. Ratios of runs need one
speed for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

DISTURBED = 1.15  # times the least time of the fixed work, around a run
TRIES = 3  # of a run, at most
_REPEATS = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GuardedRun(Generic[T]):
    """What a run gave, and the time that the fixed work took around it over the least one: 1 where nothing
    disturbed it.
    """

    result: T
    slowdown: float


class FixedWork:
    """Reads memory and multiplies matrices on all threads, for about a tenth of a second."""

    def __init__(self) -> None:
        self._data, self._square = torch.ones(16 * 2**20), torch.ones(768, 768)

    def __call__(self) -> None:
        """Once."""
        for _ in range(_REPEATS):
            self._data.sum()
            self._square @ self._square


def calmest(
    runs: Sequence[Callable[[], T]],
    *,
    work: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    tries: int = TRIES,
) -> list[GuardedRun[T]]:
    """Does all runs in their order, then again those around which `work` took DISTURBED times its least time
    or more; the calmest of each.

    A neighbour on the same processor comes and goes within seconds to minutes; what it does within a run
    unseen at both ends stays.
    """
    work = work or FixedWork()
    work()  # warm
    found = [_run(run, work, clock) for run in runs]
    for _ in range(tries - 1):
        least = min(pace for pace, _ in found)
        disturbed = [index for index, (pace, _) in enumerate(found) if pace >= DISTURBED * least]
        for index in disturbed:
            found[index] = min(found[index], _run(runs[index], work, clock), key=lambda one: one[0])
        if not disturbed:
            break
    least = min(pace for pace, _ in found)
    return [GuardedRun(result, pace / least) for pace, result in found]


def _run(run: Callable[[], T], work: Callable[[], None], clock: Callable[[], float]) -> tuple[float, T]:
    before = _seconds(work, clock)
    result = run()
    return max(before, _seconds(work, clock)), result


def _seconds(work: Callable[[], None], clock: Callable[[], float]) -> float:
    started = clock()
    work()
    return clock() - started
