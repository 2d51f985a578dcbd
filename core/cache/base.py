"""What every KV cache offers the model and the decoder, and the one layout they share. Knows nothing of
models or decoding.

Layout: keys and values are [layers][blocks][kv_heads][block_tokens][width], so that the filled blocks of a
layer are one contiguous piece whatever the capacity: one kernel call on the CPU, one copy to a GPU, one range
in a file. A row's `width` elements stand for head_dim numbers (core.backend.shared.kv_rows); who moves rows
does not look inside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from core.backend.base import ScoreRequest
from core.backend.shared.kv_rows import as_rows, both_as_rows, row_bytes, row_width


@dataclass(frozen=True, slots=True)
class StateShape:
    """Layers that keep a state of a fixed size instead of keys and values. `size` of one state; `width`:
    numbers that a token leaves until it is final; `tail`: tokens before it of which a token sees these.
    """

    layers: tuple[int, ...]
    size: tuple[int, int, int]  # heads, and the two sides of each one's matrix
    width: int
    tail: int


@dataclass(frozen=True, slots=True)
class KVShape:
    """The sizes that decide how large a token's keys and values are. `windowed`: the layers in which a token
    sees the last `window` tokens alone, itself among them. `states`: of the layers that have none.
    `window_heads`: KV heads of the windowed layers and their size; None: those of the others.
    """

    layers: int
    kv_heads: int
    head_dim: int
    window: int = 0
    windowed: tuple[int, ...] = ()
    states: StateShape | None = None
    window_heads: tuple[int, int] | None = None

    @property
    def beside(self) -> tuple[int, ...]:
        """The layers in which a token does not see every token before it."""
        return self.windowed if self.states is None else self.states.layers

    @property
    def seeing_all(self) -> tuple[int, ...]:
        """The layers in which a token sees every token before it."""
        return tuple(layer for layer in range(self.layers) if layer not in self.beside)

    @property
    def of_full(self) -> KVShape:
        """Of the layers that see every token, alone."""
        return KVShape(self.layers - len(self.beside), self.kv_heads, self.head_dim)

    @property
    def of_windows(self) -> KVShape:
        """Of the others."""
        return KVShape(len(self.windowed), *(self.window_heads or (self.kv_heads, self.head_dim)))

    def token_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the keys and values of one token in one layer, in rows of `dtype`."""
        return 2 * self.kv_heads * row_bytes(self.head_dim, dtype)


class InPlaceRows(NamedTuple):
    """Where a pass may write its rows, of all layers, and attend to those before them."""

    store: KVStore  # on the device
    start: int  # the first new row
    sums: ScoreRequest | None = None  # asked of its attention


