"""Stand-ins for torch.cuda on a machine without a card: streams and events that know their order,
a driver that counts what is page-locked, and memory with an end.

Time is a vector clock: the host and each stream count their own steps, and know how far the others have got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.cuda.backend import CudaBackend

GIB = 1 << 30
Clock = dict["Timeline", int]


class Timeline:
    """Steps that happen one after the other: the host's, or a stream's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Clock = {self: 0}

    def join(self, clock: Clock) -> None:
        """What happened by then has happened before the next step."""
        for other, steps in clock.items():
            self.clock[other] = max(self.clock.get(other, 0), steps)

    def step(self) -> int:
        """The number of a new step."""
        self.clock[self] += 1
        return self.clock[self]

    def knows(self, other: Timeline, step: int) -> bool:
        """Whether that step happened before the next one here."""
        return self.clock.get(other, 0) >= step


class Stream(Timeline):
    """torch.cuda.Stream: work starts when it was asked for, and after what was asked for before it."""

    def __init__(self, cuda: FakeCuda, name: str) -> None:
        super().__init__(name)
        self._cuda = cuda

    def launch(self) -> int:
        """One piece of work."""
        self.join(self._cuda.host.clock)
        return self.step()

    def wait_stream(self, other: Stream) -> None:
        self.join(other.clock)

    def wait_event(self, event: Event) -> None:
        assert event.clock is not None, "waiting for an event that was never recorded"
        self.join(event.clock)

    def synchronize(self) -> None:
        self._cuda.host.join(self.clock)

    def query(self) -> bool:
        return True


class Event:
    """torch.cuda.Event."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.clock: Clock | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.clock = dict((stream or self._cuda.current).clock)

    def synchronize(self) -> None:
        assert self.clock is not None, "waiting for an event that was never recorded"
        self._cuda.host.join(self.clock)


class Driver:
    """cudart. `refuses_from`: the system lets no more bytes than these be page-locked. `times_locked`: how
    often something was, wherever it lay.
    """

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.times_locked = 0
        self.refuses_from: int | None = None
        self.refusals = 0

    @property
    def locked_bytes(self) -> int:
        return sum(self.locked.values())

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        assert address not in self.locked and size > 0
        if self.refuses_from is not None and self.locked_bytes + size > self.refuses_from:
            self.refusals += 1
            return 2  # cudaErrorMemoryAllocation
        self.locked[address] = size
        self.times_locked += 1
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.locked[address]
        return 0


class SteppedWorker:
    """A thread beside the host's, with steps of its own: what it is given happens at once, and who does not
    wait for it does not know of it.
    """

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self.timeline = cuda, Timeline("worker")

    def submit(self, work: Callable[..., object], *args: object) -> Future:
        cuda, host, answered = self._cuda, self._cuda.host, SteppedFuture(self._cuda)
        self.timeline.join(host.clock)
        cuda.host = self.timeline
        try:
            answered.set_result(work(*args))
        finally:
            cuda.host = host
        answered.clock = dict(self.timeline.clock)
        return answered


class SteppedFuture(Future):
    """Waiting for it orders the host behind the thread."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self._cuda, self.clock = cuda, Clock()

    def result(self, timeout: float | None = None) -> object:
        self._cuda.host.join(self.clock)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._cuda.host.join(self.clock)
        return super().exception(timeout)


class FakeCuda:
    """One card of 80 GiB, of which 50 are free; `backend` makes the product's own class on it, whose tensors
    lie where there is memory.
    """

    def __init__(self) -> None:
        self.host, self.driver = Timeline("host"), Driver()
        self.compute = self.current = Stream(self, "compute")
        self.streams = [self.compute]
        self.fractions: list[float] = []
        self.free_bytes, self.total_bytes = 50 * GIB, 80 * GIB
        self.synchronized = self.emptied = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
        """In place of torch.cuda's own."""
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "get_device_name": lambda device=None: "a card",
            "set_device": lambda device: None,
            "Event": self._of_this_card(Event, lambda: (self,)),
            "Stream": self._of_this_card(Stream, lambda: (self, f"stream {len(self.streams)}")),
            "current_stream": lambda device=None: self.current,
            "stream": self._use,
            "synchronize": self._synchronize,
            "cudart": lambda: self.driver,
            "get_device_properties": lambda device: SimpleNamespace(total_memory=self.total_bytes),
            "set_per_process_memory_fraction": lambda fraction, device: self.fractions.append(fraction),
            "mem_get_info": lambda device: (self.free_bytes, self.total_bytes),
            "memory_allocated": lambda device=None: 3 * GIB,
            "memory_reserved": lambda device=None: 5 * GIB,
            "empty_cache": self._empty,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        return self

    def backend(self, dtype: torch.dtype = torch.float32, *, on: str = "cpu", **more: object) -> CudaBackend:
        """The product's backend."""
        made = CudaBackend(dtype, cpu=CpuBackend, **more)
        made.device = torch.device(on)
        return made

    def _of_this_card(self, kind: type, values: Callable[[], tuple]) -> type:
        """A class, as libraries that name it in their annotations expect."""
        made_by = self

        class Bound(kind):
            def __init__(self, device: object = None) -> None:
                super().__init__(*values())
                if isinstance(self, Stream):
                    made_by.streams.append(self)

        return Bound

    @contextmanager
    def _use(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def _synchronize(self, device: object = None) -> None:
        self.synchronized += 1
        for stream in self.streams:
            self.host.join(stream.clock)

    def _empty(self) -> None:
        self.emptied += 1
