"""Compiles kernel.py, product_kernel.py, delta_kernel.py and delta_chunk_kernel.py for NVIDIA cards, on a
computer with or without one (Linux).

    pip install triton==3.9.0
    python -m core.backend.cuda.triton.build [--out FILE]

What comes out is PTX for the oldest cards that are served (sm_80; GeForce RTX 30 has sm_86) in a version that
drivers of 2023 and later read (8.0); each card's driver makes its own machine code of it. With the pinned
version the kernels come out the same to the byte, in one archive. Each begins with the SHA-256 of its source,
by which a test tells that the two belong together.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from core.backend.cuda.triton.driver import headed
from core.backend.cuda.triton.sizes import (
    ARCHIVE,
    BITS,
    CHUNK,
    DECODED_CHUNKS,
    DECODED_ROWS,
    DELTA_CHUNK,
    DELTA_COLUMNS,
    DELTA_KEYS,
    DELTA_TAPS,
    DTYPES,
    JOINED_COLUMNS,
    MOST_SPLITS,
    SHIFTED_BITS,
    TILE_CHUNKS,
    TILE_INPUTS,
    TILE_JOINED,
    TILE_OUTPUTS,
    TILES,
    compiled,
    compiled_delta,
    compiled_product,
)

COMPILER = "3.9.0"
_CAPABILITY, _PTX_VERSION = 80, 80
# tiles on their way while one is computed, and that one, where nothing else is said, and of codes
_STAGES, _CODE_STAGES = 3, 2
# what is not named here is a 32-bit number
_WIDE = ("k_block", "k_head", "v_block", "v_head")
_WHOLE = (
    "q_row",
    "q_head",
    *_WIDE,
    "k_row",
    "v_row",
    "x_row",
    "width",
    "value_dim",
)  # multiples of 16, as most addresses are
# addresses of numbers that are read one by one
_SINGLE = ("ids", "bias", "high", "scale", "offset", "scale_steps", "offset_steps", "decay", "step_bias")


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel: a function, the types of its pointers, its constants. `fused`: a product and a sum may be
    rounded once.
    """

    name: str
    function: str
    pointers: dict[str, str]
    constants: dict[str, int]
    warps: int
    stages: int = _STAGES
    fused: bool = True

    @property
    def source(self) -> Any:
        """The function. Raises ImportError without Triton."""
        from core.backend.cuda.triton import delta_chunk_kernel, delta_kernel, kernel, product_kernel

        rooms = kernel, product_kernel, delta_kernel, delta_chunk_kernel
        return getattr(next(one for one in rooms if hasattr(one, self.function)), self.function)

    def is_whole(self, name: str) -> bool:
        """Whether what is given for it is always a multiple of 16."""
        return name in _WHOLE or (name in self.pointers and name not in _SINGLE)


def variants() -> Iterator[Variant]:
    """Every kernel that is built."""
    for head_dim in TILES:
        for dtype, coded in product(DTYPES, (False, True)):
            yield from _attentions(dtype, head_dim, coded)
        for dtype, kind in {**DTYPES, torch.float32: "fp32"}.items():
            join = {"parts": "*fp32", "part_lse": "*fp32", "out": f"*{kind}", "lse": "*fp32"}
            constants = {"HEAD_DIM": head_dim, "COLUMNS": min(head_dim, JOINED_COLUMNS)}
            constants["MOST_SPLITS"] = MOST_SPLITS
            yield Variant(compiled("join_splits", dtype, head_dim), "join_splits", join, constants, 4)
    for dtype, kind in DTYPES.items():
        yield from _products(dtype, f"*{kind}")
        yield from _deltas(dtype, f"*{kind}")


def _attentions(dtype: torch.dtype, head_dim: int, coded: bool) -> Iterator[Variant]:
    """Those for keys and values of one kind. Windows are numbers alone, and nobody asks for sums of them."""
    tiles, number = TILES[head_dim], f"*{DTYPES[dtype]}"
    row = "*i8" if coded else number
    fp32 = dict.fromkeys(("out", "lse", "sums"), "*fp32")
    attend = {"q": number, "k": row, "v": row, "last": "*i64", **fp32}
    sizes = {"TILE_N": tiles.tokens, "HEAD_DIM": head_dim, "PART": tiles.part}
    sizes |= {"CHUNK": CHUNK, "CODED": int(coded)}
    stages = tiles.stages[coded]
    for place, rows in enumerate(dict.fromkeys(tiles.rows)):
        name = compiled("attend_split", dtype, head_dim, rows, coded=coded)
        tile = {"TILE_M": rows, **sizes, "SUMS": 0, "WINDOWED": int(not coded)}
        yield Variant(name, "attend_split", attend, tile, tiles.warps_of(rows), stages[place])
    name, rows = compiled("attend_split", dtype, head_dim, coded=coded, sums=True), tiles.sums_rows
    tile = {"TILE_M": rows, **sizes, "SUMS": 1, "WINDOWED": 0}
    yield Variant(name, "attend_split", attend, tile, tiles.warps_of(rows), tiles.stages[2][coded])


