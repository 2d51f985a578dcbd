"""Caches of a model whose layers are not all alike: those that see every token in one cache, those with a
window or a state beside it. Knows nothing of drafting.

Inside, a layer that sees every token goes by its place among these, so a full, an offloaded and a retrieval
cache are what they are for a model of such layers alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import torch

from core.backend.base import Backend, ScoreRequest
from core.cache.base import (
    InPlaceRows,
    KeyHook,
    KVShape,
    KVStore,
    Recurrence,
    SlotCache,
    TargetKVCache,
    Witness,
)
from core.cache.side_files import Kept
from core.cache.state_sizes import RECENT_STATES
from core.cache.states import LayerStates
from core.cache.windows import WindowRows

Side = WindowRows | LayerStates  # what stands beside the layers that see every token


def with_side(shape: KVShape, full: TargetKVCache, *, room: int) -> TargetKVCache:
    """A cache for a model of `shape`, of which `full` holds the layers that see every token; `room` rows may
    lie behind a window.
    """
    if not shape.beside:
        return full
    return LayeredKVCache(shape, full, side_of(shape, full.backend, room=room))


def side_of(shape: KVShape, backend: Backend, *, room: int) -> Side:
    """What a cache of such a model holds beside the layers that see every token, empty."""
    return WindowRows(shape, backend, room=room) if shape.states is None else LayerStates(shape, backend)


class Layered:
    """What all of them do. `full` counts the rows."""

    rotates_on_read = False
    _in_segment = False

    def __init__(self, shape: KVShape, backend: Backend, full: TargetKVCache | SlotCache, side: Side) -> None:
        self.of_model, self.shape = shape, shape.of_full
        self.backend, self.full, self.side = backend, full, side
        self._seeing_all = shape.seeing_all
        self._place = {layer: place for place, layer in enumerate(self._seeing_all)}
        self._side_place = {layer: place for place, layer in enumerate(shape.beside)}
        self._first = min(shape.beside)

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
        return max(self.full.oldest_rollback, self.side.oldest)

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        return self.full.positions(n)

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        if layer in self._place:
            return self.full.attend(self._place[layer], q, k, v, offset=offset)
        start = self._side_start(layer, offset, k.shape[0])
        return self.side.attend(self._side_place[layer], q, k, v, start=start)

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [n, heads, head_dim]."""
        if layer in self._place:
            return self.full.attend_again(self._place[layer], q, offset=offset)
        assert not self._in_segment, "of a segment's first chunks a window holds nothing any more"
        return self.side.attend_again(self._side_place[layer], q, start=self.length + offset)

    def recur(
        self, layer: int, rows: torch.Tensor, recurrence: Recurrence, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        start = self._side_start(layer, offset, rows.shape[0])
        recur = self.side.recur_for_good if self._in_segment else self.side.recur
        return recur(self._side_place[layer], rows, recurrence, start=start)

    def _side_start(self, layer: int, offset: int, n: int) -> int:
        """The token of the first of n rows that come to a layer at the side, which has room for them."""
        start = self.length + offset
        if layer == self._first and not self._in_segment:
            self.side.make_room(min(self.committed, start), start + n)
        return start

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
        if length < self.side.oldest:
            raise ValueError(f"windows and states go back to token {self.side.oldest}, not to {length}")
        self.full.rollback(length)

    def reset(self) -> None:
        """See KVCache."""
        self.full.reset()
        self.side.reset()


class LayeredKVCache(Layered):
    """See TargetKVCache. Its rows, shape and observers are those of the layers that see every token, by their
    places among these; a witness is told their numbers.

    What a window lost does not come back, and a state cannot be cut, so copies are kept: from before the
    segment at work, which may be stopped, from where somebody said that he will return (`remember`), and of
    states from where the last segments began and ended.
    """

    of_one_block = False

    def __init__(self, shape: KVShape, full: TargetKVCache, side: Side) -> None:
        super().__init__(shape, full.backend, full, side)
        self.dtype, self.block_tokens = full.dtype, full.block_tokens
        self._witness: Witness | None = None
        self._before: Kept | None = None
        self._remembered: Kept | None = None
        self._recent: list[Kept] = []  # in the order of their lengths
        self._most_recent = RECENT_STATES if shape.states is not None else 0
        self._entered = False  # whether the first layer of a segment has begun
        self._held = 0  # the length up to which the side was fed,
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
        kept = {id(one): one for one in (self._before, self._remembered, *self._recent) if one is not None}
        return self.full.nbytes + self.side.nbytes + sum(one.nbytes for one in kept.values())

    @property
    def bytes_moved(self) -> int:
        """See TargetKVCache."""
        return self.full.bytes_moved

    @property
    def swept_layers(self) -> Collection[int]:
        """See TargetKVCache."""
        return {self._seeing_all[place] for place in self.full.swept_layers}

    def attend_on_host(self, share: float) -> None:
        """See TargetKVCache."""
        self.full.attend_on_host(share)

    def begin_segment(self) -> None:
        """See TargetKVCache."""
        self._break_off()
        self.side.commit(self.length)
        self._before, self._in_segment = self._keep_recent(), True
        self._entered = False
        self.full.begin_segment()

    def _break_off(self) -> None:
        """A segment that did not get to its end leaves nothing."""
        if self._in_segment:
            self.side.put_back(self._before)
        self._before, self._in_segment, self._entered, self._fed = None, False, False, False

    def _keep_recent(self) -> Kept:
        """A copy of the side at the present length, which is one of the newest."""
        known = (one for one in (self._remembered, *self._recent) if one is not None)
        kept = next((one for one in known if one.end == self.length), None) or self.side.kept_at(self.length)
        if self._most_recent and self.length:
            others = [one for one in self._recent if one.end != self.length]
            self._recent = [*others, kept][-self._most_recent :]
        return kept

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        self._enter(layer, offset)
        return super().attend(layer, q, k, v, offset=offset)

    def recur(
        self, layer: int, rows: torch.Tensor, recurrence: Recurrence, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        self._enter(layer, offset)
        return super().recur(layer, rows, recurrence, offset=offset)

    def _enter(self, layer: int, offset: int) -> None:
        """A layer is fed."""
        if layer == offset == 0:
            if self._entered:  # another pass, where a segment was stopped
                self._break_off()
            self._entered = self._in_segment
        self._fed = True

    def advance(self, n: int) -> None:
        """See KVCache."""
        super().advance(n)
        ended = self._in_segment
        self._before, self._in_segment, self._entered = None, False, False
        if self._fed:
            self._held = self.length
        self._fed = False
        if ended:
            self.side.fed(self.length)
            if self._most_recent:
                self._keep_recent()

    def remember(self) -> None:
        """See TargetKVCache."""
        if self._remembered is None or self._remembered.end != self.length:
            self.side.commit(self.length)
            self._remembered = self._keep_recent()

    def _kept_from(self, length: int) -> Kept | None:
        """The copy from the largest length up to `length`."""
        known = [one for one in (self._remembered, *self._recent) if one is not None and one.end <= length]
        return max(known, key=lambda one: one.end, default=None)

    def resumable(self, length: int) -> int:
        """See TargetKVCache."""
        self._break_off()
        length = min(length, self._held)
        if length >= self.side.oldest:
            return length
        kept = self._kept_from(length)
        return 0 if kept is None else kept.end

    def rollback(self, length: int) -> None:
        """See KVCache."""
        self._break_off()
        if length < self.side.oldest:
            kept = self._kept_from(length)
            if length == 0:
                self.side.reset()
            elif kept is not None and kept.end == length:
                self.side.put_back(kept)
            else:
                raise ValueError(f"what was at the side before token {length} is gone; see resumable")
        self._forget_beyond(length)
        self._held = min(self._held, length)
        self.full.rollback(length)

    def _forget_beyond(self, length: int) -> None:
        """Copies from behind token `length` are of another text."""
        if self._remembered is not None and self._remembered.end > length:
            self._remembered = None
        self._recent = [one for one in self._recent if one.end <= length]

    def reset(self) -> None:
        """See KVCache."""
        super().reset()
        self._before, self._remembered, self._recent = None, None, []
        self._in_segment, self._entered, self._held = False, False, 0

    def kept_side(self, length: int) -> Kept | None:
        """What was at the side at token `length`, where it is still known."""
        known = (one for one in (self._before, self._kept_from(length)) if one is not None)
        kept = next((one for one in known if one.end == length), None)
        if kept is not None:
            return kept
        return self.side.kept_at(length) if self._side_holds(length) else None

    def _side_holds(self, length: int) -> bool:
        """Whether a copy of the side at token `length` can be made now."""
        last = self._held if self._most_recent == 0 else self.side.oldest
        return not self._in_segment and self.side.oldest <= length <= last

    def put_side(self, kept: Kept) -> None:
        """The side as it was at the cache's length, to which rows were written."""
        self.side.put_back(kept)
        self._remembered, self._held = kept, kept.end

    def pretend(self) -> None:
        """As if the side had been fed what was written, where only times are asked for."""
        self.side.fed(self.length)
        self._held = self.length

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
        """See TargetKVCache. By its place among the layers that see every token; it feeds no side."""
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
        if self._held >= length:  # else rows were written, and the side will be put
            self.side.commit(length)
            self._held = length
