"""Shapes that attention kernels are tried with."""

from __future__ import annotations

import torch

from core.backend.cpu.native.library import instruction_sets, library_path
from core.hardware.cpu import cpu_flags

LIBRARY = library_path("attention")


HERE = instruction_sets(cpu_flags(), "attention") if LIBRARY else []


SHAPES = [
    (1, 1, True),
    (1, 32, True),
    (1, 33, True),
    (1, 77, False),
    (3, 3, True),
    (5, 40, True),
    (5, 64, False),
    (17, 96, True),
    (60, 60, True),
    (60, 130, True),
    (60, 130, False),
    (96, 97, True),
]


# of 16-bit shares, each off by half a last place at most; who sums fp32 shares in fp32 is exact
ROUNDED = {torch.float32: 2e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}


# rows, tokens, tokens of a block, query heads, KV heads, own rows at the end: tiles, splits and blocks that
# end anywhere, own rows over a border of blocks and over several, splits without a visible key, odd groups
CASES = [
    (1, 1, 32, 16, 2, True),
    (1, 300, 512, 4, 4, False),
    (2, 65, 32, 16, 2, True),
    (2, 64, 64, 2, 2, True),
    (3, 40, 1024, 4, 2, True),
    (4, 70, 48, 9, 3, True),
    (7, 200, 96, 14, 2, True),
    (7, 200, 96, 7, 1, False),
    (17, 150, 64, 8, 1, True),
    (17, 17, 512, 2, 2, True),
    (33, 170, 128, 4, 1, True),
    (33, 96, 32, 2, 2, False),
    (40, 100, 40, 2, 1, True),
    (40, 64, 16, 1, 1, True),
]


LONG = [
    (1, 700, 512, 9, 3, True),
    (4, 1025, 512, 8, 2, True),
    (5, 5000, 4096, 4, 4, True),
    (9, 1500, 512, 16, 2, False),
    (17, 2000, 2048, 4, 4, True),
    (33, 1536, 512, 9, 3, True),
    (1, 16_500, 4096, 2, 1, True),  # more pieces than half of what one launch joins, and no power of two
]
