"""Compiles kernel.py for NVIDIA cards, on a computer with or without one (Linux).

    pip install triton==3.9.0
    python -m core.backend.triton.build [--out FOLDER]

What comes out is PTX for the oldest cards that are served (sm_80; GeForce RTX 30 has sm_86) in a version that
drivers of 2023 and later read (8.0); each card's driver makes its own machine code of it. With the pinned
version the files come out the same to the byte. Each begins with the SHA-256 of its source, by which a test
tells that the two belong together.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.backend.triton.driver import headed
from core.backend.triton.sizes import (
    CHUNK,
    DTYPES,
    FOLDER,
    HEAD_DIMS,
    MOST_SPLITS,
    TILE_ROWS,
    TILE_TOKENS,
    compiled,
)

COMPILER = "3.9.0"
_CAPABILITY, _PTX_VERSION = 80, 80
_STAGES = 3  # tiles on their way while one is computed, and that one
# what is not named here is a 32-bit number
_WIDE = ("k_block", "k_head", "v_block", "v_head")
_WHOLE = ("q_row", "q_head", *_WIDE, "k_row", "v_row")  # multiples of 16, as addresses are


@dataclass(frozen=True, slots=True)
class Variant:
    """One file: a function of kernel.py, the types of its pointers, its constants."""

    path: Path
    function: str
    pointers: dict[str, str]
    constants: dict[str, int]
    warps: int


def variants() -> Iterator[Variant]:
    """Every file that is built."""
    for head_dim in HEAD_DIMS:
        sizes = {"TILE_N": TILE_TOKENS, "HEAD_DIM": head_dim}
        for dtype, kind in DTYPES.items():
            number = f"*{kind}"
            attend = {"q": number, "k": number, "v": number, "last": "*i64", "out": "*fp32", "lse": "*fp32"}
            for rows in TILE_ROWS:
                path = compiled("attend_split", dtype, head_dim, rows)
                yield Variant(path, "attend_split", attend, {"TILE_M": rows, **sizes}, rows // 16)
            path, constants = compiled("sum_chunks", dtype, head_dim), {"TILE_M": 16, "CHUNK": CHUNK, **sizes}
            yield Variant(path, "sum_chunks", {"q": number, "k": number, "lse": "*fp32"}, constants, 1)
        for dtype, kind in {**DTYPES, torch.float32: "fp32"}.items():
            join = {"parts": "*fp32", "part_lse": "*fp32", "out": f"*{kind}", "lse": "*fp32"}
            constants = {"HEAD_DIM": head_dim, "MOST_SPLITS": MOST_SPLITS}
            yield Variant(compiled("join_splits", dtype, head_dim), "join_splits", join, constants, 4)


def source_digest() -> str:
    """SHA-256 of the Triton source and of how it is compiled."""
    names = ("kernel.py", "sizes.py", "build.py")
    return hashlib.sha256(b"".join((FOLDER.parent / name).read_bytes() for name in names)).hexdigest()


def build(out: Path) -> None:
    """All files into `out`. Raises ImportError without the compiler."""
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # lines and paths of this computer
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for variant in variants():
            (out / variant.path.name).write_bytes(_file(variant).encode("ascii"))


def make(variant: Variant) -> Any:
    """What Triton makes of it: `asm` by stage, `metadata`. Raises ImportError without Triton."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from core.backend.triton import kernel

    function = getattr(kernel, variant.function)
    names = function.arg_names
    types = dict.fromkeys(names, "i32") | dict.fromkeys(set(_WIDE) & set(names), "i64") | variant.pointers
    whole = [names.index(name) for name in (*variant.pointers, *_WHOLE) if name in names]
    source = ASTSource(
        function,
        types | dict.fromkeys(variant.constants, "constexpr"),
        {(names.index(name),): value for name, value in variant.constants.items()},
        {(place,): [["tt.divisibility", 16]] for place in whole},
    )
    options = {
        "num_warps": variant.warps,
        "num_stages": _STAGES,
        "ptx_version": _PTX_VERSION,
        "enable_fp_fusion": True,
    }
    return triton.compile(source, target=GPUTarget("cuda", _CAPABILITY, 32), options=options)


def _file(variant: Variant) -> str:
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
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    out = parser.parse_args().out
    try:
        from triton import __version__
    except ImportError:
        sys.exit(f"No compiler: pip install triton=={COMPILER}")
    if __version__ != COMPILER:
        sys.exit(f"This is Triton {__version__}, and the files are built by {COMPILER}.")
    build(out)


if __name__ == "__main__":
    main()
