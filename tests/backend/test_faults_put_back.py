"""Faults that a review of the CUDA path found, put back: the test named for each in
docs/decisions/0030-tried-without-a-card.md fails. Those of the order of copies: test_order.py.
"""

from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace

import pytest
import torch

from core.assembly import models
from core.backend.cuda import backend as product
from core.backend.cuda import pinned
from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.pinned import PinnedPool
from core.backend.cuda.streams import CudaCopies, contiguous_runs
from core.backend.shared import blockwise, library_attention
from core.backend.shared.blockwise import Part
from core.backend.shared.merge import merge
from core.hardware import gpus
from core.planning import budget, fitting, planner
from core.planning.costs import DeviceSpeeds, StreamedKV
from core.planning.layout import Layout
from core.planning.plan import BudgetLine
from installer import torch_build
from installer.torch_build import Build, NvidiaDriver
from tests.backend import test_cuda_without_a_gpu as card
from tests.backend import test_kernels, test_peak_memory
from tests.hardware import test_gpus
from tests.installer import test_torch_build
from tests.planning import test_shapes_and_costs, test_wishes
from tests.support.fake_cuda import FakeCuda


class KeptToTheEnd(blockwise._Sum):
    """Every part's output in fp32, joined when all are there."""

    def __init__(self, part: Part | None) -> None:
        self._parts = [] if part is None else [part]

    def add(self, out: torch.Tensor, lse: torch.Tensor) -> None:
        self._parts.append((out.float(), lse))

    @property
    def part(self) -> Part | None:
        return reduce(lambda one, other: merge(*one, *other), self._parts) if self._parts else None


def without_the_efficient_one(device: torch.device, dtype: torch.dtype, head_dim: int) -> Callable:
    """As before there was a third."""
    kinds = (library_attention.by_flash_attn, library_attention.by_torch)
    works = [one for one in kinds if library_attention._problem(one, device, dtype, head_dim) is None]
    return (*works, library_attention.by_matmul)[0]


def by_one_product(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """All keys at once in fp32."""
    hidden = k.shape[2] - q.shape[2] if causal else None
    out, lse = library_attention._products(q, k.float(), v.float(), hidden)
    return out.to(q.dtype), lse


def locks_until_refused(self: PinnedPool, runtime: object, *, most_bytes: object, refused: object) -> None:
    """Whatever the plan says."""
    _pool(self, runtime, most_bytes=None, refused=refused)


def asks_for_no_limit(dtype: torch.dtype, *, page_lock_bytes: object, **more: object) -> CudaBackend:
    """The plan has one, and nobody says it."""
    return CudaBackend(dtype, **more)


def untouched(nbytes: int) -> torch.Tensor:
    """Pages that nobody has seen."""
    return torch.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE), dtype=torch.uint8)


def leaves_nothing(self: PinnedPool, slab: object) -> None:
    """What is given back goes to the system at once: the next book's memory is locked anew."""
    self._free.append(slab)
    self._let_go(slab.nbytes)


def ready_in_silence(self: PinnedPool, sizes: Sequence[int]) -> Iterator[int]:
    """Heard of when all of it is there."""
    *_earlier, last = _ready(self, sizes)
    yield last


def spills(self: CudaBackend, dtype: torch.dtype, *, keep_free_bytes: object = None, **more: object) -> None:
    """Whatever is free at the start."""
    _backend(self, dtype, **more)


def with_bounce_blocks(layout: Layout, reserve: int) -> tuple[BudgetLine, ...]:
    """A line for what nobody makes."""
    bounce = 2 * layout.block_bytes if layout.host_kv_split()[1] else 0
    return (*_host_lines(layout, reserve), *([BudgetLine("bounce blocks", bounce, "RAM")] if bounce else []))


def all_beside_the_computation(self: StreamedKV, speeds: DeviceSpeeds) -> float:
    """As if copies of ordinary memory held nobody up."""
    return self.pinned_bytes / speeds.bus + self.pageable_bytes / speeds.pageable_bus


def whatever_the_driver(driver: NvidiaDriver | None, **more: str) -> Build:
    """A new card gets the newest build, behind an old driver too."""
    new = driver is not None and driver.capability >= (10, 0)
    return _choose(replace(driver, version=(580,)) if new else driver, **more)


def copied_and_left(self: CudaCopies, target: torch.Tensor, source: torch.Tensor) -> None:
    """On Windows as elsewhere."""
    self._stream.wait_stream(torch.cuda.current_stream(self._device))
    with torch.cuda.stream(self._stream):
        for into, rows in contiguous_runs(target, source):
            into.copy_(rows, non_blocking=True)


