"""A streaming cache of a model some of whose layers keep a state. Knows nothing of drafting."""

from __future__ import annotations

from collections.abc import Iterator

from core.cache.base import KVShape, SlotCache
from core.cache.layered import Layered
from core.cache.states import LayerStates


class LayeredStreamingKVCache(Layered):
    """See StreamingKVCache, which `full` is for the layers that see every token, by their places among these.
    States went through what was fed.
    """

    rotates_on_read = True

    def __init__(self, shape: KVShape, full: SlotCache) -> None:
        super().__init__(shape, full.backend, full, LayerStates(shape, full.backend))

    def missing(self, length: int) -> Iterator[range]:
        """See StreamingKVCache. What is jumped, states do not see."""
        for piece in self.full.missing(length):
            if piece.start == 0:
                self.side.reset()
            self.side.fed(piece.start)
            yield piece

    def commit(self, length: int) -> None:
        """See KVCache."""
        self.full.commit(length)
        self.side.commit(self.full.length)
