"""Attention of a few rows over a long cache on this CPU: torch's kernel, the compiled one, a plain read; and
whole passes of the embedded model with either kernel.

    python -m benchmarks.attention [--isa avx2] [--save attention]
    python -m benchmarks.attention --codes [--before OLDER] [--save attention-codes]

Contenders alternate, layer after layer of a cache larger than the CPU's own; figures are medians over rounds.
With --codes: rows of 8 bits beside rows of 16, by every instruction set of this CPU, of one layer, by one
thread's CPU time; OLDER is a library of attention.c to compare with.
The share is the time of a parallel read of the same keys and values over the kernel's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

import torch

from benchmarks.lib.results import Table, save_result
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import NativeAttention, native_attention
from core.backend.cpu.native.library import instruction_sets, library_path
from core.backend.cpu.native.products import native_products
from core.backend.shared.kv_rows import CODES, as_rows
from core.cache.full import FullKVCache
from core.hardware.cpu import cores, cpu_flags
from core.model.llama import LlamaModel
from core.model.loader import load_model
from core.model.store.embedded import ensure_embedded

BLOCK = 512
ROUNDS = 15
BEHIND = (1024, 4096, 8192, 16384, 32768)  # tokens in the cache of a whole pass
SPARE = 64
CODES_BEHIND = 8192
CACHE_BYTES = 400 << 20  # far more than any CPU's caches


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's attention."""

    name: str
    kv_heads: int
    group: int
    head_dim: int


SHAPES = (Shape("SmolLM2-135M", 3, 3, 64), Shape("Llama-3.1-8B", 8, 4, 128), Shape("Llama-2-7B", 32, 1, 128))
CASES = [
    (SHAPES[0], tokens, rows) for tokens in (1024, 4096, 8192, 16384, 32768) for rows in (1, 2, 4, 8)
] + [(shape, 8192, rows) for shape in SHAPES[1:] for rows in (1, 4, 16)]


