"""New rows at a place of a one-block store that is data, not code: what a captured pass computes with. Knows
no kind of cache.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.backend.base import Backend, ScoreRequest
from core.backend.shared.kv_rows import both_as_rows
from core.cache.base import InPlaceRows
from core.cache.two_sizes import OneBlockStore

Rotate = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


class FixedRows:
    """`n` rows to come. In a pass it stands for the cache; before each the owner says where they go
    (`place`).

    `rotate(layer, x [n, heads, head_dim], positions [n])`, for caches that rotate on read, is applied to
    every row of the store by its slot.
    """

    def __init__(self, store: OneBlockStore, backend: Backend, n: int, rotate: Rotate | None = None) -> None:
        assert store.block_tokens == store.capacity, "rows are found by slot in a store of one block"
        self.rotates_on_read = rotate is not None
        self._store, self._backend, self._rotate, self._n = store, backend, rotate, n
        self._positions, self._slots = (
            torch.zeros(n, dtype=torch.long, device=backend.device) for _ in range(2)
        )
        # where a cache is a book, nobody asks for as many numbers
        self._all_slots = torch.arange(store.capacity if rotate else 0, device=backend.device)

    def place(self, position: int, slot: int) -> None:
        """The first row's rotary position and slot; the others follow."""
        assert slot + self._n <= self._store.capacity, (
            f"rows {slot}..{slot + self._n} do not fit {self._store.capacity}"
        )
        torch.arange(position, position + self._n, out=self._positions)
        torch.arange(slot, slot + self._n, out=self._slots)

    def positions(self, n: int) -> torch.Tensor:
        """See KVCache."""
        assert n == self._n, f"{n} rows where {self._n} were fixed"
        return self._positions

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        # [kv_heads, capacity, width]
        keys, values = (part[0] for part in self._store.filled(layer, self._store.capacity))
        for part, rows in zip((keys, values), both_as_rows(k, v, q.shape[-1], keys.dtype), strict=True):
            part.index_copy_(1, self._slots, rows.transpose(0, 1))
        return self.attend_again(layer, q)

    def attend_again(self, layer: int, q: torch.Tensor, *, offset: int = 0) -> torch.Tensor:
        """See KVCache; q and what it returns [n, heads, head_dim]."""
        keys, values = (part[0] for part in self._store.filled(layer, self._store.capacity))
        if self._rotate is not None:
            keys = self._rotate(layer, keys.transpose(0, 1), self._all_slots).transpose(0, 1)
        return self._backend.attend_slots(q, keys, values, slots=self._slots)

    def in_place(self) -> InPlaceRows | None:
        """See KVCache. Where rows go is data here."""
        return None

    def passed(self, q: torch.Tensor, sums: ScoreRequest | None) -> None:
        """See KVCache. There is no such pass."""

    def advance(self, n: int) -> None:
        """The cache that was stood for counts its rows itself."""


class WitnessedRows(FixedRows):
    """Likewise, and keeps each layer's queries [n, heads, head_dim] where the pass left them: who watches is
    shown them behind it.
    """

    def __init__(self, store: OneBlockStore, backend: Backend, n: int) -> None:
        super().__init__(store, backend, n)
        self.queries: dict[int, torch.Tensor] = {}  # by layer

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        """See KVCache."""
        self.queries[layer] = q
        return super().attend(layer, q, k, v, offset=offset)
