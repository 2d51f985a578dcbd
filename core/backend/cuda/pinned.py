"""Host memory that is page-locked and serves one context after the other. Knows no device but by its runtime.

Locking pages that were never touched lets the driver fault them in one by one, half a second for each GiB; so
they are touched first, by all threads, in huge pages where the system has them. And a context that is closed
leaves its memory to the next: locking 60 GB anew with every book would take half a minute.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

log = logging.getLogger(__name__)

_WASTE = 1.5  # a free slab serves for so many times less than it holds
_TELL_BYTES = 1 << 30  # so much takes a while


class CudaRuntime(Protocol):
    """The two calls of the CUDA runtime; 0: done."""

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int: ...  # noqa: N802 (its own name)
    def cudaHostUnregister(self, address: int) -> int: ...  # noqa: N802


@dataclass(slots=True, eq=False)
class _Slab:
    memory: torch.Tensor  # uint8, the owner
    locked: bool

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes


class PinnedPool:
    """Pieces of host memory, page-locked up to `most_bytes` (None: as far as the system lets).

    `refused()` is called after the system refused, which leaves an error behind in the device's queue.
    `limit_bytes`: what was locked when it did; None: it never did.
    """

    def __init__(
        self, runtime: Callable[[], CudaRuntime], *, most_bytes: int | None, refused: Callable[[], None]
    ) -> None:
        self._runtime, self._most, self._refused = runtime, most_bytes, refused
        self._free: list[_Slab] = []
        self.locked_bytes = 0
        self.limit_bytes: int | None = None
        self._closed = False

    def take(self, nbytes: int) -> torch.Tensor:
        """uint8 [nbytes], page-locked where that is allowed. It holds zeros or what its last user left.

        Raises MemoryError when the system has no more.
        """
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        slab = self._fitting(nbytes)
        if slab is not None:
            self._free.remove(slab)
        else:
            self._let_go(nbytes)
            slab = self._new(nbytes)
        # tensors over the lease keep it alive; when the last is gone, the slab is free again
        lease = (ctypes.c_ubyte * slab.nbytes).from_address(slab.memory.data_ptr())
        weakref.finalize(lease, self._returned, slab).atexit = False
        return torch.frombuffer(lease, dtype=torch.uint8)[:nbytes]

    def ready(self, sizes: Sequence[int]) -> Iterator[int]:
        """Makes ready what `take` will be asked for, one piece of so many bytes after the other. Yields the
        bytes that are ready after each piece that had to be made; when nobody goes on asking, these stay.

        Raises as `take`.
        """
        held, done = [], 0
        for nbytes in sizes:
            known = nbytes == 0 or self._fitting(nbytes) is not None
            held.append(self.take(nbytes))
            done += nbytes
            if not known:
                yield done

    def close(self) -> None:
        """Gives everything back to the system: what is free now, the rest when it is."""
        self._closed = True
        self._let_go(sum(slab.nbytes for slab in self._free))

    def _fitting(self, nbytes: int) -> _Slab | None:
        """A free slab that serves for so much: one that is locked before all others."""
        fitting = [slab for slab in self._free if nbytes <= slab.nbytes <= _WASTE * nbytes]
        return min(fitting, key=lambda one: (not one.locked, one.nbytes), default=None)

    def _returned(self, slab: _Slab) -> None:
        self._free.append(slab)
        if self._closed:
            self.close()

    def _let_go(self, nbytes: int) -> None:
        """As much of what is free, small pieces first: what is held never grows by what nobody uses."""
        self._free.sort(key=lambda slab: slab.nbytes, reverse=True)
        while nbytes > 0 and self._free:
            slab = self._free.pop()
            nbytes -= slab.nbytes
            if slab.locked:
                self._runtime().cudaHostUnregister(slab.memory.data_ptr())
                self.locked_bytes -= slab.nbytes

    def _new(self, nbytes: int) -> _Slab:
        started = time.perf_counter()
        slab = _Slab(_touched(nbytes), locked=False)
        if self._most is None or self.locked_bytes + nbytes <= self._most:
            slab.locked = int(self._runtime().cudaHostRegister(slab.memory.data_ptr(), nbytes, 0)) == 0
            if slab.locked:
                self.locked_bytes += nbytes
            else:
                self._was_refused(nbytes)
        if nbytes >= _TELL_BYTES:
            took = time.perf_counter() - started
            log.info("%d MB of host memory made ready in %.1f s", nbytes >> 20, took)
        return slab

    def _was_refused(self, nbytes: int) -> None:
        if self.limit_bytes is None:
            log.warning(
                "%d MB of host memory could not be page-locked behind %d MB that are; copies from there are "
                "slower",
                nbytes >> 20,
                self.locked_bytes >> 20,
            )
            self.limit_bytes = self.locked_bytes
        self._refused()


def _touched(nbytes: int) -> torch.Tensor:
    """uint8 [nbytes] of zeros whose pages are there. On Windows ordinary memory: what is mapped there belongs
    to the paging file, and nobody else locks such memory.
    """
    try:
        if os.name == "nt":
            memory = torch.empty(nbytes, dtype=torch.uint8)
        else:
            pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                pages.madvise(mmap.MADV_HUGEPAGE)
            memory = torch.frombuffer(pages, dtype=torch.uint8)
        return memory.zero_()  # by all threads
    except (OSError, RuntimeError) as error:
        raise MemoryError(f"{nbytes >> 20} MB of host memory: {error}") from error
