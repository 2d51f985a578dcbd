"""Faults that a review of the CUDA path found, put back: the test named for each in
docs/decisions/0030-tried-without-a-card.md fails. Those of the order of copies: test_order.py.
"""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable

import pytest
import torch

from core.backend import kernels, pinned
from core.backend.cuda import CudaBackend
from core.backend.pinned import PinnedPool
from tests.backend import test_cuda_without_a_gpu as card
from tests.backend import test_kernels
from tests.backend.fake_cuda import FakeCuda


def without_the_efficient_one(device: torch.device, dtype: torch.dtype, head_dim: int) -> Callable:
    """As before there was a third."""
    kinds = (kernels.by_flash_attn, kernels.by_torch)
    works = [one for one in kinds if kernels._problem(one, device, dtype, head_dim) is None]
    return (*works, kernels.by_matmul)[0]


def locks_until_refused(self: PinnedPool, runtime: object, *, most_bytes: object, refused: object) -> None:
    """Whatever the plan says."""
    _pool(self, runtime, most_bytes=None, refused=refused)


def untouched(nbytes: int) -> torch.Tensor:
    """Pages that nobody has seen."""
    return torch.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE), dtype=torch.uint8)


def spills(self: CudaBackend, dtype: torch.dtype, *, keep_free_bytes: object = None, **more: object) -> None:
    """Whatever is free at the start."""
    _backend(self, dtype, **more)


_pool, _backend = PinnedPool.__init__, CudaBackend.__init__
FULL_DEVICE = card.FULL[1]
# what is put back, and the test that finds it
FAULTS = {
    "B: no kernel but flash": (
        (kernels, "choose", without_the_efficient_one),
        lambda _, patch: test_kernels.test_without_flash_the_efficient_kernel_is_used(patch),
    ),
    "C: locked past the plan": (
        (PinnedPool, "__init__", locks_until_refused),
        lambda cuda, _: card.test_no_more_is_locked_than_the_plan_says(cuda),
    ),
    "D: pages are locked untouched": (
        (pinned, "_touched", untouched),
        lambda cuda, patch: card.test_pages_are_there_before_they_are_locked(cuda, patch),
    ),
    "E: memory spills": (
        (CudaBackend, "__init__", spills),
        lambda cuda, _: card.test_where_the_system_never_refuses_the_program_does(cuda),
    ),
    "F: only the allocator is believed": (
        (CudaBackend, "out_of_memory", lambda self, error: isinstance(error, torch.OutOfMemoryError)),
        lambda cuda, _: card.test_every_way_of_saying_that_the_device_is_full(cuda, FULL_DEVICE),
    ),
    "F: a broken recording breaks what follows": (
        (CudaBackend, "release", lambda self: (gc.collect(), torch.cuda.empty_cache())),
        lambda cuda, patch: card.test_releasing_survives_a_broken_recording(cuda, patch),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_found(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, fault: str):
    """The test named for it passes as things are, and fails with the fault."""
    put_back, found = FAULTS[fault]
    with pytest.MonkeyPatch.context() as patch:
        found(cuda, patch)
    gc.collect()
    monkeypatch.setattr(*put_back)
    with pytest.raises((AssertionError, RuntimeError, KeyError)), pytest.MonkeyPatch.context() as patch:
        found(cuda, patch)
