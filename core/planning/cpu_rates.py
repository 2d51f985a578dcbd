"""What a CPU usually does a second, until this computer's own rates are measured (core.assembly.rates)."""

from __future__ import annotations

from collections.abc import Collection

from core.hardware.facts import CpuRates, instruction_set

# Of a core by what it has: GB/s of weights and of a KV cache, thousand million operations a second of long
# products, of those of few rows, of attention of few rows; lines as those of core.planning.costs. asimd:
# assumed.
CPU_CORE = {
    "avx512f": (10.0, 13.0, 100.0, 140.0, 130.0),
    "avx2": (8.0, 13.0, 50.0, 80.0, 60.0),
    "asimd": (10.0, 13.0, 50.0, 30.0, 20.0),
    "": (10.0, 13.0, 15.0, 6.0, 6.0),
}
CPU_GB_PER_S_LIMIT = 45.0  # dual-channel desktop memory


def usual_rates(flags: Collection[str], threads: int, dtype: str) -> CpuRates:
    """What so many cores with these instructions usually do; see CPU_CORE."""
    best = instruction_set(flags)
    weights, kv, *per_core = CPU_CORE[best]
    linear, few_linear, few_attention = (rate * threads for rate in per_core)
    if "amx_bf16" in flags and dtype == "bfloat16":
        linear *= 2
    return CpuRates(
        cpu="",
        instructions=best,
        threads=threads,
        computes=dtype,
        weights_gb_per_s=min(weights * threads, CPU_GB_PER_S_LIMIT),
        kv_gb_per_s=min(kv * threads, CPU_GB_PER_S_LIMIT),
        linear_gflops=linear,
        few_linear_gflops=few_linear,
        few_attention_gflops=few_attention,
    )
