"""The compiled libraries beside this file: which one serves this computer, and on whose threads. Knows no
kernel.

A library comes ready for each system (see build.py), so no compiler is needed here. It runs on the threads
that torch keeps awake, through torch's own OpenMP: others would fight them for the cores.
"""

from __future__ import annotations

import ctypes
import logging
import platform
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

import torch

log = logging.getLogger(__name__)

FOLDER = Path(__file__).resolve().parent
# the x86-64 psABI's levels v3 and v4, for which the libraries are compiled
_V3 = {"avx2", "fma", "f16c", "bmi1", "bmi2", "movbe", "abm"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# machine -> instruction sets, the best first, and what the CPU must have for each
_NEEDS = {"x86_64": {"avx512": _V4, "avx2": _V3}, "aarch64": {"neon": {"asimd"}}}
# the same of attention.c, which multiplies codes by dot products of integers
_DOTS = {
    "x86_64": {"avx512vnni": _V4 | {"avx512_vnni"}, "avxvnni": _V3 | {"avx_vnni"}, "avx2": _V3},
    "aarch64": _NEEDS["aarch64"],
}
_MACHINES = {"AMD64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
_SUFFIXES = {"Linux": ".so", "Windows": ".dll", "Darwin": ".dylib"}
Kernel = TypeVar("Kernel")


class ThreadTeam(ctypes.Structure):
    """struct team of threads.h."""

    _fields_ = [
        ("threads", ctypes.c_int32),
        ("gomp_parallel", ctypes.c_void_p),
        ("kmpc_fork_call", ctypes.c_void_p),
    ]


def library_path(name: str, system: str | None = None, machine: str | None = None) -> Path | None:
    """The library `name` for a system and a machine as `platform` names them (default: these); None
    without one.
    """
    system = system or platform.system()
    machine = _MACHINES.get(machine or platform.machine())
    path = FOLDER / f"{name}-{system.lower()}-{machine}{_SUFFIXES.get(system, '')}"
    return path if path.is_file() else None


def instruction_sets(cpu_flags: Collection[str], name: str = "products") -> list[str]:
    """What library `name` is compiled for that a CPU with these flags (names as in /proc/cpuinfo) has, best
    first.
    """
    needs = (_DOTS if name == "attention" else _NEEDS).get(_MACHINES.get(platform.machine(), ""), {})
    return [name for name, flags in needs.items() if flags <= set(cpu_flags)]


def load_checked(
    path: Path | None,
    cpu_flags: Collection[str],
    make: Callable[[Path, str, Path], Kernel],
    agrees: Callable[[Kernel], bool],
    instead: str,
) -> Kernel | None:
    """`make(path, instructions, openmp)` where it can be made and `agrees` with the definition; else None,
    and the log says what serves `instead`.

    The flags are looked at before the first call: no self-test survives an illegal instruction.
    """
    openmp = torch_openmp()
    sets = instruction_sets(cpu_flags, path.name.partition("-")[0]) if path else []
    if path is None or openmp is None or not sets or sys.maxsize < 2**32:
        return None
    try:
        kernel = make(path, sets[0], openmp)
    except (OSError, AttributeError) as error:
        log.warning("%s cannot be used (%s); %s", path.name, error, instead)
        return None
    if not agrees(kernel):
        log.warning("%s computes wrongly on this CPU; %s", path.name, instead)
        return None
    return kernel


def torch_openmp() -> Path | None:
    """The OpenMP library that this torch computes with; None where it cannot be told.

    Wheels bring theirs. Others may be loaded beside it (sentencepiece has one, too): their threads are not
    torch's.
    """
    folder = Path(torch.__file__).parent / "lib"
    for pattern in ("libgomp*.so*", "libiomp5*.dll", "libomp*.dylib", "libiomp5*.so*", "libomp*.so*"):
        if found := sorted(folder.glob(pattern)):
            return found[0]
    return None


def entry_points(openmp: Path) -> dict[str, int]:
    """How the library's threads are woken, by field of the kernels' calls. Raises OSError or
    AttributeError.
    """
    library = ctypes.CDLL(str(openmp))
    name, field = ("GOMP_parallel", "gomp_parallel")
    if "gomp" not in openmp.name:
        name, field = ("__kmpc_fork_call", "kmpc_fork_call")
    return {field: ctypes.cast(getattr(library, name), ctypes.c_void_p).value}