class Recurrence(Protocol):
    """What a layer with a state computes, row by row, and of many rows `step_rows` at once."""

    step_rows: int

    def one_by_one(self, source: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Tokens from the state `source` to `target`, which may be the same, fp32 of the shape's size: `rows`
        [tail + tokens, width] ends with their own. Returns fp32 [tokens, heads, columns of the state].
        """
        ...

    def steps(self, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Tokens whose number is a multiple of `step_rows`, likewise, in place: [tokens, heads, columns of
        the state]. Other bits than `one_by_one` gives, or the same.
        """
        ...


class KVCache(Protocol):
    """Rows [0, length) are what the next tokens see; those from `committed` on may be rolled back."""

    length: int
    committed: int
    ready: bool  # False: holds nothing to draft from yet
    # True: keys are stored before RoPE and rotated by slot when read
    rotates_on_read: bool

    @property
    def oldest_rollback(self) -> int: ...

    def positions(self, n: int) -> torch.Tensor:
        """Rotary positions [n] of the next n tokens."""
        ...

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """Stores rows length + offset ... of `layer` and attends causally over everything up to them.

        q [n, heads, head_dim] rotated; k, v [n, kv_heads, head_dim] (k rotated unless `rotates_on_read`).
        Returns [n, heads, head_dim]. `offset` lets one layer take several chunks of a segment before
        `advance`.
        """
        ...

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """As `attend`, for a layer that has no rows of its own: over those of `layer`, which had its own in
        this pass. q and what it returns [n, heads, head_dim]. Nobody who watches is shown it. Not in a
        segment, nor where rows lie in host memory.
        """
        ...

    def recur(
        self, layer: int, rows: torch.Tensor, recurrence: Recurrence, *, offset: int = 0
    ) -> torch.Tensor:
        """As `attend`, of a layer with a state: `rows` [n, width] is what the recurrence makes of tokens
        length + offset ... Returns [n, heads, columns of the state]. A cache of a model without such layers
        lacks this verb.
        """
        ...

    def in_place(self) -> InPlaceRows | None:
        """None: by `attend` alone."""
        ...

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """Such a pass wrote its rows; it asked [layers, n, heads, head_dim], rotated, and may have left the
        sums of its place. Before `advance`.
        """
        ...

    def advance(self, n: int) -> None:
        """Counts n rows that every layer has stored; once per forward pass or segment."""
        ...

    def missing(self, length: int) -> Iterator[range]:
        """Tokens of the conversation to feed and commit, piece by piece, before token `length` is fed in the
        same pass as a draft.

        Empty when what is missing is small enough to go with the draft's own pass.
        """
        ...

    def commit(self, length: int) -> None:
        """Rows below `length` are final; the rest is dropped. A cache that is fed by a drafter may hold
        fewer.
        """
        ...

    def rollback(self, length: int) -> None:
        """Drops the rows from `length` on. Raises ValueError below `oldest_rollback`."""
        ...

    def reset(self) -> None:
        """As new."""
        ...


class SlotCache(KVCache, Protocol):
    """Its rows lie in a store of one block, so where the next ones go is one number."""

    store: KVStore

    def place(self) -> tuple[int, int]:
        """Rotary position and slot of the next token."""
        ...

    def fixed(self, n: int) -> GraphInputs:
        """What stands for this cache, and for any other over the same store, in a recorded pass of `n`
        rows.
        """
        ...


class GraphInputs(Protocol):
    """What a pass of a fixed number of rows asks of a cache, by tensors alone."""

    rotates_on_read: bool

    def place(self, position: int, slot: int) -> None:
        """Where the first row of the next pass goes."""
        ...

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache.positions."""
        ...

    def in_place(self) -> InPlaceRows | None:
        """See KVCache.in_place."""
        ...

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache.passed."""
        ...

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache.attend."""
        ...

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache.attend_again; q and what it returns [n, heads, head_dim]."""
        ...

    def advance(self, n: int) -> None:
        """See KVCache.advance."""
        ...


class KeyHook(Protocol):
    """Is shown keys while they are on the device: once per layer and pass, or once for each part of a layer's
    keys.
    """

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, *, start: int, length: int, own: int
    ) -> None:
        """q [n, heads, head_dim] of the whole pass; k, rows [blocks, kv_heads, block_tokens, width], holds
        tokens [start, start + length).

        The last `own` of them (0 or n) are the pass's own rows: query i sees all but the last own - 1 - i.
        Rotated, both. Where `observed_chunk` asked for it and attention left it, `sums` comes besides:
        Backend.chunk_lse of the first query over the keys here that it sees.
        """
        ...


# Is handed the rotated queries [n, heads, head_dim] of every layer in every pass; the first stands at token
# `start`: witness(layer, q, start).
Witness = Callable[[int, torch.Tensor, int], None]


