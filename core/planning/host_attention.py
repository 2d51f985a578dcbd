"""How long the CPU of a machine with a card takes to attend to keys and values in host memory. Pure
arithmetic; nothing here was measured.
"""

from __future__ import annotations

from dataclasses import replace

from core.hardware.facts import Hardware
from core.model.shapes import ModelShape
from core.planning.costs import KERNEL_SPEED, DeviceSpeeds, attended_by_torch, cpu_speeds

# of a layer: queries cross to the host, a thread wakes, what it found crosses back; assumed
QUESTION_S = 0.00006


def attending_cpu(hardware: Hardware, threads: int, dtype: str, ranks: int = 1) -> DeviceSpeeds:
    """The CPU's speeds beside cards, of which each has its part."""
    speeds = cpu_speeds(hardware, threads, dtype)
    return replace(speeds, kv=speeds.kv / ranks, few_attention_flops=speeds.few_attention_flops / ranks)


def attention_s(
    target: ModelShape, kv_rows: str, *, rows: int, tokens: float, layers: int, cpu: DeviceSpeeds
) -> float:
    """Seconds for `rows` queries over `tokens` in host memory, of so many layers, in rows of `kv_rows`."""
    nbytes = layers * tokens * target.kv_bytes_per_token_layer(kv_rows)
    if attended_by_torch(target, cpu) or kv_rows == "float16":  # which the compiled kernel does not read
        nbytes /= KERNEL_SPEED["by torch"]
    flops = layers / target.full_layers * target.attention_flops(rows, tokens)
    return nbytes / cpu.kv + flops / cpu.few_attention_flops + layers * QUESTION_S
