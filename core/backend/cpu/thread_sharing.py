"""How many threads to compute with while other programs use the processor too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil
import torch

LOOK_EVERY_S = 0.5  # the system counts in steps of 10 to 16 ms
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


class SharedCores:
    """All of `threads` while their cores are free, and fewer, but one, while other programs use some.

    An operation gives each thread an equal part and waits for the last one. A thread that shares its core is
    late, and the others spin meanwhile: beside one busy program on two cores a token took ten times as long,
    where a single thread takes half as long again. Which threads compute what does not change what is
    computed.
    """

    def __init__(
        self,
        threads: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], tuple[float, int]] | None = None,
        own: Callable[[], float] | None = None,
        use: Callable[[int], None] = torch.set_num_threads,
    ) -> None:
        self.threads = threads
        self._clock, self._use = clock, use
        self._busy, self._own = busy or core_seconds, own or own_seconds
        # when it looked last, and what others had used by then
        self._seen: tuple[float, float] | None = None

    def look(self) -> None:
        """To be called often, by the thread that computes; does something every LOOK_EVERY_S."""
        now = self._clock()
        if self.threads == 1 or self._seen is not None and now < self._seen[0] + LOOK_EVERY_S:
            return
        busy, cores = self._busy()
        others = busy - self._own()
        if self._seen is not None and now < self._seen[0] + 10 * LOOK_EVERY_S:
            taken = (others - self._seen[1]) / (now - self._seen[0])
            self._use(min(self.threads, max(1, round(cores - taken))))
        self._seen = now, others


def core_seconds() -> tuple[float, int]:
    """Seconds that the cores open to this process have been busy, with whatever, and how many cores that
    is.
    """
    times = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        times = [times[core] for core in os.sched_getaffinity(0) if core < len(times)] or times
    return sum(getattr(core, kind, 0.0) for core in times for kind in _BUSY), len(times)


def own_seconds() -> float:
    """Seconds that this process has used."""
    used = psutil.Process().cpu_times()
    return used.user + used.system