class TargetKVCache(KVCache, Protocol):
    """Every token's exact keys and values, wherever they lie: what verification reads and a retrieval cache
    copies from.
    """

    shape: KVShape
    dtype: torch.dtype  # of its rows
    block_tokens: int
    observer: KeyHook | None
    observed_chunk: int | None  # the chunk of which the observer takes sums
    witness: Witness | None

    @property
    def of_one_block(self) -> bool:
        """Whether all rows lie on the device in one block: then it is a WholeKVCache."""
        ...

    @property
    def capacity(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def bytes_moved(self) -> int:
        """Bytes of keys and values that crossed from host memory to the device so far."""
        ...

    @property
    def swept_layers(self) -> Collection[int]:
        """Layers whose chunks in a segment come by `attend_later`; a cache without any lacks that verb."""
        ...

    def resumable(self, length: int) -> int:
        """The largest length up to `length` that `rollback` can go to."""
        ...

    def remember(self) -> None:
        """The conversation will come back to the present length."""
        ...

    def attend_on_host(self, share: float) -> None:
        """From the next pass on, the CPU attends to so much of what lies in host memory, from 0 (nothing) to
        1 (everything), in passes of few rows.
        """
        ...

    def begin_segment(self) -> None:
        """The rows up to the next `advance` come layer by layer, in chunks."""
        ...

    def attend_later(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int
    ) -> None:
        """As `attend`, q [n, heads, head_dim] and k, v [n, kv_heads, head_dim], of one chunk of a segment
        after the other; `attended` has the results when all have come.
        """
        ...

    def attended(self, layer: int, offset: int, n: int) -> torch.Tensor:
        """What rows [offset, offset + n) of the segment found, [n, heads, head_dim], chunk by chunk in their
        order.
        """
        ...

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of rows [start, start + n) of one layer, [n, kv_heads, width] each, on the device or in host
        memory.
        """
        ...

    def keys(self, layer: int, kv_head: int, start: int, end: int) -> Iterator[torch.Tensor]:
        """Rotated keys [rows, head_dim] of tokens [start, end) of one KV head, piece by piece in their order,
        each where it lies, on the device or in host memory.
        """
        ...

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Rows as `rows` gave them, [n, kv_heads, width] each. They count when every layer has them:
        `advance`, `commit`.
        """
        ...

    def copy_rows(self, target: KVStore, start: int, to: int, n: int) -> None:
        """Rows [start, start + n) of all layers become rows [to, to + n) of `target`, which is on the
        device.
        """
        ...

    def copy_chunks(self, target: KVStore, chunks: torch.Tensor, chunk: int) -> None:
        """Chunks of `chunk` rows, chosen per layer and KV head [layers, kv_heads, m], become rows [0, m *
        chunk) of `target`.
        """
        ...


class KVStore:
    """Preallocated keys and values in the shared layout, in rows of `dtype`. Rows never written are zero, so
    hidden keys are finite.
    """

    def __init__(
        self, shape: KVShape, capacity: int, *, block_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        blocks = -(-capacity // block_tokens)
        size = (shape.layers, blocks, shape.kv_heads, block_tokens, row_width(shape.head_dim, dtype))
        self.k = torch.zeros(size, dtype=dtype, device=device)
        self.v = torch.zeros(size, dtype=dtype, device=device)
        self.shape, self.dtype = shape, dtype
        self.block_tokens = block_tokens
        self.capacity = blocks * block_tokens

    @property
    def nbytes(self) -> int:
        """Bytes held, filled or not."""
        return self.k.nbytes + self.v.nbytes

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Rows [start, start + n) of one layer from k, v [n, kv_heads, head_dim], or from rows of another
        cache in their place.
        """
        n = k.shape[0]
        assert start + n <= self.capacity, (
            f"rows {start}..{start + n} do not fit a KV store of {self.capacity}"
        )
        k, v = both_as_rows(k, v, self.shape.head_dim, self.dtype)
        for block, inside, first, count in pieces(start, n, self.block_tokens):
            self.k[layer, block, :, inside : inside + count] = k[first : first + count].transpose(0, 1)
            self.v[layer, block, :, inside : inside + count] = v[first : first + count].transpose(0, 1)

    def move(self, source: int, target: int, n: int) -> None:
        """In a store of one block: rows [source, source + n) of all layers become rows [target, ...)."""
        for part in (self.k, self.v):
            part[:, 0, :, target : target + n] = part[:, 0, :, source : source + n].clone()

    def put(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """As `write`, from k, v [kv_heads, n, width]."""
        self.write(layer, start, k.transpose(0, 1), v.transpose(0, 1))

    def filled(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views [blocks, kv_heads, block_tokens, width] of the blocks of the first `length` rows."""
        used = -(-length // self.block_tokens)
        return self.k[layer, :used], self.v[layer, :used]

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of rows [start, start + n) of one layer, [n, kv_heads, width] each."""
        index = torch.arange(start, start + n, device=self.k.device)
        block, inside = index // self.block_tokens, index % self.block_tokens
        return self.k[layer][block, :, inside], self.v[layer][block, :, inside]

    def copy_rows(self, source: KVStore, source_start: int, start: int, n: int) -> None:
        """Rows of all layers from another store of the same shape."""
        index = torch.arange(source_start, source_start + n, device=source.k.device)
        block, inside = index // source.block_tokens, index % source.block_tokens
        # [n, layers, kv_heads, width]
        found = (part[:, block, :, inside] for part in (source.k, source.v))
        k, v = (as_rows(part, self.shape.head_dim, self.dtype) for part in found)
        for own, here, first, count in pieces(start, n, self.block_tokens):
            self.k[:, own, :, here : here + count] = k[first : first + count].permute(1, 2, 0, 3)
            self.v[:, own, :, here : here + count] = v[first : first + count].permute(1, 2, 0, 3)

    def copy_chunks(self, source: KVStore, chunks: torch.Tensor, chunk: int) -> None:
        """Rows [0, m * chunk) of each layer and head from the chunks [layers, kv_heads, m] of a store of the
        same shape.
        """
        layers, kv_heads, m = chunks.shape
        per_block = source.block_tokens // chunk
        head = torch.arange(kv_heads, device=chunks.device).view(-1, 1)
        # which of a layer's chunks, as they lie
        places = (chunks // per_block * kv_heads + head) * per_block + chunks % per_block
        for target, rows in ((self.k, source.k), (self.v, source.v)):
            width = rows.shape[-1]
            for layer in range(layers):  # all at once would be as much memory as the target has
                picked = rows[layer].view(-1, chunk * width).index_select(0, places[layer].flatten())
                target[layer, 0, :, : m * chunk] = as_rows(
                    picked.view(kv_heads, m * chunk, width), self.shape.head_dim, self.dtype
                )


def pieces(start: int, n: int, block_tokens: int) -> Iterator[tuple[int, int, int, int]]:
    """(block, row inside it, row inside the source, count) for each block that rows [start, start + n)
    touch.
    """
    done = 0
    while done < n:
        block, inside = divmod(start + done, block_tokens)
        count = min(block_tokens - inside, n - done)
        yield block, inside, done, count
        done += count
