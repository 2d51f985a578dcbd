"""One block of rows for layers whose heads are of two sizes: those that see every token, and those with a
window (Gemma 4). Knows no kind of cache.
"""

from __future__ import annotations

from typing import Any

import torch

from core.cache.base import KVShape, KVStore


class TwoSizedStore:
    """As a KVStore of one block, by the numbers of all layers."""

    def __init__(self, shape: KVShape, capacity: int, **how: Any) -> None:
        full, windows = KVStore(shape.of_full, capacity, **how), KVStore(shape.of_windows, capacity, **how)
        self.capacity, self.block_tokens = full.capacity, full.block_tokens
        self._parts = full, windows
        self._places = {
            layer: (store, place)
            for store, layers in ((full, shape.seeing_all), (windows, shape.windowed))
            for place, layer in enumerate(layers)
        }

    @property
    def nbytes(self) -> int:
        """See KVStore."""
        return sum(part.nbytes for part in self._parts)

    def write(self, layer: int, start: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """See KVStore."""
        store, place = self._places[layer]
        store.write(place, start, k, v)

    def filled(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """See KVStore."""
        store, place = self._places[layer]
        return store.filled(place, length)

    def move(self, source: int, target: int, n: int) -> None:
        """See KVStore."""
        for part in self._parts:
            part.move(source, target, n)


OneBlockStore = KVStore | TwoSizedStore


def store_of(shape: KVShape, capacity: int, **how: Any) -> OneBlockStore:
    """A store of all layers of `shape`, whatever their heads; `how` as for a KVStore."""
    alike = shape.window_heads in (None, (shape.kv_heads, shape.head_dim))
    return (KVStore if alike else TwoSizedStore)(shape, capacity, **how)
