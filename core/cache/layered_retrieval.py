"""A retrieval cache of a model whose layers are not all alike. Knows nothing of drafting."""

from __future__ import annotations

from typing import Any

from core.cache.base import TargetKVCache
from core.cache.layered import Layered, LayeredKVCache, side_of
from core.cache.retrieval import RetrievalKVCache


def retrieval_over(
    source: TargetKVCache, *, slack: int = 64, **how: Any
) -> RetrievalKVCache | LayeredRetrievalKVCache:
    """A retrieval cache of `source`, whatever its layers are; see RetrievalKVCache."""
    if not isinstance(source, LayeredKVCache):
        return RetrievalKVCache(source, slack=slack, **how)
    return LayeredRetrievalKVCache(source, RetrievalKVCache(source.full, slack=slack, **how), slack=slack)


class LayeredRetrievalKVCache(Layered):
    """See RetrievalKVCache. Sparse where layers see every token; windows and states are those of the source,
    and behind them rows of its own. `slack`: the most of these.
    """

    def __init__(self, source: LayeredKVCache, full: RetrievalKVCache, *, slack: int) -> None:
        side = side_of(source.of_model, source.backend, room=slack)
        super().__init__(source.of_model, source.backend, full, side)
        self.source, self.policy, self.store, self.recent = source, full.policy, full.store, full.recent
        self._held = 0  # tokens up to which the side is the source's

    @property
    def needs_refresh(self) -> bool:
        """See RetrievalKVCache."""
        return self.full.needs_refresh

    def refresh(self) -> bool:
        """See RetrievalKVCache."""
        found = self.full.refresh()
        if found:
            self._follow(self.length)
        return found

    def commit(self, length: int) -> None:
        """See KVCache. Exact rows replace the speculative ones."""
        self.full.commit(length)
        self._follow(length)

    def rollback(self, length: int) -> None:
        """See KVCache."""
        super().rollback(length)
        self._held = min(self._held, length)

    def reset(self) -> None:
        """See KVCache."""
        super().reset()
        self._held = 0

    def _follow(self, length: int) -> None:
        self.side.follow(self.source.side, self._held, length)
        self._held = length
