"""A text's whole blocks go to disk while it is read, so that a crash costs little of a long reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.cache.disk import BLOCK_TOKENS
from core.cache.snapshot import SnapshotSource, SnapshotStore

_SHARE = 0.03  # of the time that reading takes; what it leaves out is stored in idle time


class ReadingStore:
    """Stores in `store` what is read of one text from token `read` on, in the thread that reads: nothing else
    changes or frees the cache meanwhile. `clock` in seconds.

    The first block is written at once, a later one when as long a one as the last still keeps to the share.
    """

    def __init__(self, store: SnapshotStore, book_id: str, *, read: int, clock: Callable[[], float]) -> None:
        self._store, self._book_id, self._clock = store, book_id, clock
        self._blocks = read // BLOCK_TOKENS
        self._started, self._spent, self._last = clock(), 0.0, 0.0

    def follow(
        self, ids: Sequence[int], source: SnapshotSource, *, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Stores whole blocks of `ids`, whose rows `source` holds, as far as there is time for them."""
        while (self._blocks + 1) * BLOCK_TOKENS <= len(ids):
            began = self._clock()
            reading = began - self._started - self._spent
            if self._spent + self._last > _SHARE * reading:
                return
            whole = ids[: (self._blocks + 1) * BLOCK_TOKENS]
            if not self._store.save(self._book_id, whole, source, whole=False, should_stop=should_stop):
                return
            self._blocks += 1
            self._last = self._clock() - began
            self._spent += self._last
