"""The CUDA backend: library kernels for attention, compiled ones where they serve, page-locked host memory.
Knows no caches or models.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from core.backend.base import (
    Backend,
    DeltaParts,
    DeltaRows,
    DeltaShape,
    DeltaSteps,
    DeviceMemory,
    FusedLayers,
    LayerParts,
    Linear,
    Replay,
    RowSource,
    ScoreRequest,
    ServedDelta,
)
from core.backend.cpu.quantized_linear import Dequantizer, QuantizedLinear, QuantizedRows
from core.backend.cuda.errors import says_full
from core.backend.cuda.pinned import PinnedPool
from core.backend.cuda.streams import CudaCopies, CudaHostAttention, GraphRecorder, device_seconds
from core.backend.cuda.triton import delta_trial, product_trial, trial
from core.backend.cuda.triton.attention import MOST_ROWS, DecodeAttention
from core.backend.cuda.triton.delta import CardDelta, CardDeltaChunks
from core.backend.cuda.triton.driver import CudaDriver
from core.backend.cuda.triton.products import CardProducts, QuantizedProducts, TritonRows
from core.backend.shared import blockwise, library_attention
from core.backend.shared import slots as by_slots
from core.backend.shared.compiled import CODED_KV, DELTA, PRODUCTS
from core.backend.shared.kv_rows import CODES
from core.backend.shared.linear import FloatLinear
from core.backend.shared.quantized import QuantizedMatrix
from core.errors import UserError
from core.text.words import translated as _

log = logging.getLogger(__name__)


class CudaBackend:
    """One CUDA GPU, in float16, bfloat16 or (for tests) float32.

    `memory_cap_bytes` bounds what this process may allocate on the device: a large card then stands for a
    smaller one. `keep_free_bytes` bounds it to what is free now but for these: where the system would rather
    move the device's memory into its own than refuse (Windows), nothing else ever says that it is full.
    `page_lock_bytes` bounds what is page-locked; None: the system says when it is enough. `trials` keeps, for
    the device of this name, which kernels broke the program when they were tried. Without `own_kernels` none
    of ours is loaded. `cpu` makes the backend that attends to what lies in host memory, when first asked.
    Raises UserError when there is no such GPU or this torch was built without CUDA.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        *,
        index: int = 0,
        memory_cap_bytes: int | None = None,
        keep_free_bytes: int | None = None,
        page_lock_bytes: int | None = None,
        trials: Callable[[str], trial.TrialRecord] | None = None,
        own_kernels: bool = True,
        cpu: Callable[[], Backend] | None = None,
    ) -> None:
        # GPUs are numbered as the driver's management library numbers them
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise UserError(
                _(
                    "CUDA GPU {index} cannot be used: torch {version} does not see it. Update the NVIDIA "
                    "driver and run `launcher.py repair`, or set device to cpu in the settings."
                ).format(index=index, version=torch.__version__)
            )
        self.device = torch.device("cuda", index)
        self.dtype = self.storage = dtype
        self.name = torch.cuda.get_device_name(self.device)
        self._trials, self._own_kernels = trials and trials(self.name), own_kernels
        self.notes: tuple[str, ...] = ()
        self.refused: set[str] = set()
        self._products, self._bits_tried, self._decoder = CardProducts({}), set[int](), None
        self._kernels: dict[int, library_attention.LibraryKernel] = {}  # by head_dim
        # by head_dim and type of rows; None: the library's serves
        self._compiled: dict[tuple[int, torch.dtype], DecodeAttention | None] = {}
        # by sizes, of few rows and of many; None: torch serves
        self._deltas: dict[DeltaShape, tuple[CardDelta | None, CardDeltaChunks | None]] = {}
        self._product: by_slots.ScaledProduct | None = None
        self._recorder: GraphRecorder | None = None
        self._make_cpu, self._cpu = cpu, None  # made by the first question
        self._on_host: CudaHostAttention | None = None
        self._recording_failed = False
        torch.cuda.set_device(self.device)
        own = weakref.WeakMethod(self._clear_refusal)  # the pool outlives this by what is still in use
        self._host = PinnedPool(torch.cuda.cudart, most_bytes=page_lock_bytes, refused=lambda: own()())
        weakref.finalize(self, self._host.close).atexit = False
        total = torch.cuda.get_device_properties(self.device).total_memory
        if memory_cap_bytes is None and keep_free_bytes is not None:
            free, _total = torch.cuda.mem_get_info(self.device)
            memory_cap_bytes = max(0, free - keep_free_bytes)
        self._cap_bytes = memory_cap_bytes
        fraction = 1.0 if memory_cap_bytes is None else min(1.0, memory_cap_bytes / total)
        # of the process: an earlier backend may have set another
        torch.cuda.set_per_process_memory_fraction(fraction, self.device)

    # ---- computing -----------------------------------------------------------------------------------------

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        weight = weight.to(self.device, self.dtype).contiguous()
        return FloatLinear(weight, None if bias is None else bias.to(self.device, self.dtype))

    def coded(self, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None) -> Linear:
        """See Backend. By the compiled kernel, or decoded by torch for every product."""
        there = [part.to(self.device) for part in parts]
        products = self._products_for(there)
        # one buffer for what the kernel decodes, whatever the matrix
        if products is not None and self._decoder is None:
            self._decoder = Dequantizer(self.dtype, self.device, products)
        decoder = self._decoder if products is not None else Dequantizer(self.dtype, self.device)
        return QuantizedLinear(there, bias, decoder, products)

    def coarse(self, matrices: Sequence[Linear]) -> list[Linear] | None:
        """See Backend. A card waits for its memory, not for products."""
        return None

    def coded_rows(self, planes: QuantizedMatrix) -> RowSource:
        """See Backend."""
        there = planes.to(self.device)
        products = self._products_for([there])
        return (
            QuantizedRows(there, self.dtype) if products is None else TritonRows(there, products, self.dtype)
        )

    def _products_for(self, parts: Sequence[QuantizedMatrix]) -> CardProducts | None:
        """The compiled products, where they serve for all of these. Tried once for each number of bits."""
        for bits in {part.bits for part in parts} - self._bits_tried:
            self._bits_tried.add(bits)
            with self._trial(f"products with codes of {bits} bits") as off:
                found = product_trial.try_product(
                    lambda bits=bits: QuantizedProducts(
                        CudaDriver.open(), self.dtype, bits, stream=self._stream
                    ),
                    bits,
                    off=off,
                    device=self.device,
                    dtype=self.dtype,
                    seconds=self._seconds,
                )
            self._note(found.note)
            if found.kernel is None:
                self.refused.add(PRODUCTS)
            else:
                self._products.add(found.kernel)
        return self._products if self._products.takes(parts) else None

    def _trial(self, what: str) -> AbstractContextManager[str]:
        """Around the trial of a kernel: the reason why it is left out, "" where it is tried."""
        if not self._own_kernels:
            return trial.left_out()
        return trial.recorded_trial(self._trials, what, self.lost)

    def _note(self, said: str) -> None:
        log.info("%s", said)
        if said not in self.notes:
            self.notes = (*self.notes, said)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See Backend."""
        return F.rms_norm(x, (x.shape[-1],), weight, eps)

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> torch.Tensor:
        """See Backend."""
        if compiled := self._short(q, k, v):
            return compiled.attend(q, k, v, length=length, causal=causal, sums=sums)
        return self.attend_part(q, k, v, length=length, causal=causal)[0].to(q.dtype)

    def attend_part(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend."""
        if compiled := self._short(q, k, v):
            return compiled.attend_part(q, k, v, length=length, causal=causal, sums=sums)
        if k.dtype != q.dtype:
            return blockwise.attend_decoded(self.attend_part, q, k, v, length=length, causal=causal)
        return blockwise.attend_blocks(self._library(q.shape[-1]), q, k, v, length=length, causal=causal)

    def attend_more(
        self,
        total: tuple[torch.Tensor, torch.Tensor],
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend."""
        compiled = self._short(q, k, v)
        if compiled and all(part.is_contiguous() for part in total):
            return compiled.attend_more(total, q, k, v, length=length, sums=sums)
        keys = {"length": length, "causal": False, "total": total}
        if k.dtype != q.dtype:
            return blockwise.attend_decoded(self.attend_part, q, k, v, **keys)
        return blockwise.attend_blocks(self._library(q.shape[-1]), q, k, v, **keys)

    def attend_window(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, window: int
    ) -> torch.Tensor | None:
        """See Backend. By the compiled kernel, which has windows over numbers."""
        compiled = self._short(q, k, v) if k.dtype == self.dtype else None
        return compiled and compiled.attend_window(q, k, v, length=length, window=window)

    def chunk_lse(self, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
        """See Backend. For what the compiled kernel did not leave."""
        return blockwise.chunk_lse(q, k, length=length, chunk=chunk)

    def attend_slots(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, slots: torch.Tensor
    ) -> torch.Tensor:
        """See Backend."""
        if compiled := self._short(q, k[None], v[None]):
            return compiled.attend_slots(q, k[None], v[None], slots=slots)
        if self._product is None:
            self._product = by_slots.choose_product(self.device, self.dtype)
        return by_slots.attend_slots(self._product, q, k, v, slots)

    def in_one(self, layers: Sequence[LayerParts], norm: torch.Tensor, **sizes: float) -> FusedLayers | None:
        """See Backend. A card's passes are recorded instead."""
        return None

    def delta_rows(
        self, parts: DeltaParts, by_torch: DeltaRows, steps_by_torch: DeltaSteps
    ) -> ServedDelta | None:
        """See Backend. Kernels of their own for few rows and for many."""
        if parts.sizes not in self._deltas:
            rows = self._tried_delta("rows", CardDelta, parts, by_torch)
            steps = rows and self._tried_delta("steps", CardDeltaChunks, parts, steps_by_torch)
            self._deltas[parts.sizes] = rows, steps
            if rows is None:
                self.refused.add(DELTA)
        rows, steps = self._deltas[parts.sizes]
        return rows and ServedDelta(partial(rows.through, parts), steps and partial(steps.through, parts))

    def _tried_delta(self, what: str, kernel: Any, parts: DeltaParts, by_torch: Callable) -> Any:
        """A kernel for layers with a state, None where torch serves."""
        with self._trial(f"{what} of a gated delta rule") as off:
            found = delta_trial.TRIALS[what](
                lambda: kernel(CudaDriver.open(), self.dtype, stream=self._stream),
                parts,
                by_torch,
                off=off,
                device=self.device,
                dtype=self.dtype,
                seconds=self._seconds,
            )
        self._note(found.note)
        return found.kernel

    def prepare(self, heads: int, kv_heads: int, head_dim: int, *, rows: torch.dtype | None = None) -> None:
        """See Backend. Tries the compiled kernel for short passes."""
        rows = rows or self.dtype
        if (head_dim, rows) in self._compiled:
            return
        library = partial(blockwise.attend_blocks, self._library(head_dim))
        with self._trial(f"attention, heads of {head_dim}, {rows} rows") as off:
            found = trial.try_attention(
                lambda: DecodeAttention(
                    CudaDriver.open(), self.device, self.dtype, head_dim, rows=rows, stream=self._stream
                ),
                library if rows == self.dtype else partial(blockwise.attend_decoded, library),
                trial.HeadSizes(heads, kv_heads, head_dim),
                off=off,
                rows=rows,
                device=self.device,
                dtype=self.dtype,
                seconds=self._seconds,
                room_bytes=self.memory().free_bytes // 2,
            )
        self._compiled[head_dim, rows] = found.kernel
        if found.kernel is None and rows == CODES:
            self.refused.add(CODED_KV)
        self._note(found.note)

    def _short(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> DecodeAttention | None:
        """The compiled kernel where it takes these."""
        n, heads, head_dim = q.shape
        if n > MOST_ROWS:
            return None
        self.prepare(heads, k.shape[1], head_dim, rows=k.dtype)
        compiled = self._compiled[head_dim, k.dtype]
        return compiled if compiled and compiled.takes(q, k, v) else None

    def _library(self, head_dim: int) -> library_attention.LibraryKernel:
        if head_dim not in self._kernels:
            self._kernels[head_dim] = library_attention.choose_kernel(self.device, self.dtype, head_dim)
        return self._kernels[head_dim]

    def _stream(self) -> int:
        return torch.cuda.current_stream(self.device).cuda_stream

    def _seconds(self, run: Callable[[], torch.Tensor]) -> float:
        return device_seconds(self.device, run)

    def long_unrecorded(self, *sizes: int, rows: torch.dtype | None = None) -> str:
        """See Backend. Only our kernel finds in device memory how far it is to read."""
        self.prepare(*sizes, rows=rows)
        if self._compiled[sizes[-1], rows or self.dtype] is not None:
            return ""
        return _("attention by the library's kernel is told lengths by the processor")

    def capture(self, run: Callable[[], torch.Tensor]) -> Replay | None:
        """See Backend. A CUDA graph. After one failure none is tried any more: what failed would fail again,
        and answers must go on.
        """
        if self._recording_failed:
            return None
        try:
            self._recorder = self._recorder or GraphRecorder(self.device)
            return self._recorder.record(run)
        # out of memory is one too; ending a broken recording hides what broke it
        except RuntimeError as error:
            self._recording_failed, self._recorder = True, None
            reason = str(error.__context__ or error).splitlines() or [type(error).__name__]
            said = _("CUDA graphs are not used ({reason}); every operation is launched by itself.")
            said = said.format(reason=reason[0])
            log.warning("%s", said)
            self.notes = (*self.notes, said)
            return None

    # ---- memory --------------------------------------------------------------------------------------------

    def adapt(self) -> None:
        """See Backend. The driver shares the device."""

    def memory(self) -> DeviceMemory:
        """See Backend."""
        free, _ = torch.cuda.mem_get_info(self.device)
        used, reserved = torch.cuda.memory_allocated(self.device), torch.cuda.memory_reserved(self.device)
        if self._cap_bytes is not None:
            free = min(free, self._cap_bytes - reserved)
        # torch keeps what it has freed for itself
        return DeviceMemory(used_bytes=used, free_bytes=max(0, free) + reserved - used)

    def peak_memory_bytes(self) -> int:
        """See Backend. What torch took from the driver, so without the CUDA context."""
        return torch.cuda.max_memory_reserved(self.device)

    def reserve(self, nbytes: int) -> None:
        """See Backend. torch keeps what was freed and cuts it into what is asked for."""
        torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def release(self) -> None:
        """See Backend."""
        gc.collect()
        try:
            torch.cuda.empty_cache()
        except RuntimeError as error:  # torch before 2.13, behind a recording that broke off
            log.warning("memory that a broken recording used stays taken: %s", error)

    def host_memory(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """See Backend. What may not be page-locked is ordinary memory, which crosses the bus at about half
        the rate. Not torch's own pinned memory: that comes in powers of two, up to twice of what is needed.
        """
        size = math.prod(shape) * dtype.itemsize
        return self._host.take(size).view(dtype).view(tuple(shape))

    def make_ready(self, sizes: Sequence[int]) -> Iterator[int]:
        """See Backend. Pages are touched and locked."""
        return self._host.ready(sizes)

    @property
    def page_locked_limit(self) -> int | None:
        """See Backend."""
        return self._host.limit_bytes

    def out_of_memory(self, error: BaseException) -> bool:
        """See Backend."""
        return says_full(error)

    def lost(self) -> bool:
        """See Backend. A context in which something faulted says so at every later call, until the process
        ends.
        """
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            return not self.out_of_memory(error)
        return False

    def _clear_refusal(self) -> None:
        """The failed call left an error that the next launch would report as its own: launch something and
        wait until it is reported.
        """
        try:
            torch.zeros(1, device=self.device)
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            log.info("after page-locking failed: %s", error)

    def copies(self) -> CudaCopies:
        """See Backend."""
        return CudaCopies(self.device)

    def host_attention(self) -> CudaHostAttention:
        """See Backend. One for all caches: no pass begins before the last one ended."""
        if self._on_host is None:
            worker = ThreadPoolExecutor(1, thread_name_prefix="attention on the CPU")
            self._on_host = CudaHostAttention(self.device, self._attend_on_host, self.host_memory, worker)
        return self._on_host

    def _attend_on_host(
        self, q: torch.Tensor, *keys: torch.Tensor, **how: object
    ) -> tuple[torch.Tensor, ...]:
        """The CPU's attend_part."""
        if self._cpu is None:
            assert self._make_cpu is not None, "nobody attends to what lies in host memory"
            self._cpu = self._make_cpu()
        return self._cpu.attend_part(q, *keys, **how)
