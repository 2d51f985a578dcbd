"""Facts about the CPU: model, instruction sets and the cores this process may use, from what the system
offers as text.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
from pathlib import Path

import psutil

from core.errors import UserError

CPUINFO = Path("/proc/cpuinfo")
# Windows: IsProcessorFeaturePresent knows no bfloat16 test, so only these are asked.
WINDOWS_FEATURES = {39: "avx", 40: "avx2", 41: "avx512f"}
# every desktop CPU with AVX2 has the first, and with AVX-512 the others; the system does not tell
WITH_AVX2 = frozenset({"fma", "f16c", "bmi1", "bmi2", "movbe", "abm"})
WITH_AVX512 = frozenset({"avx512bw", "avx512cd", "avx512dq", "avx512vl"})
# how the names of flags begin that are left out where the variable in the environment has this value: what is
# newer than AVX2, or all that the compiled kernels need. torch and oneDNN have variables of their own.
ISA_CAP = "TRIFORCE_ISA"
_NEWER_THAN_AVX2 = ("avx512", "avx10", "avx_", "amx")
_LEFT_OUT = {"avx2": _NEWER_THAN_AVX2, "none": (*_NEWER_THAN_AVX2, "avx2", "asimd")}


def cpu_name() -> str:
    """The processor's name as people know it."""
    for key, value in _cpuinfo():
        if key in ("model name", "Model"):
            return value
    if platform.system() == "Darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def isa_cap() -> str | None:
    """The instruction set above which nothing is used: "avx2"; "none" for torch's kernels alone; None for all
    that there is. Raises UserError.
    """
    cap = os.environ.get(ISA_CAP) or None
    if cap is not None and cap not in _LEFT_OUT:
        raise UserError(f"{ISA_CAP} is {cap!r}, which is no cap. Set it to avx2 or none, or unset it.")
    return cap


def cpu_flags() -> frozenset[str]:
    """Instruction sets that may be used, by the names Linux gives them; empty where the system does not
    tell.
    """
    left_out = _LEFT_OUT.get(isa_cap(), ())
    return frozenset(flag for flag in all_cpu_flags() if not flag.startswith(left_out))


def all_cpu_flags() -> frozenset[str]:
    """What the CPU has, whatever the cap is."""
    for key, value in _cpuinfo():
        if key in ("flags", "Features"):
            return frozenset(value.split())
    if platform.system() == "Windows":
        return _windows_flags()
    if platform.system() == "Darwin":
        if platform.machine() == "arm64":
            return frozenset({"asimd"})
        return frozenset(_sysctl("machdep.cpu.leaf7_features").lower().split())
    return frozenset()


def cores() -> tuple[int, int]:
    """(physical, logical) cores this process may use: affinity and container quotas count."""
    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    if hasattr(os, "sched_getaffinity"):
        logical = min(logical, len(os.sched_getaffinity(0)))
    quota = _cgroup_quota()
    if quota is not None:
        logical = min(logical, max(1, math.ceil(quota)))
    return min(physical, logical), logical


def _cpuinfo() -> list[tuple[str, str]]:
    try:
        text = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    pairs = (line.partition(":") for line in text.split("\n\n", 1)[0].splitlines())
    return [(key.strip(), value.strip()) for key, _, value in pairs]


def _sysctl(name: str) -> str:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _windows_flags() -> frozenset[str]:
    import ctypes

    try:
        present = ctypes.windll.kernel32.IsProcessorFeaturePresent  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return frozenset()
    found = frozenset(name for number, name in WINDOWS_FEATURES.items() if present(number))
    more = {"avx2": WITH_AVX2, "avx512f": WITH_AVX512}
    return found.union(*(flags for name, flags in more.items() if name in found))


def _cgroup_quota() -> float | None:
    """CPUs a container may use (cgroup v2 or v1), or None without a limit."""
    root = Path("/sys/fs/cgroup")
    try:
        quota, period = (root / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)