_pool, _ready, _backend = PinnedPool.__init__, PinnedPool.ready, CudaBackend.__init__
_host_lines, _choose = budget.host_lines, torch_build.choose_build
FULL_DEVICE = card.FULL[1]
# what is put back (in one place or several), and the test that finds it
FAULTS = {
    "A: every block's output is kept": (
        [(blockwise, "_Sum", KeptToTheEnd)],
        lambda cuda, _: test_peak_memory.test_a_late_prefill_takes_what_the_plan_says("8B", 16, False, cuda),
    ),
    "B: no kernel but flash": (
        [(library_attention, "choose_kernel", without_the_efficient_one)],
        lambda _, patch: test_kernels.test_without_flash_the_efficient_kernel_is_used(patch),
    ),
    "B: plain products copy all keys": (
        [(library_attention, "by_matmul", by_one_product)],
        lambda _, patch: test_kernels.test_the_plain_kernel_copies_keys_in_pieces(patch, 100, 17, True),
    ),
    "C: locked past the plan": (
        [(PinnedPool, "__init__", locks_until_refused)],
        lambda cuda, _: card.test_no_more_is_locked_than_the_plan_says(cuda),
    ),
    "C: the plan's limit is not asked for": (
        [(models, "CudaBackend", asks_for_no_limit)],
        lambda cuda, _: card.test_what_the_plan_says_of_memory_reaches_the_backend(cuda, "Linux", 1.0),
    ),
    "C: Windows locks as Linux does": (
        [(gpus, "pinnable", lambda system, ram_bytes: int(0.9 * ram_bytes))],
        lambda _cuda, _patch: test_gpus.test_imagined_machines(),
    ),
    "C: what a refusal left is met by the next launch": (
        [(CudaBackend, "_clear_refusal", lambda self: None)],
        lambda cuda, _: card.test_what_a_refusal_left_behind_is_waited_for(cuda),
    ),
    "D: pages are locked untouched": (
        [(pinned, "_touched", untouched)],
        lambda cuda, patch: card.test_pages_are_there_before_they_are_locked(cuda, patch),
    ),
    "D: locked anew with every book": (
        [(PinnedPool, "_returned", leaves_nothing)],
        lambda cuda, _: card.test_a_closed_context_leaves_its_memory_to_the_next(cuda),
    ),
    "D: thirty silent seconds": (
        [(PinnedPool, "ready", ready_in_silence)],
        lambda cuda, _: card.test_memory_is_made_ready_piece_by_piece_and_what_is_ready_stays(cuda),
    ),
    "E: memory spills": (
        [(CudaBackend, "__init__", spills)],
        lambda cuda, _: card.test_where_the_system_never_refuses_the_program_does(cuda),
    ),
    "E: the plan's reserve is not asked for": (
        [(CudaBackend, "__init__", spills)],
        lambda cuda, _: card.test_what_the_plan_says_of_memory_reaches_the_backend(cuda, "Windows", 0.5),
    ),
    "F: only the allocator is believed": (
        [(CudaBackend, "out_of_memory", lambda self, error: isinstance(error, torch.OutOfMemoryError))],
        lambda cuda, _: card.test_every_way_of_saying_that_the_device_is_full(cuda, FULL_DEVICE),
    ),
    "F: a broken recording breaks what follows": (
        [(CudaBackend, "release", lambda self: (gc.collect(), torch.cuda.empty_cache()))],
        lambda cuda, patch: card.test_releasing_survives_a_broken_recording(cuda, patch),
    ),
    "G: bounce blocks that nobody makes": (
        [(fitting, "host_lines", with_bounce_blocks), (planner, "host_lines", with_bounce_blocks)],
        lambda _cuda, _patch: test_wishes.test_windows_pins_two_fifths(),
    ),
    "G: ordinary memory is copied beside the computation": (
        [
            (StreamedKV, "stream_s", all_beside_the_computation),
            (StreamedKV, "held_up_s", lambda self, speeds: 0.0),
        ],
        lambda *_: test_shapes_and_costs.test_what_is_not_page_locked_hides_behind_nothing(),
    ),
    "H: cards are numbered by their speed": (
        [(product, "os", SimpleNamespace(name=os.name, environ={}))],
        lambda cuda, patch: card.test_cards_are_numbered_as_the_management_library_does(cuda, patch),
    ),
    "H: nobody looks after a copy on Windows": (
        [(CudaCopies, "_copy", copied_and_left)],
        lambda cuda, patch: card.test_on_windows_somebody_looks_after_each_copy(cuda, patch, "nt", 4),
    ),
    "H: a build that the driver is too old for": (
        [(test_torch_build, "choose_build", whatever_the_driver)],
        lambda *_: test_torch_build.test_the_build_follows_driver_and_gpu(
            NvidiaDriver((570, 124), (12, 0)), "linux", "cu128"
        ),
    ),
}
ASKS_LINUX = "D: pages are locked untouched"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(one, marks=[card.ASKS_LINUX] * (one == ASKS_LINUX) + [pytest.mark.wide] * (number >= 6))
        for number, one in enumerate(FAULTS)
    ],
)
def test_a_fault_that_is_put_back_is_found(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, fault: str):
    """The test named for it passes as things are, and fails with the fault."""
    put_back, found = FAULTS[fault]

    def tried() -> None:
        """On a card that nothing was asked of before."""
        with pytest.MonkeyPatch.context() as patch:
            found(FakeCuda().install(patch), patch)

    tried()
    for one in put_back:
        monkeypatch.setattr(*one)
    with pytest.raises((AssertionError, RuntimeError, KeyError)):
        tried()
