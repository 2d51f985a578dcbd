"""A card by imitation: streams, recorded passes, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import ClassVar
from weakref import WeakValueDictionary

import pytest
import torch

from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.triton.driver import CudaDriver
from tests.support.fake_driver import Library
from tests.support.recording import Recording


class Stream:
    """Knows for whom it waits."""

    cuda_stream = 5  # its handle

    def __init__(self, device: object = None) -> None:
        self.waited: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)


class Device:
    """Streams and graphs as torch has them. `breaks`: what goes wrong while recording, before ending the
    recording goes wrong too.
    """

    def __init__(self) -> None:
        self.compute = self.current = Stream()
        self.said: list[str] = []
        self.pools: list[object] = []
        self.breaks: Exception | None = None

    @contextmanager
    def use(self, stream: object) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph: Graph, *, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        """Leaves the stream where it is when ending fails, as torch's does."""
        self.said.append("record")
        self.pools.append(pool)
        before, self.current = self.current, stream
        try:
            with graph.recording:
                yield
            if self.breaks:
                raise self.breaks
        except RuntimeError as error:
            raise RuntimeError("operation failed due to a previous error during capture") from error
        self.current = before


class Graph:
    """What was recorded."""

    def __init__(self) -> None:
        self.recording = Recording()

    def replay(self) -> None:
        self.recording.replay()


class Pool:
    """Memory of recordings, that lasts as long as this does."""

    def __init__(self) -> None:
        self.id = object()
        Pool.held[self.id] = self

    held: ClassVar[WeakValueDictionary[object, Pool]] = WeakValueDictionary()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda device: "a card",
        "set_device": lambda device: None,
        "Stream": Stream,
        "current_stream": lambda device=None: made.current,
        "stream": made.use,
        "graph": made.graph,
        "CUDAGraph": Graph,
        "MemPool": Pool,
        "device": lambda device: nullcontext(),
        "get_device_properties": lambda device: SimpleNamespace(total_memory=1 << 30),
        "set_per_process_memory_fraction": lambda fraction, device: None,
        "mem_get_info": lambda device=None: (1 << 29, 1 << 30),
        "memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "empty_cache": lambda: None,
        "synchronize": lambda device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
    library: Library | None,
    dtype: torch.dtype = torch.bfloat16,
    *,
    own_kernels: bool = True,
) -> CudaBackend:
    """A card's backend whose tensors lie where there is memory. No library: there is no driver."""

    def opened() -> CudaDriver:
        if library is None:
            raise OSError("libcuda.so.1: cannot open shared object file")
        return CudaDriver(library)

    monkeypatch.setattr(CudaDriver, "open", opened)
    backend = CudaBackend(dtype, own_kernels=own_kernels)
    backend.device = torch.device("cpu")
    return backend
