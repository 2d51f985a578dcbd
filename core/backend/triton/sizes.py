"""What is compiled: the sizes that kernel.py's constants take, and the files they lie in."""

from __future__ import annotations

from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parent / "ptx"
DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
HEAD_DIMS = (64, 128)
TILE_ROWS = (16, 64)  # rows of a program, of which each of its warps has 16
TILE_TOKENS = 32
CHUNK = 16  # keys of which `sum_chunks` leaves one sum
MOST_SPLITS = 64  # that `join_splits` takes


def compiled(function: str, dtype: torch.dtype, head_dim: int, rows: int | None = None) -> Path:
    """The file of one of kernel.py's functions, for tiles of `rows` rows where it has such."""
    kind = {**DTYPES, torch.float32: "fp32"}[dtype]
    tile = "" if rows is None else f"-{rows}"
    return FOLDER / f"{function}-{kind}-{head_dim}{tile}.ptx"
