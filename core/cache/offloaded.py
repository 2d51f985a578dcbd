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

Or the CPU attends to the oldest of them where they lie, while the bus brings the rest: to all of them, which
is the baseline of the papers, or to a share. What it found is joined to the other parts in the same way.

A segment of many rows (prefill) works on one layer at a time (core.cache.segment): what lies in host memory
crosses the bus once per layer and segment, rows of the segment itself never.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator

import torch

from core.backend.base import Backend, HostCopies, ScoreRequest
from core.backend.shared.kv_rows import dequantized
from core.backend.shared.merge import merge_into
from core.cache.base import InPlaceRows, KeyHook, KVShape, KVStore, Witness, pieces
from core.cache.fresh import FreshRows, landing_bytes
from core.cache.host import Pair
from core.cache.observed import ObservedAttention
from core.cache.segment import SegmentSizes, SweptLayers, WholeLayers
from core.cache.stored import StoredBlocks, host_bytes

Part = tuple[torch.Tensor, torch.Tensor]  # out fp32 [n, heads, head_dim], lse fp32 [n, heads]
_SHARE_STEP = 64  # tokens


class OffloadedKVCache:
    """Every token's exact keys and values for `capacity` tokens in rows of `dtype` (None: of the numbers that
    the backend computes with), the first `resident_blocks` blocks of the first `resident_layers` layers on
    the device (None: all their blocks).

    `fresh_tokens` bounds the rows of a pass that streams; a longer one is treated as a segment. `swept`: how
    segments are, whose past streams too (None: a layer at work has all its rows on the device). `observer`,
    when set, is shown each part of a layer's keys, the pass's own rows last; `witness`, when set, is handed
    the queries alone.
    """

    rotates_on_read = False
    ready = True
    of_one_block = False

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
        swept: SegmentSizes | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        assert staging_blocks > 0, "a ring without buffers"
        assert not shape.windowed, "layers with a window are held beside it: core.cache.layered"
        self.shape, self.block_tokens, self.backend = shape, block_tokens, backend
        self.dtype = dtype or backend.storage
        self.blocks = -(-capacity // block_tokens)
        self._copies, self._on_host = backend.copies(), backend.host_attention()
        # memory must not go while copies still use it; who asks the CPU holds what it reads
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
        self._fresh_tokens, self._staging_blocks, self._swept = fresh_tokens, staging_blocks, swept
        self._lay_out()
        self.observer: KeyHook | None = None
        self.observed_chunk: int | None = None
        self.witness: Witness | None = None
        self.length = self.committed = 0
        self._announced = self._in_segment = self._in_stream = False
        self._share = 0.0  # of what lies in host memory, that is the CPU's
        self._borders: dict[int, int] = {}  # in each streamed layer the first token that crosses the bus
        self._written = self._copies.mark()  # behind the last copy to the host

    def _lay_out(self) -> None:
        """What follows from which layers are streamed."""
        shape, backend, dtype = self.shape, self.backend, self.dtype
        self._streamed = list(self._stored.host)
        self._place = {layer: place for place, layer in enumerate(self._streamed)}
        how = {"staging_blocks": self._staging_blocks, "dtype": dtype}
        self._segment = (
            SweptLayers(self._stored, backend, self._copies, shape, **how, swept=self._swept)
            if self._swept
            else WholeLayers(self._stored, backend, self._copies, shape, **how)
        )
        self._fresh = FreshRows(
            self._stored, backend, self._copies, shape, tokens=self._fresh_tokens, dtype=dtype
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
        return self.device_bytes + self._stored.host_bytes + self._fresh.host_bytes

    @property
    def device_bytes(self) -> int:
        """Bytes held on the device."""
        return sum(one.nbytes for one in (*self._stored.kept, self._segment, self._fresh))

    @property
    def bytes_moved(self) -> int:
        """See TargetKVCache."""
        return self._copies.bytes_to_device

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        return torch.arange(self.length, self.length + n, device=self.backend.device)

    def resumable(self, length: int) -> int:
        """See TargetKVCache. Every prefix is kept."""
        return length

    def remember(self) -> None:
        """See TargetKVCache. Every prefix is kept."""

    def begin_segment(self) -> None:
        """See TargetKVCache."""
        self._announced = True

    def attend_on_host(self, share: float) -> None:
        """See TargetKVCache. In a pass whose keys are looked at everything crosses the bus."""
        self._share = share

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        self._meet(layer, q, offset)
        if layer not in self._place:
            return self._attend_kept(layer, q, k, v, offset)
        if not self._in_segment:
            return self._attend_streamed(layer, q, k, v)
        return self._segment.attend(layer, q, k, v, self.length + offset, self.observer)

    @property
    def swept_layers(self) -> Collection[int]:
        """See TargetKVCache."""
        return self._place.keys() if self._swept else ()

    def attend_later(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int
    ) -> None:
        """See TargetKVCache."""
        self._meet(layer, q, offset)
        self._segment.hold(layer, q, k, v, self.length + offset, self.observer)

    def attended(self, layer: int, offset: int, n: int) -> torch.Tensor:
        """See TargetKVCache."""
        return self._segment.result(layer, self.length + offset, n)

    def _meet(self, layer: int, q: torch.Tensor, offset: int) -> None:
        """Rows of a layer are coming."""
        end = self.length + offset + q.shape[0]
        assert end <= self.capacity, f"row {end} of a cache for {self.capacity}"
        if layer == 0 and offset == 0:
            self._begin(q.shape[0])
        if self.witness is not None:
            self.witness(layer, q, self.length + offset)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache. Most rows are elsewhere."""
        return None

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. There is no such pass."""

    def advance(self, n: int) -> None:
        """See KVCache."""
        if self._in_segment:
            self._segment.places.end()
            self._written = self._segment.places.written
        elif self._in_stream:
            self._written = self._fresh.land(self.length, n)
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
        self._break_off()

    def _break_off(self) -> None:
        """No pass is under way any more; what a segment sent to host memory may still be on its way there."""
        if self._in_segment:
            self._written = self._segment.places.written
        self._in_segment = self._in_stream = False

    def keep_on_device(self, layers: int, *, swept: SegmentSizes | None = None) -> None:
        """Only the first `layers` layers stay on the device; the committed rows of the others go to host
        memory, all else of the pass that was under way is gone. `swept`: as when it was made. Raises
        MemoryError, and the backend's way of saying that the device is full: then the cache is of no more
        use.
        """
        self._copies.finish(self._copies.mark())
        self.rollback(self.committed)
        self._settle()
        self._segment = self._fresh = None
        self._swept = swept
        while len(self._stored.kept) > layers:
            self._stored.let_go(self.length)
        self._lay_out()

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
            yield dequantized(rows, self.shape.head_dim, self.backend.dtype)

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
        at_hand = self._fresh.holds(start, n)
        if not at_hand:
            self._settle()
            self._copies.finish(self._written)
        index, here = (
            torch.arange(start, start + n, device=device).expand(self.shape.kv_heads, n)
            for device in (torch.device("cpu"), self.backend.device)
        )
        for layer in range(self.shape.layers):
            if layer in self._place and at_hand:
                rows = self._fresh.rows(self._place[layer], start, n)
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
        """Puts the rows of the last short pass into their places, as far as they were not rolled back. Before
        anything is written, what the CPU still reads for a pass that was broken off comes to its end.
        """
        self._on_host.finish()
        self._fresh.settle(self._written)

    # ---- a pass --------------------------------------------------------------------------------------------

    def _begin(self, n: int) -> None:
        """A new pass or segment, perhaps after one that was broken off."""
        self._break_off()
        self._settle()
        self._fresh.begin()
        self._in_segment = bool(self._streamed) and (self._announced or n > self._fresh.capacity)
        self._in_stream = bool(self._streamed) and not self._in_segment
        self._announced = False
        if self._in_segment:
            self._segment.begin(self.length)
        elif self._in_stream:
            self._borders = self._share_out()
            self._segment.ring.begin(self._borders, self.length)

    def _attend_kept(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offset: int
    ) -> torch.Tensor:
        """Attention over a layer all of whose rows stay on the device."""
        start, store = self.length + offset, self._stored.kept[layer]
        store.write(0, start, k, v)
        end = start + k.shape[0]
        keys, values = store.filled(0, end)
        observed = ObservedAttention(self, layer, q)
        out = self.backend.attend(q, keys, values, length=end, causal=True, sums=observed.sums)
        observed.show(keys, start=0, length=end, own=k.shape[0])
        return out

    # ---- a pass of few rows: the ring ----------------------------------------------------------------------

    def _share_out(self) -> dict[int, int]:
        """See `_borders`; rows in host memory before them are the CPU's. It reads none before they landed."""
        firsts = {layer: min(first, self.length) for layer, first in self._stored.first_away().items()}
        if not self._share or self.observer is not None:
            return firsts
        self._copies.finish(self._written)
        return {layer: first + self._of_host(self.length - first) for layer, first in firsts.items()}

    def _of_host(self, rows: int) -> int:
        """How many of so many rows are the CPU's."""
        return rows if self._share == 1.0 else int(self._share * rows) // _SHARE_STEP * _SHARE_STEP

    def _attend_streamed(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, place = k.shape[0], self._place[layer]
        resident = min(self.length, self._stored.resident(layer) * self.block_tokens)
        if on_host := self._borders[layer] - resident:
            self._on_host.ask(q, *self._stored.host[layer].first(on_host), length=on_host)
        own = self._fresh.write(place, k, v)
        observed = ObservedAttention(self, layer, q)
        total = self.backend.attend_part(q, *own, length=n, causal=True, sums=observed.sums)
        if resident:
            self._join(total, layer, q, self._stored.kept[layer].filled(0, resident), 0, resident)
        for start, rows, buffer in self._segment.ring.blocks(layer):
            self._join(total, layer, q, buffer, start, rows)
        if on_host:
            merge_into(*total, *self._on_host.part())
        observed.show(own[0], start=self.length, length=n, own=n)
        return total[0].to(q.dtype)

    def _join(self, total: Part, layer: int, q: torch.Tensor, buffer: Pair, start: int, length: int) -> None:
        """The attention over earlier tokens [start, start + length) goes into `total`."""
        observed = ObservedAttention(self, layer, q)
        self.backend.attend_more(total, q, *buffer, length=length, sums=observed.sums)
        observed.show(buffer[0], start=start, length=length, own=0)


def host_pieces(
    shape: KVShape,
    capacity: int,
    *,
    block_tokens: int,
    resident_layers: int,
    resident_blocks: int | None = None,
    fresh_tokens: int,
    dtype: torch.dtype,
) -> list[int]:
    """Bytes of each piece of host memory that an OffloadedKVCache made with these takes, in its order."""
    blocks = -(-capacity // block_tokens)
    kept = blocks if resident_blocks is None else min(resident_blocks, blocks)
    away = [blocks - kept] * resident_layers + [blocks] * (shape.layers - resident_layers)
    streamed = [host_bytes(shape, many, block_tokens, dtype) for many in away if many]
    landing = landing_bytes(shape, len(streamed), fresh_tokens, dtype)
    return [nbytes for pair in (*streamed, landing) for nbytes in pair]


def _drain(copies: HostCopies) -> None:
    copies.finish(copies.mark())
