"""A segment of many rows (prefill) over a cache in host memory, layer by layer. Knows no model.

Two ways. Either all rows of a layer are on the device while it works (`WholeLayers`): rows of earlier
segments cross the bus once for each layer, behind the computation of the layer before it, and a chunk attends
to everything at once. Or (`SweptLayers`) only the segment's own rows are: queries and fp32 results of the
whole segment wait while the past passes through the ring, block by block, and each block is attended to by
all of them. Chunk by chunk the past would cross the bus once for each chunk. Where a token's keys and values
are large, as without groups, that takes less memory than two whole layers.

In both there are two places, in which the layer at work and the next one take turns; a segment's rows go to
the host once, behind the computation of the layer after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.backend.base import Backend, HostCopies, Mark
from core.cache.base import KeyHook, KVShape, KVStore, pieces
from core.cache.host import Pair
from core.cache.ring import Ring
from core.cache.stored import StoredBlocks, device_store


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """Of segments of up to `tokens` rows of `heads` query heads. `step`: a number of tokens that divides a
    block and is a multiple of the chunks that an observer scores.
    """

    tokens: int
    heads: int
    step: int


class LayerBuffers:
    """Rows of two streamed layers, the one at work and the next, from token `base` on: that is 0, or with a
    `step` its last multiple before the segment. `written`: behind what went to host memory so far.
    """

    def __init__(self, stored: StoredBlocks, copies: HostCopies, store: KVStore, *, step: int | None) -> None:
        self._stored, self._copies, self._store, self._step = stored, copies, store, step
        self._streamed = list(stored.host)
        self._place = {layer: place for place, layer in enumerate(self._streamed)}
        self.base = self._length = self._end = 0
        self._entered: int | None = None  # the place at work
        self.written = self._coming = copies.mark()

    def begin(self, length: int) -> None:
        """A segment begins behind `length` rows, perhaps after one that was broken off."""
        self._length = self._end = length
        self.base = length // self._step * self._step if self._step else 0
        self._entered = None
        self.written = self._coming = self._fetch(0)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> tuple[Pair, int]:
        """Rows [start, start + n) of the layer, which is the one at work from now on; k and v [n, kv_heads,
        width]. Returns its rows from `base` on and their number.
        """
        self._enter(self._place[layer])
        self._end, place = start + k.shape[0], self._place[layer] % 2
        self._store.write(place, start - self.base, k, v)
        held = self._end - self.base
        return self._store.filled(place, held), held

    def end(self) -> None:
        """The segment is over."""
        if self._entered is not None:
            self._keep(self._entered)
        self._entered = None

    def _enter(self, place: int) -> None:
        if self._entered == place:
            return
        if self._entered is not None:
            self._keep(self._entered)
        self._copies.wait(self._coming)
        self._entered, layer = place, self._streamed[place]
        for block, inside, start, n in self._earlier():
            if block < self._stored.resident(layer):
                rows = (part[:, inside : inside + n] for part in self._stored.block(layer, block))
                for target, source in zip(self._rows(place, start, n), rows, strict=True):
                    target.copy_(source)
        self._coming = self._fetch(place + 1)

    def _fetch(self, place: int) -> Mark:
        """Earlier rows in host memory of the layer that works at `place` next. Returns when it is ready."""
        for layer in self._streamed[place : place + 1]:
            for block, inside, start, n in self._earlier():
                if block >= self._stored.resident(layer):
                    self._stored.host[layer].fetch(block, inside, *self._rows(place, start, n))
        return self._copies.mark()

    def _earlier(self) -> list[tuple[int, int, int, int]]:
        """Block, row inside it, token and number of the rows that earlier segments left from `base` on."""
        found = pieces(self.base, self._length - self.base, self._stored.block_tokens)
        return [(block, inside, self.base + first, n) for block, inside, first, n in found]

    def _keep(self, place: int) -> None:
        """The segment's rows of a layer that has done its work, to where they stay."""
        layer = self._streamed[place]
        for block, inside, first, n in pieces(
            self._length, self._end - self._length, self._stored.block_tokens
        ):
            rows = self._rows(place, self._length + first, n)
            if block < self._stored.resident(layer):
                for kept, part in zip(self._stored.block(layer, block), rows, strict=True):
                    kept[:, inside : inside + n] = part
            else:
                self._stored.host[layer].store(block, inside, *rows)
        self.written = self._copies.mark()

    def _rows(self, place: int, start: int, n: int) -> Pair:
        """Tokens [start, start + n), which lie in one block: [kv_heads, n, width] each."""
        block, inside = divmod(start - self.base, self._store.block_tokens)
        rows = slice(inside, inside + n)
        return self._store.k[place % 2, block, :, rows], self._store.v[place % 2, block, :, rows]


