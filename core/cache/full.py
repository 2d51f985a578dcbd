"""The full KV cache, wholly on the backend's device. Knows nothing of speculation."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from core.backend.base import Backend
from core.cache.base import KVShape, KVStore

Observer = Callable[[int, torch.Tensor, torch.Tensor, int], None]


class FullKVCache:
    """Every token's exact keys and values, preallocated for `capacity` tokens.

    `observer(layer, q, k_blocks, length)`, when set, is called after each layer's attention: the retrieval cache looks at the queries of
    a verification there, while the keys are on the device.
    """

    rotates_on_read = False
    ready = True

    def __init__(self, shape: KVShape, capacity: int, backend: Backend, *, block_tokens: int = 512) -> None:
        self.store = KVStore(shape, capacity, block_tokens=block_tokens, dtype=backend.dtype, device=backend.device)
        self.backend = backend
        self.length = 0
        self.committed = 0
        self.observer: Observer | None = None

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
        """Copies of rows [start, start + n) of one layer, [n, kv_heads, head_dim] each."""
        return self.store.rows(layer, start, n)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Rows that were computed earlier, [n, kv_heads, head_dim] each. They count when every layer has them: `advance`, `commit`."""
        self.store.write(layer, start, k, v)

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        return torch.arange(self.length, self.length + n, device=self.backend.device)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache."""
        start = self.length + offset
        self.store.write(layer, start, k, v)
        end = start + k.shape[0]
        keys, values = self.store.filled(layer, end)
        out = self.backend.attend(q, keys, values, length=end, causal=True)
        if self.observer is not None:
            self.observer(layer, q, keys, end)
        return out

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
