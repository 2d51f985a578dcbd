"""The full KV cache, wholly on the backend's device. Knows nothing of speculation."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from core.backend.base import Backend, ScoreRequest
from core.backend.shared.kv_rows import dequantized
from core.cache.base import InPlaceRows, KeyHook, KVShape, KVStore, Witness, pieces
from core.cache.fixed import WitnessedRows
from core.cache.observed import ObservedAttention, wanted_sums


class FullKVCache:
    """Every token's exact keys and values, preallocated for `capacity` tokens in rows of `dtype` (None: of
    the numbers that the backend computes with).

    `observer`, when set, is shown each layer's queries and all its keys after the attention; `witness`, when
    set, is handed the queries alone.
    """

    rotates_on_read = False
    ready = True
    bytes_moved = 0
    swept_layers = ()

    def __init__(
        self,
        shape: KVShape,
        capacity: int,
        backend: Backend,
        *,
        block_tokens: int = 512,
        dtype: torch.dtype | None = None,
    ) -> None:
        assert not shape.windowed, "layers with a window are held beside it: core.cache.layered"
        self.store = KVStore(
            shape, capacity, block_tokens=block_tokens, dtype=dtype or backend.storage, device=backend.device
        )
        self.shape, self.block_tokens, self.backend = shape, block_tokens, backend
        self.dtype = self.store.dtype
        self.length = 0
        self.committed = 0
        self.observer: KeyHook | None = None
        self.observed_chunk: int | None = None
        self.witness: Witness | None = None

    @property
    def oldest_rollback(self) -> int:
        """Every prefix is kept."""
        return 0

    @property
    def nbytes(self) -> int:
        """Bytes of the preallocated store."""
        return self.store.nbytes

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return self.store.capacity

    def rows(self, layer: int, start: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See TargetKVCache."""
        return self.store.rows(layer, start, n)

    def keys(self, layer: int, kv_head: int, start: int, end: int) -> Iterator[torch.Tensor]:
        """See TargetKVCache."""
        for block, inside, _, count in pieces(start, end - start, self.block_tokens):
            rows = self.store.k[layer, block, kv_head, inside : inside + count]
            yield dequantized(rows, self.shape.head_dim, self.backend.dtype)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """See TargetKVCache."""
        self.store.write(layer, start, k, v)

    def copy_rows(self, target: KVStore, start: int, to: int, n: int) -> None:
        """See TargetKVCache."""
        target.copy_rows(self.store, start, to, n)

    def copy_chunks(self, target: KVStore, chunks: torch.Tensor, chunk: int) -> None:
        """See TargetKVCache."""
        target.copy_chunks(self.store, chunks, chunk)

    def resumable(self, length: int) -> int:
        """See TargetKVCache. Every prefix is kept."""
        return length

    def remember(self) -> None:
        """See TargetKVCache. Every prefix is kept."""

    def attend_on_host(self, share: float) -> None:
        """See TargetKVCache. Nothing lies in host memory."""

    def begin_segment(self) -> None:
        """See TargetKVCache. All is in place."""

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        return torch.arange(self.length, self.length + n, device=self.backend.device)

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        start = self.length + offset
        if self.witness is not None:
            self.witness(layer, q, start)
        self.store.write(layer, start, k, v)
        end = start + k.shape[0]
        keys, values = self.store.filled(layer, end)
        observed = ObservedAttention(self, layer, q)
        out = self.backend.attend(q, keys, values, length=end, causal=True, sums=observed.sums)
        observed.show(keys, start=0, length=end, own=k.shape[0])
        return out

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [n, heads, head_dim]."""
        end = self.length + offset + q.shape[0]
        keys, values = self.store.filled(layer, end)
        return self.backend.attend(q, keys, values, length=end, causal=True)

    @property
    def of_one_block(self) -> bool:
        """See TargetKVCache."""
        return self.store.block_tokens == self.store.capacity

    def place(self) -> tuple[int, int]:
        """See WholeKVCache."""
        return self.length, self.length

    def fixed(self, n: int) -> WitnessedRows:
        """See WholeKVCache."""
        return WitnessedRows(self.store, self.backend, n)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache."""
        return InPlaceRows(self.store, self.length, wanted_sums(self))

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. Who watches is shown every layer, as if it were computed now."""
        end = self.length + q.shape[1]
        for layer in range(self.shape.layers if self.witness or self.observer else 0):
            if self.witness is not None:
                self.witness(layer, q[layer], self.length)
            observed = ObservedAttention(self, layer, q[layer], sums and sums.of(layer))
            observed.show(self.store.filled(layer, end)[0], start=0, length=end, own=q.shape[1])

    def advance(self, n: int) -> None:
        """See KVCache."""
        self.length += n

    def missing(self, length: int) -> Iterator[range]:
        """See KVCache. Nothing: a long prompt is prefilled, a short rest goes with the pass."""
        return iter(())

    def commit(self, length: int) -> None:
        """See KVCache."""
        assert length <= self.length, f"commit({length}) beyond the {self.length} tokens held"
        self.length = self.committed = length

    def rollback(self, length: int) -> None:
        """See KVCache."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll a cache of {self.length} tokens back to {length}")
        self.length = length
        self.committed = min(self.committed, length)

    def reset(self) -> None:
        """See KVCache."""
        self.length = self.committed = 0
