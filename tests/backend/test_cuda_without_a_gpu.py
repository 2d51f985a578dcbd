"""The CUDA backend's own lines with a stand-in for the driver: what it asks for, in which order, and what it
does when it is refused.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import mmap
import os
import sys
from dataclasses import replace
from functools import partial
from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from core.assembly.models import new_backend
from core.backend.cpu.backend import CpuBackend
from core.backend.cuda import pinned, streams
from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.triton.driver import DriverError
from core.cache.offloaded import OffloadedKVCache
from core.config import Settings
from core.errors import UserError
from core.hardware.gpus import imagined_hardware
from core.model.llama import LlamaModel
from core.request import Params
from tests.support import fake_cuda
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.fake_cuda import GIB, FakeCuda
from tests.support.imagined import planned
from tests.support.tiny import engine, oracle, ours
from tests.tiers import first


@pytest.mark.parametrize("mode", ["autoregressive", "triforce", "cpu_attention"])
def test_an_offloaded_model_answers_as_ever(cuda: FakeCuda, mode: str):
    """Kernels, blocks, copies in pieces and page-locked memory together: the same tokens as the CPU
    backend's.
    """
    answer_twice(cuda, replace(GREEDY, mode=mode))
    gc.collect()
    # page-locked memory that is never let go is lost to the whole system
    assert cuda.driver.locked == {}


def answer_twice(cuda: FakeCuda, params: Params) -> None:
    """The second context lies in the memory of the first."""
    model = ours(oracle(), backend=cuda.backend())
    offloaded, plain = engine(model, new_cache=partial(offloaded_cache, model)), engine(ours(oracle()))
    wanted = run(plain, plain.new_context(400), PROMPT, params)
    context = offloaded.new_context(400)
    assert cuda.driver.locked
    assert run(offloaded, context, PROMPT, params) == wanted
    locked = cuda.driver.locked_bytes
    context.close()
    assert run(offloaded, offloaded.new_context(400), PROMPT, params) == wanted
    assert cuda.driver.locked_bytes <= 1.01 * locked  # buffers of a gather differ a little


def offloaded_cache(model: LlamaModel, capacity: int) -> OffloadedKVCache:
    return OffloadedKVCache(
        model.config.kv_shape,
        capacity + 32,
        model.backend,
        block_tokens=32,
        resident_layers=1,
        staging_blocks=2,
        fresh_tokens=40,
    )


# ---- page-locked memory ------------------------------------------------------------------------------------


def test_memory_that_cannot_be_locked_is_used_as_it_is(cuda: FakeCuda, caplog: pytest.LogCaptureFixture):
    """Slower, said once, and never an error."""
    caplog.set_level(logging.WARNING)
    cuda.driver.refuses_from = 0
    backend = cuda.backend()
    tensors = [backend.host_memory((3, 5, 8), torch.float16) for _ in range(3)]
    assert all(bool((one == 0).all()) and one.shape == (3, 5, 8) for one in tensors)
    assert caplog.text.count("page-locked") == 1
    assert backend.page_locked_limit == 0


def test_what_a_refusal_left_behind_is_waited_for(cuda: FakeCuda):
    """The failed call's error is still to come: the next launch would report it as its own."""
    cuda.driver.refuses_from = 0
    backend = cuda.backend()
    tensors = [backend.host_memory((8,), torch.float16) for _ in range(3)]
    assert cuda.synchronized == len(tensors)


def test_no_more_is_locked_than_the_plan_says(cuda: FakeCuda):
    """Windows lets a process lock until graphics calls fail: where to stop is ours to know. That is no
    refusal, and teaches the next plan nothing.
    """
    backend = cuda.backend(page_lock_bytes=10_000)
    tensors = [backend.host_memory((1000,), torch.float16) for _ in range(6)]
    assert cuda.driver.locked_bytes == 10_000 and cuda.driver.refusals == 0
    assert backend.page_locked_limit is None and len(tensors) == 6


def test_what_could_be_locked_is_what_was_locked_when_more_was_refused(cuda: FakeCuda):
    """At the third slab. What was given back before does not count."""
    backend = cuda.backend()
    freed, kept = backend.host_memory((100, 8), torch.float16), backend.host_memory((50, 8), torch.float16)
    assert backend.page_locked_limit is None and len(cuda.driver.locked) == 2
    del freed
    gc.collect()
    cuda.driver.refuses_from = 0
    more = backend.host_memory((10, 8), torch.float16)
    assert backend.page_locked_limit == kept.nbytes and not bool(more.any())


