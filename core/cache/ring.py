"""The ring through which blocks in host memory pass the device. Knows no attention."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch

from core.backend.base import HostCopies, Mark
from core.cache.host import Pair
from core.cache.stored import StoredBlocks


class Ring:
    """Device buffers k, v [buffers, kv_heads, block_tokens, width], filled with one block after the other in
    the order of a whole pass: the bus does not rest between layers.
    """

    def __init__(self, stored: StoredBlocks, copies: HostCopies, k: torch.Tensor, v: torch.Tensor) -> None:
        self._stored, self._copies, self._buffers = stored, copies, (k, v)
        self._end = 0
        self._queue: Iterator[tuple[int, int]] = iter(())  # (layer, block) still to be fetched
        self._flying: deque[tuple[int, Mark]] = deque()  # buffers under way

    def begin(self, layers: Sequence[int], end: int) -> None:
        """A pass begins that reads the rows below `end` of these layers, perhaps after one that was broken
        off.
        """
        self._end = end
        self._flying.clear()
        self._queue = ((layer, block) for layer in layers for block in self._stored.away(layer, end))
        for slot in range(self._buffers[0].shape[0]):
            self._fetch(slot)

    def blocks(self, layer: int) -> Iterator[tuple[int, int, Pair]]:
        """The layer's blocks in host memory as they arrive: first token, rows, keys and values [1, kv_heads,
        block_tokens, width]. A buffer is filled again when the next one is asked for: what reads it must have
        been launched.
        """
        for block in self._stored.away(layer, self._end):
            slot, arrival = self._flying.popleft()
            self._copies.wait(arrival)
            buffer = tuple(part[slot : slot + 1] for part in self._buffers)
            yield block * self._stored.block_tokens, self._rows(block), buffer
            self._fetch(slot)

    def _rows(self, block: int) -> int:
        return min(self._stored.block_tokens, self._end - block * self._stored.block_tokens)

    def _fetch(self, slot: int) -> None:
        """The next block goes to `slot`, if there is one."""
        for layer, block in self._queue:
            rows = self._rows(block)
            buffer = (part[slot, :, :rows] for part in self._buffers)
            self._stored.host[layer].fetch(block, 0, *buffer)
            self._flying.append((slot, self._copies.mark()))
            return
