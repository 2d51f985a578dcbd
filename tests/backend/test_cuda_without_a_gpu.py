"""The CUDA backend's own lines with a stand-in for the driver: what it asks for, in which order, and what it
does when it is refused.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from core.backend.cuda import CudaBackend
from core.cache.offloaded import OffloadedKVCache
from core.errors import UserError
from tests.test_engine import GREEDY, PROMPT, run
from tests.tiny import engine, oracle, ours

GIB = 1 << 30


class Driver:
    """Counts what is page-locked. `refuses`: the system lets nothing be."""

    def __init__(self) -> None:
        self.locked: set[int] = set()
        self.refuses = False
        self.fractions: list[float] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802 (the runtime's own name)
        assert address not in self.locked and size > 0
        if not self.refuses:
            self.locked.add(address)
        return int(self.refuses)

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.locked.remove(address)
        return 0


class Event:
    """A mark that is always reached; waiting for one that was never recorded is a mistake."""

    def __init__(self) -> None:
        self.recorded = False

    def record(self, stream: object) -> None:
        self.recorded = True

    def synchronize(self) -> None:
        assert self.recorded


class Stream:
    """Knows what it was told to wait for."""

    def __init__(self, device: object = None) -> None:
        self.waited = 0

    def wait_stream(self, other: object) -> None:
        self.waited += 1

    def wait_event(self, event: Event) -> None:
        assert event.recorded


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made, compute = Driver(), Stream()
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda device: "a card",
        "set_device": lambda device: None,
        "Event": Event,
        "Stream": Stream,
        "current_stream": lambda device=None: compute,
        "stream": lambda stream: contextlib.nullcontext(),
        "cudart": lambda: made,
        "get_device_properties": lambda device: SimpleNamespace(total_memory=80 * GIB),
        "set_per_process_memory_fraction": lambda fraction, device: made.fractions.append(fraction),
        "mem_get_info": lambda device: (50 * GIB, 80 * GIB),
        "memory_allocated": lambda device: 3 * GIB,
        "memory_reserved": lambda device: 5 * GIB,
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def backend_on_the_cpu(cap: int | None = None) -> CudaBackend:
    """Its tensors lie where there is memory."""
    backend = CudaBackend(torch.float32, memory_cap_bytes=cap)
    backend.device = torch.device("cpu")
    return backend


@pytest.mark.parametrize("mode", ["autoregressive", "triforce"])
def test_an_offloaded_model_answers_as_ever(driver: Driver, mode: str):
    """Kernels, blocks, copies in pieces and page-locked memory together: the same tokens as the CPU
    backend's.
    """
    model = ours(oracle(), backend=backend_on_the_cpu())

    def new_cache(capacity: int) -> OffloadedKVCache:
        return OffloadedKVCache(
            model.config.kv_shape,
            capacity + 32,
            model.backend,
            block_tokens=32,
            resident_layers=1,
            staging_blocks=2,
            fresh_tokens=40,
        )

    params = replace(GREEDY, mode=mode)
    offloaded, plain = engine(model, new_cache=new_cache), engine(ours(oracle()))
    context = offloaded.new_context(400)
    assert driver.locked
    assert run(offloaded, context, PROMPT, params) == run(plain, plain.new_context(400), PROMPT, params)
    context.close()
    gc.collect()
    # page-locked memory that is never let go is lost to the whole system
    assert driver.locked == set()


def test_memory_that_cannot_be_locked_is_used_as_it_is(driver: Driver, caplog: pytest.LogCaptureFixture):
    """Slower, said once, and never an error."""
    caplog.set_level(logging.WARNING)
    driver.refuses, backend = True, backend_on_the_cpu()
    tensors = [backend.host_memory((3, 5, 8)) for _ in range(3)]
    assert all(bool((one == 0).all()) and one.shape == (3, 5, 8) for one in tensors)
    assert caplog.text.count("page-locked") == 1
    assert backend.page_locked_limit == 0
    del tensors
    gc.collect()


def test_what_could_be_locked_is_what_was_locked_when_more_was_refused(driver: Driver):
    """What was given back before does not count."""
    backend = backend_on_the_cpu()
    freed, kept = backend.host_memory((100, 8)), backend.host_memory((50, 8))
    assert backend.page_locked_limit is None and driver.locked
    del freed
    gc.collect()
    driver.refuses = True
    more = backend.host_memory((10, 8))
    assert backend.page_locked_limit == kept.nbytes and not bool(more.any())


def test_a_cap_bounds_this_process_and_what_is_free(driver: Driver):
    """A large card stands for a small one; the next backend has the whole card again."""
    capped, whole = backend_on_the_cpu(20 * GIB), backend_on_the_cpu()
    assert driver.fractions == [0.25, 1.0]
    # below the cap, and what torch has freed for itself
    assert capped.memory().free_bytes == (20 - 5 + 2) * GIB
    assert whole.memory().free_bytes == (50 + 2) * GIB
    assert capped.memory().used_bytes == 3 * GIB


def test_without_a_gpu_a_sentence(driver: Driver, monkeypatch: pytest.MonkeyPatch):
    """And for a second card that is not there."""
    with pytest.raises(UserError, match="GPU 1 cannot be used"):
        CudaBackend(torch.float16, index=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device: cpu"):
        CudaBackend(torch.float16)
