"""Calls the compiled kernels of kernel.py: attention of up to 40 queries over a cache of any length, of
numbers or of codes, in two launches. Knows no caches or models.

Which piece of the keys a program takes follows from the number of blocks alone, never from the number of
queries, and a query's arithmetic never looks at another: a row among many has the bits it has alone, wherever
both end in blocks of one number.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.backend.base import ScoreRequest
from core.backend.cuda.triton.driver import CudaDriver, LoadedKernel, read_kernel
from core.backend.cuda.triton.sizes import CHUNK, MOST_SPLITS, TILES, compiled
from core.backend.shared.kv_rows import CODES

MOST_ROWS = 40  # a verification has up to 33: all passes of an answer are computed alike
_LEAST_TOKENS = 128  # of a split
_ALL = 2**31 - 1  # a window that holds every token
_WHOLE = 16  # numbers that addresses and strides are multiples of: rows are read 16 bytes at a time

Part = tuple[torch.Tensor, torch.Tensor]  # out fp32 [n, heads, head_dim], lse fp32 [n, heads]


class DecodeAttention:
    """For 16-bit queries and keys of one head size on one card, or keys in codes. Raises OSError, ValueError
    or DriverError where the kernels cannot be loaded.

    `rows`: the type of keys and values as they lie (core.backend.shared.kv_rows); None: as the queries.
    `stream()` is the handle of the stream to compute on.
    """

    def __init__(
        self,
        driver: CudaDriver,
        device: torch.device,
        dtype: torch.dtype,
        head_dim: int,
        *,
        rows: torch.dtype | None = None,
        stream: Callable[[], int],
    ) -> None:
        self._dtype, self._head_dim, self._stream = dtype, head_dim, stream
        self._tiles = TILES[head_dim]
        self._rows = rows or dtype

        def load(function: str, *which: int, kind: torch.dtype = dtype, **how: bool) -> LoadedKernel:
            return driver.load(read_kernel(compiled(function, kind, head_dim, *which, **how)))

        coded = self._rows == CODES
        # the newest visible key of each row, for rows that see all alike and for own rows
        self._alike = torch.zeros(MOST_ROWS, dtype=torch.long, device=device)
        self._rising = torch.arange(MOST_ROWS, device=device)
        self._attend = {tile: load("attend_split", tile, coded=coded) for tile in self._tiles.rows}
        self._join = {kind: load("join_splits", kind=kind) for kind in (dtype, torch.float32)}
        self._attend_and_sum = load("attend_split", coded=coded, sums=True)

    def takes(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> bool:
        """Whether q [n, heads, head_dim] over k, v [blocks, kv_heads, block_tokens, width] is for this
        kernel.
        """
        types = (self._dtype, self._rows, self._rows)
        return (
            q.shape[0] <= MOST_ROWS
            and q.shape[2] == self._head_dim
            and all(one.dtype == kind and _whole(one) for one, kind in zip((q, k, v), types, strict=True))
            # places inside a block are 32-bit numbers
            and all(one.stride(2) * one.shape[2] < 2**31 for one in (k, v))
        )

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> torch.Tensor:
        """See Backend.attend."""
        last, offset = self._visible(q.shape[0], length, causal)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        return self._run(q, k, v, last, offset, out, sums=sums)[0]

    def attend_part(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> Part:
        """See Backend.attend_part."""
        last, offset = self._visible(q.shape[0], length, causal)
        return self._run(q, k, v, last, offset, q.new_empty(q.shape, dtype=torch.float32), sums=sums)

    def attend_more(
        self,
        total: Part,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        sums: ScoreRequest | None = None,
    ) -> Part:
        """See Backend.attend_more. Writes into `total`, which is contiguous."""
        last, offset = self._visible(q.shape[0], length, False)
        return self._run(q, k, v, last, offset, *total, sums=sums)

    def attend_slots(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, slots: torch.Tensor
    ) -> torch.Tensor:
        """See Backend.attend_slots, for k, v [1, kv_heads, capacity, head_dim]."""
        return self._run(q, k, v, slots, 0, torch.empty_like(q, memory_format=torch.contiguous_format))[0]

    def attend_window(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, window: int
    ) -> torch.Tensor:
        """See Backend.attend_window. Of rows that are numbers."""
        last, offset = self._visible(q.shape[0], length, True)
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        return self._run(q, k, v, last, offset, out, window=window)[0]

    def _visible(self, n: int, length: int, causal: bool) -> tuple[torch.Tensor, int]:
        return (self._rising, length - n) if causal else (self._alike, length - 1)

    def _run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        last: torch.Tensor,
        offset: int,
        out: torch.Tensor,
        running: torch.Tensor | None = None,
        *,
        window: int = _ALL,
        sums: ScoreRequest | None = None,
    ) -> Part:
        """Query i over the keys [0, last[i] + offset], the last `window` of them, into `out`; with a
        `running` log-sum-exp joined to what is in both.
        """
        (n, heads, head_dim), (blocks, kv_heads, block_tokens, _) = q.shape, k.shape
        rows, stream = n * heads // kv_heads, self._stream()
        _, each, splits = _splits(blocks, block_tokens, self._tiles.tokens)
        parts = out.new_empty((splits, n, heads, head_dim), dtype=torch.float32)
        part_lse = out.new_empty((splits, n, heads), dtype=torch.float32)
        tile, attend = self._for_rows(rows)
        found, chunks = part_lse, 0 if sums is None else _chunks(sums.chunk, blocks, block_tokens)
        if chunks:
            tile, attend = self._tiles.sums_rows, self._attend_and_sum
            found = q.new_full((heads, chunks), -torch.inf, dtype=torch.float32)
        strides = (*q.stride()[:2], *k.stride()[:3], *v.stride()[:3])
        attend(
            (-(-rows // tile), splits, kv_heads),
            stream,
            (
                *(q, k, v, last, parts, part_lse, found),
                *strides,
                *(offset, rows, heads // kv_heads, kv_heads, block_tokens, each, chunks, window),
            ),
        )
        if chunks:
            apart = sums.chunk // CHUNK
            sums.found = found if apart == 1 else found.unflatten(1, (-1, apart)).logsumexp(2)
        lse = out.new_empty((n, heads), dtype=torch.float32) if running is None else running
        self._join[out.dtype](
            (n * heads, 1, 1),
            stream,
            (parts, part_lse, out, lse, splits, n * heads, int(running is not None)),
        )
        return out, lse

    def _for_rows(self, rows: int) -> tuple[int, LoadedKernel]:
        """The height of a tile for so many rows of a KV head, and its kernel."""
        # two low tiles read the keys twice, a high one computes for rows that are not there
        low, high = self._tiles.rows
        tile = low if rows <= 2 * low else high
        return tile, self._attend[tile]


def _splits(blocks: int, block_tokens: int, tile_tokens: int) -> tuple[int, int, int]:
    """Tiles of all blocks, tiles of a split, splits: as many as there may be, whatever the length."""
    tiles = blocks * -(-block_tokens // tile_tokens)
    each = max(_LEAST_TOKENS // tile_tokens, -(-tiles // MOST_SPLITS))
    return tiles, each, max(1, -(-tiles // each))


def _chunks(chunk: int, blocks: int, block_tokens: int) -> int:
    """Chunks of CHUNK keys in all blocks, of which those of `chunk` are made; 0 where that does not come
    out even.
    """
    apart, of_block = chunk // CHUNK, -(-block_tokens // CHUNK)
    even = chunk % CHUNK == 0 and of_block % apart == 0 and (blocks == 1 or block_tokens % chunk == 0)
    return blocks * of_block if even else 0


def _whole(tensor: torch.Tensor) -> bool:
    """Whether its rows can be read 16 bytes at a time."""
    *strides, last = tensor.stride()
    return last == 1 and tensor.data_ptr() % _WHOLE == 0 and all(one % _WHOLE == 0 for one in strides)
