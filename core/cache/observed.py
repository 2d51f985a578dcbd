"""Who is shown the keys that an attention reads, and the sums that it leaves for him on the way."""

from __future__ import annotations

import torch

from core.backend.base import ScoreRequest
from core.cache.base import TargetKVCache


def wanted_sums(cache: TargetKVCache) -> ScoreRequest | None:
    """What a pass over `cache` should leave on the way."""
    wanted = cache.observer is not None and cache.observed_chunk
    return ScoreRequest(cache.observed_chunk) if wanted else None


class ObservedAttention:
    """One attention over a layer's keys, or some of them, and who is shown them: `sums` is handed to
    attention, unless it `left` them before, and `show` called behind it.
    """

    def __init__(
        self, cache: TargetKVCache, layer: int, q: torch.Tensor, left: ScoreRequest | None = None
    ) -> None:
        self._observer, self._layer, self._q = cache.observer, layer, q
        self.sums = left or wanted_sums(cache)

    def show(self, k: torch.Tensor, *, start: int, length: int, own: int) -> None:
        """See KeyHook."""
        if self._observer is None:
            return
        left = {} if self.sums is None or self.sums.found is None else {"sums": self.sums.found}
        self._observer(self._layer, self._q, k, start=start, length=length, own=own, **left)
