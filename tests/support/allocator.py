"""Counts what a computation on the `meta` device would hold of a card's memory, as CUDA's caching allocator
would: nothing is computed, so models of full size pass in seconds.

Sizes and rules are those of c10/cuda/CUDACachingAllocator.cpp: small blocks share segments of 2 MiB, middling
ones of 20 MiB, larger ones are rounded to 2 MiB; blocks are split and joined again; segments that are wholly
free go back only when the device is full.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MIB = 1 << 20
_ROUND, _SMALL, _LARGE_FROM = 512, MIB, 10 * MIB
_SMALL_SEGMENT, _MIDDLE_SEGMENT, _LARGE_STEP = 2 * MIB, 20 * MIB, 2 * MIB


class Block:
    """A piece of a segment, between its neighbours."""

    def __init__(self, size: int, small: bool) -> None:
        self.size, self.small, self.free = size, small, True
        self.before: Block | None = None
        self.behind: Block | None = None


class CachingAllocator:
    """`cap_bytes`: what the device has. Raises torch.OutOfMemoryError beyond it."""

    def __init__(self, cap_bytes: int | None = None) -> None:
        self.cap_bytes = cap_bytes
        self.reserved = self.allocated = self.peak_reserved = self.peak_allocated = 0
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}

    def take(self, nbytes: int) -> Block | None:
        """A block for so many bytes."""
        if nbytes == 0:
            return None
        size = -(-nbytes // _ROUND) * _ROUND
        small = size <= _SMALL
        free = self._free[small]
        place = bisect_left(free, (size, 0))
        block = free.pop(place)[2] if place < len(free) else self._segment(size, small)
        self._split(block, size)
        block.free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def give(self, block: Block | None) -> None:
        """Back to the free ones, joined with free neighbours."""
        if block is None:
            return
        self.allocated -= block.size
        block.free = True
        for other in (block.before, block.behind):
            if other is not None and other.free:
                self._forget(other)
        if block.before is not None and block.before.free:
            block = self._joined(block.before, block)
        if block.behind is not None and block.behind.free:
            block = self._joined(block, block.behind)
        insort(self._free[block.small], (block.size, id(block), block))

    def release(self) -> None:
        """Segments that are wholly free go back to the device."""
        for free in self._free.values():
            whole = [one for one in free if one[2].before is None and one[2].behind is None]
            for one in whole:
                free.remove(one)
                self.reserved -= one[0]

    def _segment(self, size: int, small: bool) -> Block:
        taken = _SMALL_SEGMENT if small else _MIDDLE_SEGMENT
        if size >= _LARGE_FROM:
            taken = -(-size // _LARGE_STEP) * _LARGE_STEP
        if self.cap_bytes is not None and self.reserved + taken > self.cap_bytes:
            self.release()
            if self.reserved + taken > self.cap_bytes:
                raise torch.OutOfMemoryError(
                    f"{taken / MIB:.0f} MiB asked for, {self.reserved / MIB:.0f} of "
                    f"{self.cap_bytes / MIB:.0f} MiB reserved, {self.allocated / MIB:.0f} in use"
                )
        self.reserved += taken
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return Block(taken, small)

    def _split(self, block: Block, size: int) -> None:
        rest = block.size - size
        if rest < _ROUND or (not block.small and rest <= _SMALL):
            return
        behind = Block(rest, block.small)
        behind.before, behind.behind = block, block.behind
        if behind.behind is not None:
            behind.behind.before = behind
        block.behind, block.size = behind, size
        insort(self._free[block.small], (rest, id(behind), behind))

    def _forget(self, block: Block) -> None:
        self._free[block.small].remove((block.size, id(block), block))

    def _joined(self, first: Block, second: Block) -> Block:
        first.size += second.size
        first.behind = second.behind
        if first.behind is not None:
            first.behind.before = first
        return first


class Accounting(TorchDispatchMode):
    """Every storage that is made while this is active is memory of `allocator` until nothing refers to it."""

    def __init__(self, allocator: CachingAllocator) -> None:
        super().__init__()
        self.allocator = allocator
        self._known: set[int] = set()
        self._counting = True

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Memory that is made meanwhile is the host's."""
        before, self._counting = self._counting, False
        try:
            yield
        finally:
            self._counting = before

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                self._count(tensor)
        return out

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        block = self.allocator.take(storage.nbytes()) if self._counting else None
        weakref.finalize(storage, self._gone, key, block)

    def _gone(self, key: int, block: Block | None) -> None:
        self._known.discard(key)
        self.allocator.give(block)
