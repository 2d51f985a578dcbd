"""The full KV cache with most of its blocks in host memory, streamed to the device in every pass. Knows
nothing of speculation.

Some blocks stay on the device ("resident"): all blocks of the first layers, or the first blocks of every
layer. The others lie in host memory and are read in one of two ways.

A pass of few rows (decoding) streams them, layer by layer, through a small ring of device buffers. A buffer
is refilled as soon as the attention that read it was launched, with the next block in the order of the whole
pass, so the bus does not rest between layers and the first blocks are under way while the resident layers
compute. Each part's attention is joined to the others by log-sum-exp. The pass's own rows wait on the device
("fresh") until the stream is over; then they go to the host in one copy, and are put into their places when
the next pass begins, as far as they were not rolled back.

A segment of many rows (prefill) works on one layer at a time, all of whose rows are on the device meanwhile:
rows of earlier segments cross the bus once per layer, behind the computation of the layer before it, rows of
the segment itself never; they go to the host once, behind the computation of the layer after it. There are
two such places, and the ring of a short pass lies in the same memory.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator

import torch

from core.backend.base import Backend, Copies, Mark
from core.backend.kv_rows import numbers
from core.cache.base import KVShape, KVStore, Observer, Witness, pieces
from core.cache.host import Pair
from core.cache.stored import StoredBlocks, device_store

Part = tuple[torch.Tensor, torch.Tensor]  # out fp32 [n, heads, head_dim], lse fp32 [n, heads]


class OffloadedKVCache:
    """Every token's exact keys and values for `capacity` tokens in rows of `dtype` (None: of the numbers that
    the backend computes with), the first `resident_blocks` blocks of the first `resident_layers` layers on
    the device (None: all their blocks).

    `fresh_tokens` bounds the rows of a pass that streams; a longer one is treated as a segment. `observer`,
    when set, is shown each part of a layer's keys, the pass's own rows last; `witness`, when set, is handed
    the queries alone.
    """

    rotates_on_read = False
    ready = True

    def __init__(
        self,
        shape: KVShape,
        capacity: int,
        backend: Backend,
        *,
        block_tokens: int,
        resident_layers: int,
        resident_blocks: int | None = None,
        staging_blocks: int = 3,
        fresh_tokens: int = 96,
        dtype: torch.dtype | None = None,
    ) -> None:
        assert staging_blocks > 0, "a ring without buffers"
        self.shape, self.block_tokens, self.backend = shape, block_tokens, backend
        self.dtype = dtype or backend.storage
        self.blocks = -(-capacity // block_tokens)
        self._copies = backend.copies()
        # memory must not go while copies still use it
        weakref.finalize(self, _drain, self._copies).atexit = False
        self._stored = StoredBlocks(
            shape,
            backend,
            self._copies,
            blocks=self.blocks,
            block_tokens=block_tokens,
            resident_layers=resident_layers,
            resident_blocks=self.blocks if resident_blocks is None else min(resident_blocks, self.blocks),
            dtype=self.dtype,
        )
        self._whole_layers = resident_blocks is None
        self._fresh_tokens, self._staging_blocks = fresh_tokens, staging_blocks
        self._lay_out()
        self.observer: Observer | None = None
        self.witness: Witness | None = None
        self.length = self.committed = 0
        self._announced = self._in_segment = self._in_stream = False
        # rows [start, start + rows) are in `fresh` and, once landed, in `landing`
        self._fresh_start = self._fresh_rows = 0
        self._settled = True  # those rows are in their places too
        self._written = self._copies.mark()  # behind the last copy to the host
        self._queue: Iterator[tuple[int, int]] = iter(())  # (layer, block) still to be fetched in this pass
        self._flying: deque[tuple[int, Mark]] = deque()  # buffers of the ring under way
        # the streamed layer at work in a segment, the end of its rows,
        self._entered: int | None = None
        self._end = 0
        self._coming = self._written  # and the arrival of the next one's earlier rows

    def _lay_out(self) -> None:
        """What follows from which layers are streamed."""
        shape, backend, dtype = self.shape, self.backend, self.dtype
        self._streamed = list(self._stored.host)
        self._place = {layer: place for place, layer in enumerate(self._streamed)}
        self._work = device_store(
            shape, backend, 2 if self._streamed else 0, self.capacity, self.block_tokens, dtype
        )
        self._fresh = device_store(
            shape, backend, len(self._streamed), self._fresh_tokens, self._fresh_tokens, dtype
        )
        self._landing = tuple(backend.host_memory(self._fresh.k.shape, dtype) for _ in range(2))
        self._ring = tuple(
            part.flatten(0, 1).unsqueeze(1)[: self._staging_blocks] for part in (self._work.k, self._work.v)
        )

    # ---- what every cache has ------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return self.blocks * self.block_tokens

    @property
    def oldest_rollback(self) -> int:
        """Every prefix is kept."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes held, on the device and in host memory."""
        return self.device_bytes + self._stored.host_bytes + sum(part.nbytes for part in self._landing)

    @property
    def device_bytes(self) -> int:
        """Bytes held on the device."""
        return sum(one.nbytes for one in (*self._stored.kept, self._work, self._fresh))

    @property
    def bytes_moved(self) -> int:
        """See TargetKVCache."""
        return self._copies.bytes_to_device

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        return torch.arange(self.length, self.length + n, device=self.backend.device)

    def begin_segment(self) -> None:
        """See TargetKVCache."""
        self._announced = True

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        end = self.length + offset + k.shape[0]
        assert end <= self.capacity, f"row {end} of a cache for {self.capacity}"
        if layer == 0 and offset == 0:
            self._begin(k.shape[0])
        if self.witness is not None:
            self.witness(layer, q, self.length + offset)
        if layer not in self._place:
            return self._attend_in(self._stored.kept[layer], 0, layer, q, k, v, offset)
        if not self._in_segment:
            return self._attend_streamed(layer, q, k, v)
        self._enter(self._place[layer])
        self._end = end
        return self._attend_in(self._work, self._place[layer] % 2, layer, q, k, v, offset)

    def advance(self, n: int) -> None:
        """See KVCache."""
        if self._in_segment:
            self._leave()
        elif self._in_stream:
            for target, source in zip(self._landing, (self._fresh.k, self._fresh.v), strict=True):
                self._copies.to_host(target, source)
            self._written = self._copies.mark()
            self._fresh_start, self._fresh_rows, self._settled = self.length, n, False
        self._in_segment = self._in_stream = False
        self.length += n

    def missing(self, length: int) -> Iterator[range]:
        """See KVCache. Nothing: a long prompt is prefilled, a short rest goes with the pass."""
        return iter(())

    def commit(self, length: int) -> None:
        """See KVCache."""
        assert length <= self.length, f"commit({length}) beyond the {self.length} tokens held"
        self._cut(length)
        self.committed = length

    def rollback(self, length: int) -> None:
        """See KVCache."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll a cache of {self.length} tokens back to {length}")
        self._cut(length)
        self.committed = min(self.committed, length)

    def reset(self) -> None:
        """See KVCache."""
        self._cut(0)
        self.committed = 0

    def _cut(self, length: int) -> None:
        """Rows from `length` on are gone, and a pass that did not get to its end with them."""
        self.length = length
        self._in_segment = self._in_stream = False
        self._fresh_rows = max(0, min(self._fresh_rows, length - self._fresh_start))

    def keep_on_device(self, layers: int) -> None:
        """Only the first `layers` layers stay on the device; the committed rows of the others go to host
        memory, all else of the pass that was under way is gone. Raises MemoryError, and the backend's way of
        saying that the device is full: then the cache is of no more use.
        """
        self._copies.finish(self._copies.mark())
        self.rollback(self.committed)
        self._settle()
        self._flying.clear()
        self._work = self._fresh = self._ring = None
        while len(self._stored.kept) > layers:
            self._stored.let_go(self.length)
        self._lay_out()
        self._fresh_rows = 0

    @property
    def layers_on_device(self) -> int | None:
        """Of which every row is there; None where a part of each layer is."""
        return len(self._stored.kept) if self._whole_layers else None

    # ---- single rows and chunks, between passes ------------------------------------------------------------

    def rows(self, layer: int, start: int, n: int) -> Pair:
        """See TargetKVCache."""
        self._settle()
        if layer not in self._place:
            return self._stored.kept[layer].rows(0, start, n)
        self._copies.finish(self._written)
        found = [
            [
                part[:, inside : inside + count].transpose(0, 1).cpu()
                for part in self._stored.block(layer, block)
            ]
            for block, inside, _, count in pieces(start, n, self.block_tokens)
        ]
        k, v = (torch.cat(part) for part in zip(*found, strict=True))
        return k, v

    def keys(self, layer: int, kv_head: int, start: int, end: int) -> Iterator[torch.Tensor]:
        """See TargetKVCache."""
        self._settle()
        self._copies.finish(self._written)
        for block, inside, _, count in pieces(start, end - start, self.block_tokens):
            rows = self._stored.block(layer, block)[0][kv_head, inside : inside + count]
            yield numbers(rows, self.shape.head_dim, self.backend.dtype)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """See TargetKVCache."""
        self._cut(self.length)
        self._settle()
        self._copies.finish(self._written)
        rows = k.transpose(0, 1), v.transpose(0, 1)
        self._stored.put(layer, start, rows, rows)

    def copy_rows(self, target: KVStore, start: int, to: int, n: int) -> None:
        """See TargetKVCache. Rows of the last pass are still on the device; older ones of streamed layers
        come from host memory.
        """
        fresh = slice(start - self._fresh_start, start - self._fresh_start + n)
        at_hand = fresh.start >= 0 and fresh.stop <= self._fresh_rows
        if not at_hand:
            self._settle()
            self._copies.finish(self._written)
        index, here = (
            torch.arange(start, start + n, device=device).expand(self.shape.kv_heads, n)
            for device in (torch.device("cpu"), self.backend.device)
        )
        for layer in range(self.shape.layers):
            if layer in self._place and at_hand:
                place = self._place[layer]
                rows = self._fresh.k[place, 0, :, fresh], self._fresh.v[place, 0, :, fresh]
            else:
                rows = self._stored.runs(layer, index, here, 1)
            target.put(layer, to, *rows)

    def copy_chunks(self, target: KVStore, chunks: torch.Tensor, chunk: int) -> None:
        """See TargetKVCache. Chunks in host memory are gathered there, so that only what was chosen crosses
        the bus.
        """
        self._settle()
        self._copies.finish(self._written)
        on_host = chunks.cpu()
        for layer in range(self.shape.layers):
            target.put(layer, 0, *self._stored.runs(layer, on_host[layer], chunks[layer], chunk))

    def _settle(self) -> None:
        """Puts the rows of the last short pass into their places, as far as they were not rolled back."""
        if not self._settled and self._fresh_rows:
            self._copies.finish(self._written)
            rows = slice(0, self._fresh_rows)
            for layer, place in self._place.items():
                here = self._fresh.k[place, 0, :, rows], self._fresh.v[place, 0, :, rows]
                self._stored.put(
                    layer,
                    self._fresh_start,
                    here,
                    (self._landing[0][place, 0, :, rows], self._landing[1][place, 0, :, rows]),
                )
        self._settled = True

    # ---- a pass --------------------------------------------------------------------------------------------

    def _begin(self, n: int) -> None:
        """A new pass or segment, perhaps after one that was broken off."""
        self._settle()
        self._fresh_rows = 0
        self._in_segment = bool(self._streamed) and (self._announced or n > self._fresh.capacity)
        self._in_stream = bool(self._streamed) and not self._in_segment
        self._announced = False
        self._flying.clear()
        self._entered = None
        if self._in_segment:
            self._coming = self._fetch_layer(0)
            return
        self._queue = ((layer, block) for layer in self._streamed for block in self._away(layer))
        for slot in range(self._ring[0].shape[0]):
            self._fetch_block(slot)

    def _away(self, layer: int) -> range:
        """The layer's filled blocks in host memory."""
        return range(self._stored.resident(layer), -(-self.length // self.block_tokens))

    def _filled(self, block: int) -> int:
        """Rows of a block that earlier passes have filled."""
        return min(self.block_tokens, self.length - block * self.block_tokens)

    def _attend_in(
        self,
        store: KVStore,
        place: int,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        offset: int,
    ) -> torch.Tensor:
        """Attention over a layer all of whose rows are on the device."""
        start = self.length + offset
        store.write(place, start, k, v)
        end = start + k.shape[0]
        keys, values = store.filled(place, end)
        out = self.backend.attend(q, keys, values, length=end, causal=True)
        if self.observer is not None:
            self.observer(layer, q, keys, start=0, length=end, own=k.shape[0])
        return out

    # ---- a pass of few rows: the ring ----------------------------------------------------------------------

    def _attend_streamed(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, place = k.shape[0], self._place[layer]
        self._fresh.write(place, 0, k, v)
        own = self._fresh.filled(place, n)
        total = self.backend.attend_part(q, *own, length=n, causal=True)
        resident = min(self.length, self._stored.resident(layer) * self.block_tokens)
        if resident:
            total = self._joined(total, layer, q, self._stored.kept[layer].filled(0, resident), 0, resident)
        for block in self._away(layer):
            slot, arrival = self._flying.popleft()
            self._copies.wait(arrival)
            buffer = self._ring[0][slot], self._ring[1][slot]
            total = self._joined(total, layer, q, buffer, block * self.block_tokens, self._filled(block))
            self._fetch_block(slot)
        if self.observer is not None:
            self.observer(layer, q, own[0], start=self.length, length=n, own=n)
        return total[0].to(q.dtype)

    def _joined(
        self, total: Part, layer: int, q: torch.Tensor, buffer: Pair, start: int, length: int
    ) -> Part:
        """`total` and the attention over earlier tokens [start, start + length)."""
        if self.observer is not None:
            self.observer(layer, q, buffer[0], start=start, length=length, own=0)
        return self.backend.attend_more(total, q, *buffer, length=length)

    def _fetch_block(self, slot: int) -> None:
        """The next block of the pass goes to `slot`, if there is one."""
        for layer, block in self._queue:
            self._stored.host[layer].fetch(
                block, self._ring[0][slot, 0], self._ring[1][slot, 0], self._filled(block)
            )
            self._flying.append((slot, self._copies.mark()))
            return

    # ---- a segment of many rows: two places, a layer in each -----------------------------------------------

    def _enter(self, place: int) -> None:
        """Makes the layer at `place` of the streamed ones the one at work."""
        if self._entered == place:
            return
        if self._entered is not None:
            self._store_layer(self._entered)
        self._copies.wait(self._coming)
        self._entered, layer = place, self._streamed[place]
        resident = min(self._stored.resident(layer), -(-self.length // self.block_tokens))
        if resident:
            self._work.k[place % 2, :resident] = self._stored.kept[layer].k[0, :resident]
            self._work.v[place % 2, :resident] = self._stored.kept[layer].v[0, :resident]
        self._coming = self._fetch_layer(place + 1)

    def _leave(self) -> None:
        """The segment is over."""
        if self._entered is not None:
            self._store_layer(self._entered)
        self._entered = None

    def _fetch_layer(self, place: int) -> Mark:
        """Rows of earlier segments of a streamed layer, to where it will work. Returns when that place is
        ready for it.
        """
        for layer in self._streamed[place : place + 1]:
            for block in self._away(layer):
                self._stored.host[layer].fetch(
                    block, self._work.k[place % 2, block], self._work.v[place % 2, block], self._filled(block)
                )
        return self._copies.mark()

    def _store_layer(self, place: int) -> None:
        """The segment's rows of a layer that has done its work, to where they stay."""
        layer = self._streamed[place]
        for block, inside, _, count in pieces(self.length, self._end - self.length, self.block_tokens):
            k, v, rows = (
                self._work.k[place % 2, block],
                self._work.v[place % 2, block],
                slice(inside, inside + count),
            )
            if block < self._stored.resident(layer):
                for kept, part in zip(self._stored.block(layer, block), (k, v), strict=True):
                    kept[:, rows] = part[:, rows]
            else:
                self._stored.host[layer].store(block, k, v, rows)
        self._written = self._copies.mark()


def _drain(copies: Copies) -> None:
    copies.finish(copies.mark())