def test_a_closed_context_leaves_its_memory_to_the_next(cuda: FakeCuda):
    """Locking the same memory again takes half a second for each GiB: counted, as new memory may come to an
    old address. What does not suit goes, so that no more is held than was ever needed.
    """
    backend = cuda.backend()
    first = [backend.host_memory((1000,), torch.float16) for _ in range(3)]
    first[0].fill_(7.0)
    places = {one.data_ptr() for one in first}
    view = first.pop()[10:20]
    del first
    for _book in range(3):
        again = [backend.host_memory((800,), torch.float16) for _ in range(2)]
        assert {one.data_ptr() for one in again} < places, "a slab of which a view is used is not free"
        assert all(bool(one.isfinite().all()) for one in again)
        del again
    assert cuda.driver.times_locked == 3
    del view
    large = backend.host_memory((2500,), torch.float16)
    assert cuda.driver.locked_bytes == large.nbytes


def test_memory_is_made_ready_piece_by_piece_and_what_is_ready_stays(cuda: FakeCuda):
    """Whoever stops it half way and asks again goes on from there; then the pieces are handed out as they
    are, and none is made.
    """
    backend, sizes = cuda.backend(), [4000, 4000, 9000, 9000, 500]
    steps = backend.make_ready(sizes)
    assert list(islice(steps, 2)) == [4000, 8000]
    steps.close()
    assert cuda.driver.locked_bytes == 8000
    assert list(backend.make_ready(sizes)) == [17_000, 26_000, 26_500]
    locked = dict(cuda.driver.locked)
    assert list(backend.make_ready(sizes)) == []
    taken = [backend.host_memory((size,), torch.uint8) for size in sizes]
    assert {one.data_ptr() for one in taken} == set(locked) == set(cuda.driver.locked)


ASKS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which pages are there")


