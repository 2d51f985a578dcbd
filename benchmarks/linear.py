"""Products with weights in codes on one core of this CPU: the compiled kernel beside bf16 and int4 by torch.

    python -m benchmarks.linear [--rows 4096] [--columns 4096]

Contenders alternate, matrix after matrix so that none stays in a cache; the figures are the least CPU time of
a product over the rounds, which other programs disturb least, and how many times as fast as bf16 it is.
Printed as JSON; nothing is stored.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from core.backend.cpu.native.library import instruction_sets, library_path
from core.backend.cpu.native.products import NativeProducts
from core.backend.shared.quantized import Planes
from core.hardware.cpu import cpu_flags
from core.model.gguf.dequantize import planes
from core.model.gguf.reader import KINDS

MATRICES, ROUNDS = 6, 7
FORMATS = ("Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0")
INPUTS = (1, 2, 4, 8, 16, 40)
_GROUP = 32
Product = Callable[[int, torch.Tensor], torch.Tensor]


def coded(kind: str, rows: int, columns: int) -> list[Planes]:
    """Matrices of random blocks."""
    block, nbytes = next((block, nbytes) for name, block, nbytes in KINDS.values() if name == kind)
    dice = np.random.default_rng(0)
    size = rows * columns // block * nbytes
    return [
        planes(dice.integers(0, 120, size, dtype=np.uint8), kind, (rows, columns))
        for _index in range(MATRICES)
    ]


def contenders(rows: int, columns: int) -> dict[str, Product]:
    """Products with the matrix of a number, by name."""
    floats = [torch.randn(rows, columns).bfloat16() for _index in range(MATRICES)]
    codes = torch.randint(0, 16, (rows, columns), dtype=torch.int32)
    packed = [torch._convert_weight_to_int4pack_for_cpu(codes, 1) for _index in range(MATRICES)]
    scales = torch.rand(columns // _GROUP, rows, 2).bfloat16()
    found: dict[str, Product] = {
        "bf16": lambda i, x: F.linear(x, floats[i]),
        "int4": lambda i, x: torch._weight_int4pack_mm_for_cpu(x, packed[i], _GROUP, scales),
    }
    matrices = {kind: coded(kind, rows, columns) for kind in FORMATS}
    for instructions in instruction_sets(cpu_flags()):
        kernel = NativeProducts(library_path("products"), instructions)
        for kind, made in matrices.items():
            found[f"{kind}, {instructions}"] = lambda i, x, kernel=kernel, made=made: kernel.multiply(
                x, [made[i]]
            ).bfloat16()
    return found


def measured(products: dict[str, Product], x: torch.Tensor) -> dict[str, float]:
    """Milliseconds of a product by contender."""
    times: dict[str, list[float]] = {name: [] for name in products}
    for _round in range(ROUNDS):
        for name, product in products.items():
            started = time.thread_time()
            for index in range(MATRICES):
                product(index, x)
            times[name].append((time.thread_time() - started) / MATRICES * 1e3)
    return {name: min(taken) for name, taken in times.items()}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=4096)
    given = parser.parse_args()
    torch.set_num_threads(1)
    products, found = contenders(given.rows, given.columns), []
    for n in INPUTS:
        taken = measured(products, torch.randn(n, given.columns).bfloat16())
        for name, ms in taken.items():
            figures = {"inputs": n, "by": name, "ms": round(ms, 3), "times": round(taken["bf16"] / ms, 2)}
            found.append(figures)
            print(f"{n:3} inputs  {name:14} {ms:8.2f} ms  {figures['times']:5.2f} times bf16")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
