"""New rows at a place of a one-block store that is data, not code: what a captured pass computes with. Knows
no kind of cache.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.backend.base import Backend, ScoreRequest
from core.cache.base import InPlaceRows, KVStore

Rotate = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


class FixedRows:
    """`n` rows to come. In a pass it stands for the cache; before each the owner says where they go
    (`place`).

    `rotate(layer, x [n, heads, head_dim], positions [n])`, for caches that rotate on read, is applied to
    every row of the store by its slot.
    """

    def __init__(self, store: KVStore, backend: Backend, n: int, rotate: Rotate | None = None) -> None:
        assert store.k.shape[1] == 1, "rows are found by slot in a store of one block"
        self.rotates_on_read = rotate is not None
        self._store, self._backend, self._rotate, self._n = store, backend, rotate, n
        self._positions, self._slots = (
            torch.zeros(n, dtype=torch.long, device=backend.device) for _ in range(2)
        )
        self._all_slots = torch.arange(store.capacity, device=backend.device)

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
        # [kv_heads, capacity, head_dim]
        keys, values = self._store.k[layer, 0], self._store.v[layer, 0]
        keys.index_copy_(1, self._slots, k.transpose(0, 1).to(keys.dtype))
        values.index_copy_(1, self._slots, v.transpose(0, 1).to(values.dtype))
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
