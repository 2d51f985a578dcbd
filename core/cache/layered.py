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
from core.cache.windows import KeptWindows, WindowRows


def with_windows(shape: KVShape, full: TargetKVCache, *, room: int) -> TargetKVCache:
    """A cache for a model of `shape`, of which `full` holds the layers that see every token; `room` rows may
    lie behind a window.
    """
    if not shape.windowed:
        return full
    return LayeredKVCache(shape, full, WindowRows(shape, full.backend, room=room))


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
    _in_segment = False

    def __init__(
        self, shape: KVShape, backend: Backend, full: TargetKVCache | RetrievalKVCache, windows: WindowRows
    ) -> None:
        self.of_model, self.shape = shape, shape.of_full
        self.backend, self.full, self.windows = backend, full, windows
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
        if layer == self._first and not self._in_segment:
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
    """See TargetKVCache. Its rows, shape and observers are those of the layers that see every token, by their
    places among these; a witness is told their numbers.

    What a window lost does not come back, so two copies of windows are kept: from before the segment at work,
    which may be stopped, and from where somebody said that he will return (`remember`).
    """

    def __init__(self, shape: KVShape, full: TargetKVCache, windows: WindowRows) -> None:
        super().__init__(shape, full.backend, full, windows)
        self.dtype, self.block_tokens = full.dtype, full.block_tokens
        self._witness: Witness | None = None
        self._before: KeptWindows | None = None
        self._remembered: KeptWindows | None = None
        self._entered = False  # whether the first layer of a segment has begun
        self._held = 0  # the length up to which windows were fed,
        self._fed = False  # and whether the pass at work feeds them

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
        kept = sum(one.nbytes for one in (self._before, self._remembered) if one is not None)
        return self.full.nbytes + self.windows.store.nbytes + kept

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
        self._break_off()
        self._before, self._in_segment = self.windows.kept_at(self.length), True
        self._entered = False
        self.full.begin_segment()

    def _break_off(self) -> None:
        """A segment that did not get to its end leaves nothing."""
        if self._in_segment:
            self.windows.put_back(self._before)
        self._before, self._in_segment, self._entered = None, False, False

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        if layer == offset == 0:
            if self._entered:  # another pass, where a segment was stopped
                self._break_off()
            self._entered = self._in_segment
        self._fed = True
        return super().attend(layer, q, k, v, offset=offset)

    def advance(self, n: int) -> None:
        """See KVCache."""
        super().advance(n)
        self._before, self._in_segment, self._entered = None, False, False
        if self._fed:
            self._held = self.length
        self._fed = False

    def remember(self) -> None:
        """See TargetKVCache."""
        if self._remembered is None or self._remembered.end != self.length:
            self._remembered = self.windows.kept_at(self.length)

    def resumable(self, length: int) -> int:
        """See TargetKVCache."""
        self._break_off()
        length = min(length, self._held)
        if length >= self.windows.oldest:
            return length
        kept = self._remembered
        return kept.end if kept is not None and kept.end <= length else 0

    def rollback(self, length: int) -> None:
        """See KVCache."""
        self._break_off()
        if length < self.windows.oldest:
            if length == 0:
                self.windows.reset()
            elif self._remembered is not None and self._remembered.end == length:
                self.windows.put_back(self._remembered)
            else:
                raise ValueError(f"what windows held before token {length} is gone; see resumable")
        if self._remembered is not None and self._remembered.end > length:
            self._remembered = None
        self._held = min(self._held, length)
        self.full.rollback(length)

    def reset(self) -> None:
        """See KVCache."""
        super().reset()
        self._before = self._remembered = None
        self._in_segment, self._entered, self._held = False, False, 0

    def kept_windows(self, length: int) -> KeptWindows | None:
        """What windows reached before token `length`, where it is still known."""
        if self._remembered is not None and self._remembered.end == length:
            return self._remembered
        held = not self._in_segment and self.windows.oldest <= length <= self._held
        return self.windows.kept_at(length) if held else None

    def put_windows(self, kept: KeptWindows) -> None:
        """Windows as they were at the cache's length, to which rows were written."""
        self.windows.put_back(kept)
        self._remembered, self._held = kept, kept.end

    def attend_later(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int
    ) -> None:
        """See TargetKVCache."""
        self._entered = self._entered or self._in_segment
        self.full.attend_later(self._place[layer], q, k, v, offset=offset)

    def attended(self, layer: int, offset: int, n: int) -> torch.Tensor:
        """See TargetKVCache."""
        return self.full.attended(self._place[layer], offset, n)

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See TargetKVCache. By its place among the layers that see every token."""
        return self.full.rows(layer, start, n)

    def keys(self, layer: int, kv_head: int, start: int, end: int) -> Iterator[torch.Tensor]:
        """See TargetKVCache. Of a layer that sees every token, by its number."""
        return self.full.keys(self._place[layer], kv_head, start, end)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """See TargetKVCache. By its place among the layers that see every token; it feeds no windows."""
        self.full.write(layer, start, k, v)

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
        windows = WindowRows(source.of_model, source.backend, room=slack)
        super().__init__(source.of_model, source.backend, full, windows)
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
