"""How long passes take behind what a cache holds, by their rows, within a limit of time. Leaves caches as
they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from core.cache.base import KVCache, TargetKVCache
from core.cache.layered import LayeredKVCache
from core.model.llama import LlamaModel
from core.planning.tuned import Times

VERIFY_ROWS = (1, 2, 4, 8, 16, 33)
MIDDLE_ROWS = (1, 2, 4, 5, 9)
REPEATS = 3
PASSES_SHARE = 0.8  # of the limit; from there on everything is timed once


class TimeLimit:
    """So many seconds by this clock, from now on."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self.seconds, self.clock, self._began = seconds, clock, clock()

    def used(self) -> float:
        """The share that is over."""
        return (self.clock() - self._began) / self.seconds


def verify_times(model: LlamaModel, cache: TargetKVCache, context_tokens: int, limit: TimeLimit) -> Times:
    """Passes over a full context: what was not read is copies of what was, which take as long."""
    held, wanted = cache.length, context_tokens - max(VERIFY_ROWS)
    cache.remember()
    while cache.length < wanted:
        rows = min(held, wanted - cache.length)
        for layer in range(cache.shape.layers):
            cache.write(layer, cache.length, *cache.rows(layer, 0, rows))
        cache.advance(rows)
        cache.commit(cache.length)
    if isinstance(cache, LayeredKVCache):
        cache.pretend()
    times = pass_times(model, cache, [0] * max(VERIFY_ROWS), rows=VERIFY_ROWS, limit=limit)
    cache.rollback(held)
    return times


def pass_times(
    model: LlamaModel, cache: KVCache, ids: Sequence[int], *, rows: Sequence[int], limit: TimeLimit
) -> Times:
    """Medians in milliseconds of passes over the first ids; the first of each is for warming up. One repeat
    when time runs out.
    """
    found = []
    for n in rows:
        length, taken = cache.length, []
        while len(taken) <= REPEATS and (len(taken) < 2 or limit.used() < PASSES_SHARE):
            started = limit.clock()
            model.forward(ids[:n], cache)[-1, 0].item()  # reading a number waits for the device
            taken.append(1e3 * (limit.clock() - started))
            cache.rollback(length)
        found.append((n, round(median(taken[1:]), 3)))
    return tuple(found)


def draft_ms(draft_pass: Callable[[], None], limit: TimeLimit) -> float:
    """Milliseconds of one pass of the draft model."""
    taken = []
    for _repeat in range(REPEATS + 1):
        started = limit.clock()
        draft_pass()
        taken.append(1e3 * (limit.clock() - started))
    return round(median(taken[1:]), 3)