def layer_times(shape: Shape, tokens: int, rows: int, threads: int) -> dict[str, float]:
    """Microseconds a layer by contender."""
    layer_bytes = 4 * shape.kv_heads * shape.head_dim * tokens
    layers = max(2, min(30, CACHE_BYTES // layer_bytes))
    size = (-(-tokens // BLOCK), shape.kv_heads, BLOCK, shape.head_dim)
    keys, values = ([torch.randn(size).bfloat16() for _ in range(layers)] for _ in range(2))
    queries = torch.randn(rows, shape.kv_heads * shape.group, shape.head_dim)

    def attends(flags: frozenset[str]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        backend = CpuBackend(torch.bfloat16, threads=threads, native=native_attention(flags))
        q = queries if flags else queries.bfloat16()  # as each of the two is given them by a pass
        return lambda k, v: backend.attend(q, k, v, length=tokens, causal=True)

    contenders: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
        "torch": attends(frozenset()),
        "compiled": attends(cpu_flags()),
        "read": lambda k, v: (k.view(torch.int64).sum(), v.view(torch.int64).sum()),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            started = time.perf_counter()
            for k, v in zip(keys, values, strict=True):
                run(k, v)
            times[name].append((time.perf_counter() - started) / layers * 1e6)
    return {name: statistics.median(taken) for name, taken in times.items()}


def codes_times(
    shape: Shape, rows: int, kernels: dict[str, tuple[NativeAttention, torch.dtype]]
) -> dict[str, float]:
    """Microseconds of one thread's CPU time a layer behind CODES_BEHIND tokens, by contender."""
    size = (CODES_BEHIND // BLOCK, shape.kv_heads, BLOCK, shape.head_dim)
    numbers = torch.randn(2, *size)
    kinds = {kind for _, kind in kernels.values()}
    held = {kind: [as_rows(part, shape.head_dim, kind) for part in numbers] for kind in kinds}
    queries = torch.randn(rows, shape.kv_heads * shape.group, shape.head_dim)
    times: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(3 * ROUNDS):
        for name, (kernel, kind) in kernels.items():
            started = time.thread_time()
            kernel.attend(queries, *held[kind], length=CODES_BEHIND, causal=True)
            times[name].append((time.thread_time() - started) * 1e6)
    return {name: statistics.median(taken) for name, taken in times.items()}


def codes_table(before: Path | None) -> Table:
    """Rows of 8 bits by every instruction set, beside rows of 16 and beside the library `before`."""
    torch.set_num_threads(1)
    found = []
    for name in instruction_sets(cpu_flags(), "attention"):
        now = NativeAttention(library_path("attention"), name)
        kernels = {"16 bits": (now, torch.bfloat16), "8 bits": (now, CODES)}
        if before is not None:
            was = "avx512" if name.startswith("avx512") else "avx2"
            kernels["before"] = (NativeAttention(before, was), CODES)
        for shape in SHAPES:
            for rows in (1, 2, 4, 6):
                us = codes_times(shape, rows, kernels)
                ratios = [f"{us['8 bits'] / us[one]:.2f}" for one in ("16 bits", "before") if one in us]
                found.append((name, shape.name, rows, *(round(taken) for taken in us.values()), *ratios))
                print(*found[-1], sep="  ", flush=True)
    beside = ("before µs", "8 / 16 bits", "8 bits / before") if before is not None else ("8 / 16 bits",)
    return Table(
        f"Attention of a layer behind {CODES_BEHIND:,} tokens over rows of 8 bits, one thread",
        ("instructions", "model", "rows", "16 bits µs", "8 bits µs", *beside),
        tuple(found),
    )


def passes(threads: int) -> list[tuple[int, int, float, float]]:
    """(tokens, rows, milliseconds with torch's kernel, with the compiled one) of whole passes of the embedded
    model behind a cache of made-up rows, alternating.
    """
    folder = ensure_embedded()
    kernels = {"torch": None, "compiled": native_attention(cpu_flags())}
    weights = native_products(cpu_flags())
    models = {
        name: load_model(
            folder,
            CpuBackend(torch.bfloat16, threads=threads, native=kernel, products=weights),
            positions=max(BEHIND) + SPARE,
        )
        for name, kernel in kernels.items()
    }
    found = []
    for tokens in BEHIND:
        caches = {name: _filled(model, tokens) for name, model in models.items()}
        for rows in (1, 4):
            times: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(2 * ROUNDS):
                for name, model in models.items():
                    started = time.perf_counter()
                    model.forward([7] * rows, caches[name])
                    times[name].append((time.perf_counter() - started) * 1e3)
                    caches[name].rollback(tokens)
            found.append((tokens, rows, *(round(statistics.median(taken), 1) for taken in times.values())))
    return found


def _filled(model: LlamaModel, tokens: int) -> FullKVCache:
    cache = FullKVCache(model.config.kv_shape, tokens + SPARE, model.backend, block_tokens=BLOCK)
    for part in (cache.store.k, cache.store.v):
        part.normal_()
    cache.advance(tokens)
    cache.commit(tokens)
    return cache


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    parser.add_argument("--codes", action="store_true", help="rows of 8 bits alone")
    parser.add_argument("--before", type=Path, metavar="OLDER", help="a library to compare --codes with")
    isa.add_option(parser)
    given = parser.parse_args()
    if given.codes:
        table = codes_table(given.before)
        if given.save:
            save_result(given.save, [table])
        return
    threads, _ = cores()
    torch.set_num_threads(threads)
    rows, details = [], {}
    for shape, tokens, count in CASES:
        us = layer_times(shape, tokens, count, threads)
        ratio = f"{us['torch'] / us['compiled']:.2f}"
        shares = [f"{us['read'] / us[name]:.2f}" for name in ("torch", "compiled")]
        rows.append((shape.name, tokens, count, *(round(us[name]) for name in us), ratio, *shares))
        details[f"{shape.name} {tokens} {count}"] = us
        print(*rows[-1], sep="  ", flush=True)
    columns = ("model", "tokens", "rows", "torch µs", "compiled µs", "read µs", "torch / compiled")
    table = Table(
        f"Attention of a layer over a bfloat16 cache, {threads} threads",
        (*columns, "share torch", "share compiled"),
        tuple(rows),
    )
    with torch.inference_mode():
        whole = passes(threads)
    behind = Table(
        "A pass of the embedded model behind a filled cache, with torch's kernel and with the compiled one",
        ("tokens", "rows", "torch ms", "compiled ms", "torch / compiled"),
        tuple((*row, f"{row[2] / row[3]:.2f}") for row in whole),
    )
    for row in behind.rows:
        print(*row, sep="  ", flush=True)
    if given.save:
        save_result(given.save, [table, behind], details=details)
    print(json.dumps(details))


if __name__ == "__main__":
    main()
