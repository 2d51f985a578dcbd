"""Caches of a model whose layers are not all alike: those that see every token in one cache, those with a
window beside it. Knows nothing of drafting.

Inside, a layer that sees every token goes by its place among these, so a full, an offloaded and a retrieval
cache are what they are for a model of such layers alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch

from core.backend.base import Backend, ScoreRequest
from core.cache.base import InPlaceRows, KeyHook, KVShape, KVStore, TargetKVCache, Witness
from core.cache.retrieval import RetrievalKVCache
from core.cache.windows import WindowRows


def with_windows(shape: KVShape, full: TargetKVCache) -> TargetKVCache:
    """A cache for a model of `shape`, of which `full` holds the layers that see every token."""
    if not shape.windowed:
        return full
    windows = WindowRows(shape, full.backend, room=full.capacity - shape.window, dtype=full.dtype)
    return LayeredKVCache(shape, full, windows)


def retrieval_over(
    source: TargetKVCache, *, slack: int = 64, **how: Any
) -> RetrievalKVCache | LayeredRetrievalKVCache:
    """A retrieval cache of `source`, whatever its layers are; see RetrievalKVCache."""
    if not isinstance(source, LayeredKVCache):
        return RetrievalKVCache(source, slack=slack, **how)
    return LayeredRetrievalKVCache(source, RetrievalKVCache(source.full, slack=slack, **how), slack=slack)


class _Layered:
    """What both of them do. `full` counts the rows."""

    rotates_on_read = False

    def __init__(
        self, shape: KVShape, backend: Backend, full: TargetKVCache | RetrievalKVCache, windows: WindowRows
    ) -> None:
        self.shape, self.backend, self.full, self.windows = shape, backend, full, windows
        self._seeing_all = shape.seeing_all
        self._place = {layer: place for place, layer in enumerate(self._seeing_all)}
        self._window_place = {layer: place for place, layer in enumerate(shape.windowed)}
        self._first = min(shape.windowed)

    @property
    def length(self) -> int:
        """See KVCache."""
        return self.full.length

    @property
    def committed(self) -> int:
        """See KVCache."""
        return self.full.committed

    @property
    def ready(self) -> bool:
        """See KVCache."""
        return self.full.ready

    @property
    def oldest_rollback(self) -> int:
        """See KVCache."""
        return max(self.full.oldest_rollback, self.windows.oldest)

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        return self.full.positions(n)

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        if layer in self._place:
            return self.full.attend(self._place[layer], q, k, v, offset=offset)
        start = self.length + offset
        if layer == self._first:
            self.windows.make_room(min(self.committed, start), start + k.shape[0])
        return self.windows.attend(self._window_place[layer], q, k, v, start=start)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache. The rows are not all in one store."""
        return None

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. There is no such pass."""

    def advance(self, n: int) -> None:
        """See KVCache."""
        self.full.advance(n)

    def missing(self, length: int) -> Iterator[range]:
        """See KVCache."""
        return self.full.missing(length)

    def rollback(self, length: int) -> None:
        """See KVCache."""
        if length < self.windows.oldest:
            raise ValueError(f"windows reach back to token {self.windows.oldest}, not to {length}")
        self.full.rollback(length)

    def reset(self) -> None:
        """See KVCache."""
        self.full.reset()
        self.windows.reset()


class LayeredKVCache(_Layered):
    """See TargetKVCache. Whoever watches is shown the layers that see every token: an observer, which scores
    for a retrieval cache, by their places among these; a witness by their numbers.
    """

    def __init__(self, shape: KVShape, full: TargetKVCache, windows: WindowRows) -> None:
        super().__init__(shape, full.backend, full, windows)
        self.dtype, self.block_tokens = full.dtype, full.block_tokens
        self._witness: Witness | None = None

    @property
    def observer(self) -> KeyHook | None:
        """See TargetKVCache."""
        return self.full.observer

    @observer.setter
    def observer(self, observer: KeyHook | None) -> None:
        self.full.observer = observer

    @property
    def observed_chunk(self) -> int | None:
        """See TargetKVCache."""
        return self.full.observed_chunk

    @observed_chunk.setter
    def observed_chunk(self, chunk: int | None) -> None:
        self.full.observed_chunk = chunk

    @property
    def witness(self) -> Witness | None:
        """See TargetKVCache."""
        return self._witness

    @witness.setter
    def witness(self, witness: Witness | None) -> None:
        self._witness = witness
        self.full.witness = self._told if witness is not None else None

    def _told(self, place: int, q: torch.Tensor, start: int) -> None:
        self._witness(self._seeing_all[place], q, start)

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return self.full.capacity

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.full.nbytes + self.windows.store.nbytes

    @property
    def bytes_moved(self) -> int:
        """See TargetKVCache."""
        return self.full.bytes_moved

    @property
    def swept_layers(self) -> Collection[int]:
        """See TargetKVCache."""
        return {self._seeing_all[place] for place in self.full.swept_layers}

    def begin_segment(self) -> None:
        """See TargetKVCache."""
        self.full.begin_segment()

    def attend_later(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int
    ) -> None:
        """See TargetKVCache."""
        self.full.attend_later(self._place[layer], q, k, v, offset=offset)

    def attended(self, layer: int, offset: int, n: int) -> torch.Tensor:
        """See TargetKVCache."""
        return self.full.attended(self._place[layer], offset, n)

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See TargetKVCache."""
        if layer in self._place:
            return self.full.rows(self._place[layer], start, n)
        return self.windows.store.rows(self._window_place[layer], start - self.windows.base, n)

    def keys(self, layer: int, kv_head: int, start: int, end: int) -> Iterator[torch.Tensor]:
        """See TargetKVCache. Of layers that see every token."""
        return self.full.keys(self._place[layer], kv_head, start, end)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """See TargetKVCache."""
        if layer in self._place:
            self.full.write(self._place[layer], start, k, v)
        else:
            self.windows.store.write(self._window_place[layer], start - self.windows.base, k, v)

    def copy_rows(self, target: KVStore, start: int, to: int, n: int) -> None:
        """See TargetKVCache. Of the layers that see every token."""
        self.full.copy_rows(target, start, to, n)

    def copy_chunks(self, target: KVStore, chunks: torch.Tensor, chunk: int) -> None:
        """See TargetKVCache. Of the layers that see every token."""
        self.full.copy_chunks(target, chunks, chunk)

    def commit(self, length: int) -> None:
        """See KVCache."""
        self.full.commit(length)


class LayeredRetrievalKVCache(_Layered):
    """See RetrievalKVCache. Sparse where layers see every token; windows are those of the source, and behind
    them rows of its own. `slack`: the most of these.
    """

    def __init__(self, source: LayeredKVCache, full: RetrievalKVCache, *, slack: int) -> None:
        windows = WindowRows(source.shape, source.backend, room=slack, dtype=source.windows.store.dtype)
        super().__init__(source.shape, source.backend, full, windows)
        self.source, self.policy, self.store, self.recent = source, full.policy, full.store, full.recent
        self._held = 0  # tokens up to which the windows are the source's

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
        self.windows.follow(self.source.windows, self._held, length)
        self._held = length
