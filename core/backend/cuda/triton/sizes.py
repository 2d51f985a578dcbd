"""What is compiled: the sizes that the kernels' constants take, and the archive that the kernels lie in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from core.backend.shared.compiled import HEAD_DIMS as HEAD_DIMS

ARCHIVE = Path(__file__).resolve().parent / "kernels.zip"
DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_WARP_ROWS = 16  # of a product that a warp makes
JOINED_COLUMNS = 128  # numbers of a row that `join_splits` takes at a time, at most
CHUNK = 8  # keys of which attention leaves one sum: a plan's chunk, or a part of it
MOST_SPLITS = 128  # that `join_splits` takes: with 8 KV heads some for each multiprocessor of any card
BITS = (4, 5, 6, 8)  # of the codes of weights
SHIFTED_BITS = (4, 5)  # of formats of which some have an offset
TILE_OUTPUTS = 64  # of a program of `multiply_codes`,
TILE_INPUTS = (16, 32)  # and inputs
TILE_CHUNKS = 4  # of 32 codes that it decodes at a time
TILE_JOINED = 512  # numbers of a program of `join_products`
DECODED_ROWS, DECODED_CHUNKS = 4, 32  # of a program of `decode_rows`
# of a gated delta rule: numbers of a key, rows that its convolution sees, columns of a state in a program
DELTA_KEYS, DELTA_TAPS, DELTA_COLUMNS = 128, 4, 16
DELTA_CHUNK = 16  # rows that are taken together in a prefill


@dataclass(frozen=True, slots=True)
class HeadTiles:
    """Tiles of attention with heads of one size. `rows` of a program, low and high, and `sums_rows` of one
    that leaves sums of chunks; `tokens` of keys; `part`: numbers of a row that one product sums; `warps`:
    None where each holds whole rows. `stages`: tiles on their way while one is computed, and that one: of
    keys in a low program and a high one, of codes likewise, and with sums of both.
    """

    rows: tuple[int, int]
    sums_rows: int
    tokens: int
    part: int
    stages: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    warps: int | None = None

    def warps_of(self, rows: int) -> int:
        """Warps of a program with so many rows."""
        return self.warps or rows // _WARP_ROWS


# as many tiles on their way as leave registers, and 48 KB of shared memory, enough
_USUAL = HeadTiles((16, 64), 64, 32, 64, ((3, 3), (2, 2), (2, 1)))
TILES = {
    64: _USUAL,
    128: _USUAL,
    256: HeadTiles((16, 64), 64, 16, 64, ((2, 2), (2, 1), (1, 1))),
    512: HeadTiles((16, 16), 16, 16, 128, ((1, 1), (1, 1), (1, 1)), warps=4),
}


def compiled(
    function: str,
    dtype: torch.dtype,
    head_dim: int,
    rows: int | None = None,
    *,
    coded: bool = False,
    sums: bool = False,
) -> str:
    """The name in the archive of one of kernel.py's functions, for tiles of `rows` rows where it has such;
    `coded`: for keys and values in codes; `sums`: it leaves those of chunks.
    """
    kind = {**DTYPES, torch.float32: "fp32"}[dtype]
    tile = "" if rows is None else f"-{rows}"
    more = ("-sums" if sums else "") + ("-codes" if coded else "")
    return f"{function}-{kind}-{head_dim}{tile}{more}.ptx"


def compiled_product(function: str, dtype: torch.dtype, *sizes: int, shifted: bool = False) -> str:
    """The name in the archive of one of product_kernel.py's functions: bits of the codes and inputs of a
    program, where it has such; `shifted`: for codes with an offset.
    """
    more = ("shifted",) if shifted else ()
    return f"{'-'.join((function, DTYPES[dtype], *map(str, sizes), *more))}.ptx"


def compiled_delta(dtype: torch.dtype, function: str = "take_rows") -> str:
    """The name in the archive of one of delta_kernel.py's or delta_chunk_kernel.py's functions for rows of
    this type.
    """
    return f"{function}-{DTYPES[dtype]}.ptx"