class WholeLayers:
    """See above. `ring`: buffers for a pass of few rows, in the same memory."""

    def __init__(
        self,
        stored: StoredBlocks,
        backend: Backend,
        copies: HostCopies,
        shape: KVShape,
        *,
        staging_blocks: int,
        dtype: torch.dtype,
    ) -> None:
        tokens, places = stored.blocks * stored.block_tokens, 2 if stored.host else 0
        store = device_store(shape, backend, places, tokens, stored.block_tokens, dtype)
        self._backend, self.places = backend, LayerBuffers(stored, copies, store, step=None)
        self.ring = Ring(
            stored, copies, *(part.flatten(0, 1)[:staging_blocks] for part in (store.k, store.v))
        )
        self.nbytes, self.most_rows = store.nbytes, tokens

    def begin(self, length: int) -> None:
        """A segment begins behind `length` rows."""
        self.places.begin(length)

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        start: int,
        observer: KeyHook | None,
    ) -> torch.Tensor:
        """Rows from `start` on, q [n, heads, head_dim] and k, v [n, kv_heads, head_dim], over everything up
        to them. Returns [n, heads, head_dim].
        """
        (keys, values), held = self.places.write(layer, start, k, v)
        out = self._backend.attend(q, keys, values, length=held, causal=True)
        if observer is not None:
            observer(layer, q, keys, start=0, length=held, own=k.shape[0])
        return out


class SweptLayers:
    """See above. A layer's chunks come by `hold`, one after the other; then `result` has what they found."""

    def __init__(
        self,
        stored: StoredBlocks,
        backend: Backend,
        copies: HostCopies,
        shape: KVShape,
        *,
        staging_blocks: int,
        dtype: torch.dtype,
        swept: SegmentSizes,
    ) -> None:
        assert stored.block_tokens % swept.step == 0, (stored.block_tokens, swept.step)
        self._stored, self._backend, self._streamed = stored, backend, list(stored.host)
        places, tokens = (2 if self._streamed else 0), (-(-swept.tokens // swept.step) + 1) * swept.step
        own = device_store(shape, backend, places, tokens, tokens, dtype)
        self.places = LayerBuffers(stored, copies, own, step=swept.step)
        buffers = device_store(
            shape,
            backend,
            staging_blocks if self._streamed else 0,
            stored.block_tokens,
            stored.block_tokens,
            dtype,
        )
        self.ring = Ring(stored, copies, buffers.k[:, 0], buffers.v[:, 0])
        rows = swept.tokens if self._streamed else 0
        size, device = (rows, swept.heads, shape.head_dim), backend.device
        self._q = torch.empty(size, dtype=backend.dtype, device=device)
        self._total = (
            torch.empty(size, dtype=torch.float32, device=device),
            torch.empty(size[:2], dtype=torch.float32, device=device),
        )
        self.most_rows = swept.tokens
        self.nbytes = sum(one.nbytes for one in (own, buffers, self._q, *self._total))
        self._first = 0  # token of the segment's first row
        self._chunks: list[tuple[slice, KeyHook | None]] = []
        self._held: tuple[Pair, int] | None = None  # the segment's rows of the layer at work

    def begin(self, length: int) -> None:
        """A segment begins behind `length` rows."""
        self._first, self._chunks = length, []
        self.places.begin(length)
        self.ring.begin(self._stored.first_away(), self.places.base)

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        start: int,
        observer: KeyHook | None,
    ) -> torch.Tensor:
        """A segment of one chunk, q [n, heads, head_dim] and k, v [n, kv_heads, head_dim], over everything up
        to it. Returns [n, heads, head_dim].
        """
        assert start == self._first, "further chunks come by `hold`"
        self.hold(layer, q, k, v, start, observer)
        return self.result(layer, start, k.shape[0])

    def hold(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        start: int,
        observer: KeyHook | None,
    ) -> None:
        """The next rows of the segment, q [n, heads, head_dim] and k, v [n, kv_heads, head_dim] from token
        `start` on, see the segment's own up to themselves.
        """
        rows = slice(start - self._first, start - self._first + k.shape[0])
        if rows.start == 0:
            self._chunks = []
        (keys, values), held = self._held = self.places.write(layer, start, k, v)
        found = self._backend.attend_part(q, keys, values, length=held, causal=True)
        self._q[rows] = q
        for total, part in zip(self._total, found, strict=True):
            total[rows] = part
        self._chunks.append((rows, observer))

    def result(self, layer: int, start: int, n: int) -> torch.Tensor:
        """What n rows from token `start` on found in everything up to them, [n, heads, head_dim]. The first
        call of a layer sweeps through its past.
        """
        first = start - self._first
        if first == 0:
            self._sweep(layer)
        return self._total[0][first : first + n].to(self._q.dtype)

    def _sweep(self, layer: int) -> None:
        resident = min(self.places.base, self._stored.resident(layer) * self._stored.block_tokens)
        if resident:
            self._see(layer, self._stored.kept[layer].filled(0, resident), 0, resident)
        for start, rows, buffer in self.ring.blocks(layer):
            self._see(layer, buffer, start, rows)
        (keys, _), held = self._held
        for rows, observer in self._chunks:
            # the newest last: up to where its own rows end
            if observer is not None:
                self._show(observer, layer, rows, keys, self.places.base, held)

    def _see(self, layer: int, part: Pair, start: int, length: int) -> None:
        """Every chunk attends to `length` earlier tokens from `start` on."""
        for rows, observer in self._chunks:
            if observer is not None:
                observer(layer, self._q[rows], part[0], start=start, length=length, own=0)
            total = tuple(one[rows] for one in self._total)
            self._backend.attend_more(total, self._q[rows], *part, length=length)

    def _show(
        self, observer: KeyHook, layer: int, rows: slice, keys: torch.Tensor, start: int, held: int
    ) -> None:
        end = self._first + rows.stop - start
        assert end <= held, (end, held)
        observer(layer, self._q[rows], keys, start=start, length=end, own=rows.stop - rows.start)