@ASKS_LINUX
def test_pages_are_there_before_they_are_locked(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """The driver faults untouched pages in one by one: half a second for each GiB."""
    register, missing = cuda.driver.cudaHostRegister, []

    def watched(address: int, size: int, flags: int) -> int:
        pages = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
        missing.append(sum(not page & 1 for page in pages))
        return register(address, size, flags)

    monkeypatch.setattr(cuda.driver, "cudaHostRegister", watched)
    cuda.backend().host_memory((1 << 20,), torch.uint8)
    assert missing == [0]


def test_cards_are_numbered_as_the_management_library_does(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """Else the plan is for one card and the model on another; in whichever process a backend is made."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "x")  # restored afterwards
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    cuda.backend()
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(("system", "looks"), [("nt", 4), ("posix", 0)])
@pytest.mark.wide
def test_on_windows_somebody_looks_after_each_copy(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, system: str, looks: int
):
    """Its driver gathers what was asked for, and the computation that a copy waits for: the bus would rest
    until the next wait.
    """
    asked = []
    monkeypatch.setattr(fake_cuda.Stream, "query", lambda self: asked.append(self))
    backend = cuda.backend()
    copies, here = backend.copies(), torch.zeros(2, 8)
    away = backend.host_memory((2, 8), torch.float32)
    monkeypatch.setattr(streams, "os", SimpleNamespace(name=system))
    copies.to_device(here, away)
    copies.to_host(away, here)
    assert len(asked) == looks and len(set(asked)) == min(looks, 2)


def test_no_memory_is_no_bug_of_ours(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda):
    """The person is told to close other programs, not that the engine made a mistake."""

    def none(*args: object, **more: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    backend = cuda.backend()
    monkeypatch.setattr(pinned.mmap, "mmap", none)
    monkeypatch.setattr(pinned.torch, "empty", none)  # Windows asks here
    with pytest.raises(MemoryError):
        backend.host_memory((1000,), torch.float16)


# ---- a full device -----------------------------------------------------------------------------------------

FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    torch.AcceleratorError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError('NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":838, please report'),
    DriverError("out of memory"),
]


FAULTS = (
    "an illegal memory access was encountered",
    "unspecified launch failure",
    "unknown error",
    "device-side assert triggered",
    "the launch timed out and was terminated",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_is_told_from_one_that_passes(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, fault: str
):
    """The context is asked: a product of wrong shapes leaves it as it was, a full device too."""
    backend = cuda.backend()
    assert not backend.lost()

    def says(error: Exception) -> None:
        def synchronize(device: object = None) -> None:
            raise error

        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)

    says(torch.AcceleratorError(f"CUDA error: {fault}"))
    assert backend.lost()
    says(torch.AcceleratorError("CUDA error: out of memory"))
    assert not backend.lost()


@pytest.mark.parametrize("error", first(FULL), ids=lambda error: str(error)[:40])
def test_every_way_of_saying_that_the_device_is_full(cuda: FakeCuda, error: Exception):
    """The allocator, the driver and the libraries each have their own; the plan gives way to all of them, and
    the answer is the same.
    """
    backend = cuda.backend()
    model, failing = ours(oracle(), backend=backend), [9]
    attend_part = backend.attend_part

    def attend(*args: object, **more: object) -> object:
        failing[0] -= 1
        if failing[0] == 0:
            raise error
        return attend_part(*args, **more)

    backend.attend_part = attend
    tiny, plain = engine(model), engine(ours(oracle()))
    given: list[int] = []
    tiny._give_way = lambda: given.append(1) or tiny.plan
    assert run(tiny, tiny.new_context(400), PROMPT, GREEDY) == run(
        plain, plain.new_context(400), PROMPT, GREEDY
    )
    assert given == [1] and cuda.emptied


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: an illegal memory access was encountered"), ValueError("x")]
)
@pytest.mark.wide
def test_another_error_is_not_taken_for_a_full_device(cuda: FakeCuda, error: Exception):
    """Planning anew would repeat the mistake."""
    assert not cuda.backend().out_of_memory(error)
    tiny = engine(ours(oracle(), backend=cuda.backend()))
    context = tiny.new_context(400)

    def attend(*args: object, **more: object) -> object:
        raise error

    tiny.model.backend.attend = attend
    with pytest.raises(type(error)):
        run(tiny, context, PROMPT, GREEDY)


def test_releasing_survives_a_broken_recording(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """An internal assertion of torch's allocator must not end the answer that just gave way."""

    def broken() -> None:
        raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")

    monkeypatch.setattr(torch.cuda, "empty_cache", broken)
    cuda.backend().release()


def test_a_cap_bounds_this_process_and_what_is_free(cuda: FakeCuda):
    """A large card stands for a small one; the next backend has the whole card again."""
    capped, whole = cuda.backend(memory_cap_bytes=20 * GIB), cuda.backend()
    assert cuda.fractions == [0.25, 1.0]
    # below the cap, and what torch has freed for itself
    assert capped.memory().free_bytes == (20 - 5 + 2) * GIB
    assert whole.memory().free_bytes == (50 + 2) * GIB
    assert capped.memory().used_bytes == 3 * GIB


def test_where_the_system_never_refuses_the_program_does(cuda: FakeCuda):
    """Windows moves what is too much into its own memory, and everything crawls: out of memory must come at
    what was free at the start but for the reserve. A cap that was given counts alone.
    """
    cuda.backend(keep_free_bytes=10 * GIB)
    cuda.backend(keep_free_bytes=10 * GIB, memory_cap_bytes=8 * GIB)
    assert cuda.fractions == [0.5, 0.1]


@pytest.mark.parametrize(("system", "share"), [("Windows", 0.5), ("Linux", 1.0)])
def test_what_the_plan_says_of_memory_reaches_the_backend(cuda: FakeCuda, system: str, share: float):
    """Where to stop is known to the plan alone: how much is page-locked, and on Windows how much of the
    device stays free.
    """
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=96, system=system)
    made = planned(machine, "Llama-3.2-1B-Instruct", context=4096)
    assert made.page_lock_bytes == machine.pinnable_bytes
    assert (made.keep_free_bytes is None) == (system == "Linux")
    kept = None if made.keep_free_bytes is None else 10 * GIB
    backend = new_backend(replace(made, page_lock_bytes=10_000, keep_free_bytes=kept), Settings())
    assert cuda.fractions == [share]
    backend.device = torch.device("cpu")
    tensors = [backend.host_memory((1000,), torch.float16) for _ in range(6)]
    assert cuda.driver.locked_bytes == 10_000 and len(tensors) == 6


def test_the_cpu_beside_a_card_attends_by_its_own_kernel(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """Made when it is asked, once, for all caches."""
    made = []
    monkeypatch.setattr("core.assembly.models.native_attention", lambda flags: made.append(1))
    machine = imagined_hardware(gpu="RTX 4090", ram_gib=96)
    backend = new_backend(planned(machine, "Llama-3.2-1B-Instruct", context=4096), Settings())
    backend.device = torch.device("cpu")
    assert backend.host_attention() is backend.host_attention() and not made
    q, (k, v) = torch.randn(3, 4, 8), torch.randn(2, 5, 2, 16, 8)
    for _ in range(2):
        backend.host_attention().ask(q.to(backend.dtype), k, v, length=70)
        out, lse = backend.host_attention().part()
    assert made == [1] and (out.dtype, lse.shape) == (torch.float32, (3, 4))
    want, want_lse = CpuBackend().attend_part(q.to(backend.dtype).float(), k, v, length=70, causal=False)
    assert torch.allclose(out, want, atol=1e-5) and torch.allclose(lse, want_lse, atol=1e-5)


def test_what_breaks_on_the_cpu_is_told_where_it_was_asked(cuda: FakeCuda):
    """Not in a thread that nobody hears; the next question is answered."""
    backend = cuda.backend()
    asker, (k, v) = backend.host_attention(), torch.randn(2, 1, 2, 16, 8)
    asker.ask(torch.randn(1, 4, 8), k, v.half()[..., :4], length=9)
    asker.finish()
    with pytest.raises(RuntimeError):
        asker.part()
    asker.ask(torch.randn(1, 4, 8), k, v, length=9)
    assert asker.part()[0].isfinite().all()


def test_without_a_gpu_a_sentence(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """And for a second card that is not there."""
    with pytest.raises(UserError, match="GPU 1 cannot be used"):
        CudaBackend(torch.float16, index=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device to cpu"):
        CudaBackend(torch.float16)
