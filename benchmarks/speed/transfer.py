"""Bandwidth of memory and of the link to a GPU, and whether copies hide behind attention.

    python -m benchmarks.transfer [--device cpu|cuda] [--save transfer]

Memory: read and copied on the CPU by one thread and by all cores, and on the GPU where there is one. Link:
page-locked and ordinary host memory, both ways, over block sizes around the staging ring's. Overlap: one pass
of attention over a cache in host memory, beside its copies alone and its attention alone. Without a GPU there
is no link, and the result says so. Needs a quiet machine; takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.lib.embedded import embedded_plan
from benchmarks.lib.results import RESULTS, Table, save_result
from core.backend.base import Backend
from core.backend.cuda.backend import CudaBackend
from core.cache.base import KVShape, TargetKVCache
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.hardware.cpu import cores
from core.hardware.probe import MIB, probe
from core.model.store.catalogue import EMBEDDED
from core.planning.slow_link import slow_note
from core.text.words import GB

MEMORY_BYTES = 1 << 30
BLOCKS_MIB = (1, 4, 16, 64, 128, 256)  # the planner stages blocks of 64 to 256
LINK_BYTES = 1 << 30  # per measurement
REPEATS = 5
# 2.1 GB of keys and values in blocks of 64 MB
SHAPE, TOKENS, BLOCK_TOKENS = KVShape(8, 8, 128), 65_536, 16_384
HEADS_PER_KV = 4
NO_LINK = "No GPU: keys and values cross no link, so there is nothing to overlap."


def main(arguments: list[str] | None = None) -> int:
    """Measures what the machine has."""
    options = _arguments(arguments)
    rows = list(cpu_memory(options.bytes))
    made, found, notes = [], {}, (NO_LINK,)
    if options.device == "cuda":
        backend, notes = CudaBackend(torch.bfloat16), ()
        rows.append(
            (
                torch.cuda.get_device_name(),
                None,
                memory_read_gb_per_s(backend.device, options.bytes),
                memory_copy_gb_per_s(backend.device, options.bytes),
            )
        )
        found = {
            "link": [list(row) for row in link(backend, BLOCKS_MIB, LINK_BYTES)],
            "overlap": overlap_times(backend),
        }
        made = [
            Table(
                "Link between host memory and GPU, GB/s",
                LINK_COLUMNS,
                tuple(tuple(row) for row in found["link"]),
            ),
            Table(
                "Attention over a cache in host memory",
                OVERLAP_COLUMNS,
                (_overlap_row(found["overlap"]),),
                _slow(found["overlap"], probe(measure=False).gpus[0].pcie_gb_per_s),
            ),
        ]
    made.insert(
        0,
        Table(
            "Memory", ("Memory of", "threads", "read, GB/s", "copy, GB/s"), tuple(rows), (COPY_NOTE, *notes)
        ),
    )
    details = {"memory": rows, **found}
    if options.save:
        save_result(options.save, made, details, folder=options.folder)
    print(json.dumps({"tables": [[table.title, table.columns, table.rows, table.notes] for table in made]}))
    return 0


# ---- memory ------------------------------------------------------------------------------------------------

COPY_NOTE = "A copy counts the bytes read and those written."


def cpu_memory(size: int) -> Iterator[tuple[str, int, float, float]]:
    """(what, threads, read GB/s, copy GB/s) for one thread and for all cores."""
    before, device = torch.get_num_threads(), torch.device("cpu")
    try:
        for threads in sorted({1, cores()[0]}):
            torch.set_num_threads(threads)
            yield "CPU", threads, memory_read_gb_per_s(device, size), memory_copy_gb_per_s(device, size)
    finally:
        torch.set_num_threads(before)


def memory_read_gb_per_s(device: torch.device, size: int = MEMORY_BYTES) -> float:
    """Reading `size` bytes once, by a sum and by a product with a vector, whichever is faster; the best of
    five.
    """
    data = torch.ones(size // 4096, 1024, device=device)  # fp32
    vector = torch.ones(1024, device=device)
    best = min(
        _seconds(action, device) for _ in range(REPEATS) for action in (data.sum, lambda: data @ vector)
    )
    return data.nbytes / best / GB


def memory_copy_gb_per_s(device: torch.device, size: int = MEMORY_BYTES) -> float:
    """Copying half of `size` bytes to the other half; bytes read and written count. The best of five."""
    source, target = torch.ones(2, size // 8, device=device).unbind()
    return (
        2 * source.nbytes / min(_seconds(lambda: target.copy_(source), device) for _ in range(REPEATS)) / GB
    )


def _seconds(action: Callable[[], object], device: torch.device) -> float:
    """Until the device is done with it."""
    torch.zeros(1, device=device).item()  # reading a number waits for all that was asked for before it
    started = time.perf_counter()
    action()
    torch.zeros(1, device=device).item()
    return time.perf_counter() - started


# ---- the link ----------------------------------------------------------------------------------------------

LINK_COLUMNS = (
    "Block, MiB",
    "to the GPU, page-locked",
    "to the host, page-locked",
    "to the GPU, ordinary",
    "to the host, ordinary",
)


def link(backend: Backend, blocks_mib: Sequence[float], size: int) -> Iterator[tuple[float, ...]]:
    """(block MiB, GB/s to the device and back from page-locked memory, the same from ordinary memory), `size`
    bytes each time.
    """
    for mib in blocks_mib:
        numbers = int(mib * MIB) // backend.dtype.itemsize
        on_device = torch.zeros(numbers, dtype=backend.dtype, device=backend.device)
        row = [mib]
        for host in (
            backend.host_memory((numbers,), backend.dtype),
            torch.zeros(numbers, dtype=backend.dtype),
        ):
            row += [
                _copy_rate(backend, target, source, size)
                for target, source in ((on_device, host), (host, on_device))
            ]
        yield tuple(row)


def _copy_rate(backend: Backend, target: torch.Tensor, source: torch.Tensor, size: int) -> float:
    """GB/s of copies one after the other, as the staging ring asks for them. The best of five."""
    copies, many = backend.copies(), max(1, size // source.nbytes)
    copy = copies.to_device if source.device.type == "cpu" else copies.to_host

    def all_of_them() -> None:
        for _ in range(many):
            copy(target, source)
        copies.finish(copies.mark())

    return many * source.nbytes / min(_seconds(all_of_them, backend.device) for _ in range(REPEATS)) / GB


# ---- overlap -----------------------------------------------------------------------------------------------

OVERLAP_COLUMNS = (
    "KV, MB",
    "streamed, ms",
    "copies alone, ms",
    "attention alone, ms",
    "streamed / the longer of both",
    "hidden",
)


def overlap_times(
    backend: Backend,
    shape: KVShape = SHAPE,
    *,
    tokens: int = TOKENS,
    block_tokens: int = BLOCK_TOKENS,
    staging_blocks: int = 3,
) -> dict[str, Any]:
    """A pass of one row over `tokens` tokens in host memory, its copies alone, and its attention with
    everything on the device, in ms.

    `hidden`: which share of the shorter part lay behind the longer one.
    """
    together_ms, moved = _attention(
        backend,
        OffloadedKVCache(
            shape,
            tokens + 1,
            backend,
            block_tokens=block_tokens,
            resident_layers=0,
            staging_blocks=staging_blocks,
            fresh_tokens=8,
        ),
        tokens,
    )
    copies_ms = _median_ms(backend, _copying(backend, shape, moved // shape.layers, staging_blocks))
    attention_ms, _ = _attention(
        backend, FullKVCache(shape, tokens + 1, backend, block_tokens=block_tokens), tokens
    )
    hidden = (copies_ms + attention_ms - together_ms) / min(copies_ms, attention_ms)
    return {
        "bytes": moved,
        "together_ms": together_ms,
        "copies_ms": copies_ms,
        "attention_ms": attention_ms,
        "hidden": hidden,
    }


def _attention(backend: Backend, cache: TargetKVCache, tokens: int) -> tuple[float, int]:
    """Milliseconds and bytes to the device of a pass behind `tokens` tokens, which are zeros: bus and kernels
    take as long for them.
    """
    cache.advance(tokens)
    cache.commit(tokens)
    _pass(backend, cache)  # kernels are chosen and buffers touched
    before = cache.bytes_moved
    found = _median_ms(backend, lambda: _pass(backend, cache))
    return found, (cache.bytes_moved - before) // REPEATS


def _pass(backend: Backend, cache: TargetKVCache) -> None:
    """Attention of one token in every layer, which leaves the cache as it was."""
    shape, length = cache.shape, cache.length
    q = torch.ones(
        1, HEADS_PER_KV * shape.kv_heads, shape.head_dim, dtype=backend.dtype, device=backend.device
    )
    k = torch.ones(1, shape.kv_heads, shape.head_dim, dtype=backend.dtype, device=backend.device)
    for layer in range(shape.layers):
        cache.attend(layer, q, k, k)
    cache.advance(1)
    cache.rollback(length)


def _copying(backend: Backend, shape: KVShape, layer_bytes: int, staging_blocks: int) -> Callable[[], None]:
    """As many bytes per layer through as many buffers, and no attention."""
    numbers = layer_bytes // 2 // backend.dtype.itemsize
    host = [backend.host_memory((numbers,), backend.dtype) for _ in range(2)]
    ring = torch.zeros(staging_blocks, numbers, dtype=backend.dtype, device=backend.device)
    copies = backend.copies()

    def copy() -> None:
        for number in range(2 * shape.layers):
            copies.to_device(ring[number % staging_blocks], host[number % 2])
        copies.finish(copies.mark())

    return copy


def _median_ms(backend: Backend, action: Callable[[], None]) -> float:
    return 1e3 * median(_seconds(action, backend.device) for _ in range(REPEATS))


def _overlap_row(found: dict[str, Any]) -> tuple[float, ...]:
    longer = max(found["copies_ms"], found["attention_ms"])
    return (
        found["bytes"] / 1e6,
        found["together_ms"],
        found["copies_ms"],
        found["attention_ms"],
        found["together_ms"] / longer,
        found["hidden"],
    )


@dataclass(frozen=True, slots=True)
class _Passes:
    """See core.planning.slow_link.Rounds."""

    rounds: int
    decode_s: float
    bytes_moved: int


def _slow(found: dict[str, Any], planned_gb_per_s: float) -> tuple[str, ...]:
    """What the product would tell its reader of passes like these, at the rate that the planner assumes for
    this card.
    """
    plan, _ = embedded_plan(Path(EMBEDDED), 0)
    planned = replace(plan, pcie_gb_per_s=planned_gb_per_s, expected_middle_ms=0.0)
    passes = _Passes(REPEATS, REPEATS * found["together_ms"] / 1e3, REPEATS * found["bytes"])
    note = slow_note(planned, passes)
    return (f"The planner assumes {planned_gb_per_s:.1f} GB/s.", *filter(None, [note]))


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--bytes", type=int, default=MEMORY_BYTES, help="of memory that is read and copied")
    parser.add_argument("--save", metavar="NAME", help="name of the result below --folder")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
