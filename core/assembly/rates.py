"""How fast this CPU is with the kernels that answer, measured when a model was loaded: what the next plan
counts with instead of the usual rates of its instruction set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace

import psutil
import torch
import torch.nn.functional as F

from core.backend.base import Backend
from core.backend.shared.quantized import QuantizedMatrix
from core.hardware.cpu import cpu_flags, cpu_name
from core.hardware.facts import CpuRates
from core.hardware.measured import CPU_RATES, Measurements
from core.hardware.probe import rates_in
from core.planning.costs import KERNEL_SPEED
from core.planning.cpu_rates import usual_rates
from core.planning.plan import Plan
from core.text.words import GB

_MATRIX = (4096, 4096)  # of 4-bit codes, 10.5 MB
_MATRICES = 6  # together more than most CPUs' caches hold, as of a model
_KV_SHAPE, _LAYERS = (16, 8, 512, 128), 2  # [blocks, kv_heads, block_tokens, head_dim], 33.6 MB a layer
_GROUP = 4  # query heads of a KV head
_FEW = (1, 8)  # rows of passes
_LONG = (256, 2048, 2048)  # rows, inputs and outputs of a product as in prefill
_TIMES = 3  # the least counts: other programs only add
_GFLOP = 1e9
_BUSY = 0.25  # of the processors; see core.tuning.run_tuning


def keep_rates(backend: Backend, plan: Plan, measured: Measurements) -> None:
    """Keeps the rates of this CPU, of earlier ones under the same conditions the better: another program may
    have been busy this time. Nothing is kept where others took much of the processors meanwhile, or where
    torch does a compiled kernel's work.
    """
    if plan.device != "cpu" or backend.refused or plan.dtype == "float32":
        return
    started, others_s = time.perf_counter(), _others_s()
    found, known = measured_rates(backend, plan), rates_in(measured)
    processors_s = (time.perf_counter() - started) * (psutil.cpu_count() or 1)
    if _others_s() - others_s > _BUSY * processors_s:
        return
    if known is not None and (known.threads, known.computes) == (found.threads, found.computes):
        found = known.best(found)
    if found != known:
        measured.put(CPU_RATES, asdict(found))


def measured_rates(backend: Backend, plan: Plan) -> CpuRates:
    """Takes half a second of one AVX2 core. Passes of one row and of several tell together how many times
    as fast as usual reading and computing are: taken apart, a busy moment would make one of them endless.
    """
    usual = usual_rates(cpu_flags(), plan.threads, plan.computes)
    products, attention = _products(backend, usual), _attention(backend, usual)
    return replace(
        usual,
        cpu=cpu_name(),
        weights_gb_per_s=products * usual.weights_gb_per_s,
        few_linear_gflops=products * usual.few_linear_gflops,
        kv_gb_per_s=attention * usual.kv_gb_per_s,
        few_attention_gflops=attention * usual.few_attention_gflops,
        linear_gflops=_long_products(backend),
    )


def _others_s() -> float:
    """Processor time that other programs have taken so far."""
    times = psutil.cpu_times()
    idle_s = times.idle + getattr(times, "iowait", 0.0)
    return sum(times) - idle_s - time.process_time()


def _products(backend: Backend, usual: CpuRates) -> float:
    """How many times as fast as usual weights in codes are multiplied."""
    rows, columns = _MATRIX
    matrices = [backend.coded([_codes()]) for _number in range(_MATRICES)]

    def multiply(n: int) -> Callable[[], object]:
        x = torch.ones(n, columns, dtype=backend.dtype)
        return lambda: [matrix(x) for matrix in matrices]

    read_s = _MATRICES * _codes().nbytes / (usual.weights_gb_per_s * GB * KERNEL_SPEED["codes"])
    row_s = _MATRICES * 2 * rows * columns / (usual.few_linear_gflops * _GFLOP)
    return _times_as_fast(multiply, read_s, row_s)


def _codes() -> QuantizedMatrix:
    rows, columns = _MATRIX
    factors = torch.full((rows, columns // 32), 0.01).half()
    low = torch.full((rows, columns // 2), 0x55, dtype=torch.uint8)
    return QuantizedMatrix(4, 32, low, factors, offset=-factors)


def _attention(backend: Backend, usual: CpuRates) -> float:
    """How many times as fast as usual a cache is attended to."""
    blocks, kv_heads, block_tokens, head_dim = _KV_SHAPE
    caches = [[torch.ones(_KV_SHAPE, dtype=backend.storage) for _part in "kv"] for _layer in range(_LAYERS)]
    tokens, heads = blocks * block_tokens, kv_heads * _GROUP

    def attend(n: int) -> Callable[[], object]:
        q = torch.ones(n, heads, head_dim, dtype=backend.dtype)
        return lambda: [backend.attend(q, k, v, length=tokens, causal=False) for k, v in caches]

    read_s = sum(part.nbytes for cache in caches for part in cache) / (usual.kv_gb_per_s * GB)
    row_s = _LAYERS * 4 * tokens * heads * head_dim / (usual.few_attention_gflops * _GFLOP)
    return _times_as_fast(attend, read_s, row_s)


def _long_products(backend: Backend) -> float:
    """Thousand million operations a second."""
    n, inputs, outputs = _LONG
    x, weight = torch.ones(n, inputs, dtype=backend.dtype), torch.ones(outputs, inputs, dtype=backend.dtype)
    return 2 * n * inputs * outputs / _seconds(lambda: F.linear(x, weight)) / _GFLOP


def _times_as_fast(passes: Callable[[int], Callable[[], object]], read_s: float, row_s: float) -> float:
    usual_s = sum(read_s + n * row_s for n in _FEW)
    return usual_s / sum(_seconds(passes(n)) for n in _FEW)


def _seconds(run: Callable[[], object]) -> float:
    run()
    times = []
    for _time in range(_TIMES):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)
