"""The ring through which blocks in host memory pass the device. Knows no attention."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

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
        self._end, self._starts = 0, dict[int, int]()
        self._queue: Iterator[tuple[int, int]] = iter(())  # (layer, block) still to be fetched
        self._flying: deque[tuple[int, Mark]] = deque()  # buffers under way

    def begin(self, starts: Mapping[int, int], end: int) -> None:
        """A pass begins that reads rows [start, end) of these layers in host memory, perhaps after one that
        was broken off.
        """
        self._starts, self._end = starts, end
        self._flying.clear()
        self._queue = ((layer, block) for layer in starts for block in self._blocks(layer))
        for slot in range(self._buffers[0].shape[0]):
            self._fetch(slot)

    def blocks(self, layer: int) -> Iterator[tuple[int, int, Pair]]:
        """The layer's blocks in host memory as they arrive: first token, rows, keys and values [1, kv_heads,
        block_tokens, width]. A buffer is filled again when the next one is asked for: what reads it must have
        been launched.
        """
        for block in self._blocks(layer):
            slot, arrival = self._flying.popleft()
            self._copies.wait(arrival)
            buffer = tuple(part[slot : slot + 1] for part in self._buffers)
            inside, rows = self._wanted(layer, block)
            yield block * self._stored.block_tokens + inside, rows, buffer
            self._fetch(slot)

    def _blocks(self, layer: int) -> range:
        size, start = self._stored.block_tokens, self._starts[layer]
        return range(start // size, -(-self._end // size)) if start < self._end else range(0)

    def _wanted(self, layer: int, block: int) -> tuple[int, int]:
        """Where in the block the wanted rows begin, and how many there are."""
        size = self._stored.block_tokens
        inside = max(0, self._starts[layer] - block * size)
        return inside, min(size, self._end - block * size) - inside

    def _fetch(self, slot: int) -> None:
        """The next block goes to `slot`, if there is one."""
        for layer, block in self._queue:
            inside, rows = self._wanted(layer, block)
            buffer = (part[slot, :, :rows] for part in self._buffers)
            self._stored.host[layer].fetch(block, inside, *buffer)
            self._flying.append((slot, self._copies.mark()))
            return