def _products(dtype: torch.dtype, number: str) -> Iterator[Variant]:
    """Those for matrices in codes, with inputs of one type."""
    join = {"parts": "*fp32", "bias": "*fp32", "out": number}
    name = compiled_product("join_products", dtype)
    yield Variant(name, "join_products", join, {"TILE": TILE_JOINED}, 4)
    kinds = [(bits, False) for bits in BITS] + [(bits, True) for bits in SHIFTED_BITS]
    for bits, shifted in kinds:
        codes = {
            "low": "*i32",
            "high": "*i32" if bits == 6 else "*i16",
            **dict.fromkeys(("scale", "offset"), "*fp16"),
            **dict.fromkeys(("scale_steps", "offset_steps"), "*i8"),
        }
        for inputs in TILE_INPUTS:
            name = compiled_product("multiply_codes", dtype, bits, inputs, shifted=shifted)
            pointers = {"x": number, **codes, "out": "*fp32"}
            tile = {"TILE_M": TILE_OUTPUTS, "TILE_N": inputs, "CHUNKS": TILE_CHUNKS}
            tile = {"BITS": bits, "SHIFTED": int(shifted), **tile}
            yield Variant(name, "multiply_codes", pointers, tile, 4, _CODE_STAGES, fused=False)
        name = compiled_product("decode_rows", dtype, bits, shifted=shifted)
        pointers = {"ids": "*i64", **codes, "out": number}
        tile = {"BITS": bits, "SHIFTED": int(shifted), "TILE_M": DECODED_ROWS, "CHUNKS": DECODED_CHUNKS}
        yield Variant(name, "decode_rows", pointers, tile, 4, 1, fused=False)


def _deltas(dtype: torch.dtype, number: str) -> Iterator[Variant]:
    """Those for layers with a gated delta rule, with rows of one type."""
    factors = dict.fromkeys(("convolution", "decay", "step_bias"), "*fp32")
    strips = {"rows": number, **dict.fromkeys(("source", "target", "out"), "*fp32")}
    between = {"units": "*bf16", **dict.fromkeys(("inverses", "insides"), "*fp32")}
    sizes = {"KEYS": DELTA_KEYS, "TAPS": DELTA_TAPS}
    columns, chunk = {"COLUMNS": DELTA_COLUMNS}, {"CHUNK": DELTA_CHUNK}
    for function, pointers, constants, warps in (
        ("take_rows", strips, sizes | columns, 1),
        ("compare_chunks", {"rows": number, **between}, sizes | chunk, 4),
        ("take_chunks", strips | between, sizes | columns | chunk, 4),
    ):
        name = compiled_delta(dtype, function)
        yield Variant(name, function, pointers | factors, constants, warps, 1, fused=False)


def source_digest() -> str:
    """SHA-256 of the Triton source and of how it is compiled."""
    names = ("kernel.py", "product_kernel.py", "delta_kernel.py", "delta_chunk_kernel.py")
    names += ("sizes.py", "build.py")
    return hashlib.sha256(b"".join((ARCHIVE.parent / name).read_bytes() for name in names)).hexdigest()


def build(out: Path) -> None:
    """All kernels into the archive `out`. Raises ImportError without the compiler."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # lines and paths of this computer
    with tempfile.TemporaryDirectory() as cache, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        os.environ["TRITON_CACHE_DIR"] = cache
        for variant in variants():
            archive.writestr(zipfile.ZipInfo(variant.name), _text(variant), zipfile.ZIP_DEFLATED)


def make(variant: Variant) -> Any:
    """What Triton makes of it: `asm` by stage, `metadata`. Raises ImportError without Triton."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = variant.source.arg_names
    types = dict.fromkeys(names, "i32") | dict.fromkeys(set(_WIDE) & set(names), "i64") | variant.pointers
    whole = [place for place, name in enumerate(names) if variant.is_whole(name)]
    source = ASTSource(
        variant.source,
        types | dict.fromkeys(variant.constants, "constexpr"),
        {(names.index(name),): value for name, value in variant.constants.items()},
        {(place,): [["tt.divisibility", 16]] for place in whole},
    )
    options = {
        "num_warps": variant.warps,
        "num_stages": variant.stages,
        "ptx_version": _PTX_VERSION,
        "enable_fp_fusion": variant.fused,
    }
    return triton.compile(source, target=GPUTarget("cuda", _CAPABILITY, 32), options=options)


def _text(variant: Variant) -> str:
    made = make(variant)
    return headed(
        re.sub(r"[ \t]*//.*", "", made.asm["ptx"]).strip() + "\n",
        given=len(made.src.fn.arg_names) - len(variant.constants),
        shared_bytes=made.metadata.shared,
        source=source_digest(),
        warps=variant.warps,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ARCHIVE, metavar="FILE")
    out = parser.parse_args().out
    try:
        from triton import __version__
    except ImportError:
        sys.exit(f"No compiler: pip install triton=={COMPILER}")
    if __version__ != COMPILER:
        sys.exit(f"This is Triton {__version__}, and the kernels are built by {COMPILER}.")
    build(out)


if __name__ == "__main__":
    main()
