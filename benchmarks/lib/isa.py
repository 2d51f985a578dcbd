"""Up to which instruction set a benchmark's processes compute: torch, oneDNN, MKL and our libraries alike."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from core.hardware.cpu import ISA_CAP, all_cpu_flags
from core.hardware.facts import CPU_FLAGS_OF_INTEREST

# name of a cap -> what each library reads when it is loaded
LIMITS = {
    "avx2": {
        ISA_CAP: "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }
}
# llama.cpp has no cap of its own: pip builds llama-cpp-python so where these are in CMAKE_ARGS
LLAMA_CPP_OPTIONS = (
    "-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON "
    "-DGGML_AVX_VNNI=OFF -DGGML_AVX512=OFF"
)


def hold(arguments: Sequence[str] | None = None) -> None:
    """Caps this process and those it will start at what `--isa` says. Torch must not be loaded yet: it reads
    the variables then. Raises SystemExit where the CPU has no such instructions.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--isa", choices=tuple(LIMITS))
    named, _ = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    if named.isa in (None, cap()):
        return
    if named.isa not in all_cpu_flags():
        raise SystemExit(f"This CPU has no {named.isa.upper()}. Leave --isa out.")
    assert "torch" not in sys.modules, "torch is loaded already"
    os.environ.update(LIMITS[named.isa])


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--isa`, for the help: `hold` has seen to it before."""
    said = f"nothing is used beyond this instruction set: {', '.join(LIMITS)}"
    parser.add_argument("--isa", type=_held, help=said)


def _held(name: str) -> str:
    if name != cap():
        raise argparse.ArgumentTypeError(f"{name} is not what this process is held to; write --isa in full")
    return name


def cap() -> str | None:
    """What all libraries of this process are held to; None where nothing is, or not everything."""
    return next((name for name, limits in LIMITS.items() if limits.items() <= os.environ.items()), None)


def isa_facts() -> dict[str, Any]:
    """What the CPU has of what matters here, and the cap, in plain values."""
    return {"has": sorted(all_cpu_flags() & CPU_FLAGS_OF_INTEREST), "cap": cap()}
