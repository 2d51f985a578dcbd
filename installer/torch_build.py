"""Which build of torch fits this machine: a pure table, and what it must know of the NVIDIA driver."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass

INDEX = "https://download.pytorch.org/whl/"
RANGE = "torch>=2.11,<3"
LOCAL_CPU = "torch==2.13.0"  # asked of the user's own indexes first: some keep a CPU build at hand
OVERRIDE = "TRIFORCE_TORCH"  # cpu, cu126, cu128 or cu130
BUILDS = ("cpu", "cu126", "cu128", "cu130")


@dataclass(frozen=True, slots=True)
class NvidiaDriver:
    """What the NVIDIA driver says of itself. `capability`: of its weakest GPU, (0, 0) when unknown."""

    version: tuple[int, ...]
    capability: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return ".".join(str(part) for part in self.version)


@dataclass(frozen=True, slots=True)
class Build:
    """The build to install and, where the reason is worth a sentence, why."""

    name: str
    note: str = ""

    @property
    def index(self) -> str:
        """The official package index that holds this build and what it needs."""
        return INDEX + self.name


def choose_build(driver: NvidiaDriver | None, *, system: str, override: str = "") -> Build:
    """The build for this driver; `system` is sys.platform. Minimum drivers: CUDA 13 wants 580, CUDA 12 wants
    525 (Windows 528).

    cu130 has no code for GPUs before Turing (7.5), cu126 none for Blackwell (10.0 and up), which leaves cu128
    to the latter.
    """
    if override:
        if override not in BUILDS:
            raise ValueError(f"{OVERRIDE} is {override!r}; it can be {', '.join(BUILDS)}.")
        return Build(override, f"chosen by {OVERRIDE}")
    if driver is None or system == "darwin":
        return Build("cpu")
    oldest = (528, 33) if system == "win32" else (525, 60)
    if driver.version < oldest:
        needed = ".".join(str(part) for part in oldest)
        return Build(
            "cpu",
            f"the NVIDIA driver {driver} is older than {needed}: update it, then run launcher.py repair",
        )
    known = driver.capability != (0, 0)
    if driver.version >= (580,) and not (known and driver.capability < (7, 5)):
        return Build("cu130")
    if known and driver.capability >= (10, 0):
        return Build("cu128")
    return Build("cu126")


# ---- the driver --------------------------------------------------------------------------------------------


def find_driver() -> NvidiaDriver | None:
    """The driver's own answer by NVML, else nvidia-smi's; None without a driver or a GPU it reaches."""
    if sys.platform == "darwin" or platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"):
        return None
    return _ask_nvml() or _ask_nvidia_smi()


def _ask_nvml() -> NvidiaDriver | None:
    name = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
    try:
        nvml = ctypes.CDLL(name)
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        text, count = ctypes.create_string_buffer(96), ctypes.c_uint()
        if (
            nvml.nvmlSystemGetDriverVersion(text, 96) != 0
            or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0
        ):
            return None
        if count.value == 0:
            return None
        capabilities = [_capability(nvml, index) for index in range(count.value)]
        return _driver(text.value.decode("ascii", "replace"), capabilities)
    finally:
        nvml.nvmlShutdown()


def _capability(nvml: ctypes.CDLL, index: int) -> tuple[int, int]:
    device, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) != 0:
        return (0, 0)
    if nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor)) != 0:
        return (0, 0)
    return (major.value, minor.value)


def _ask_nvidia_smi() -> NvidiaDriver | None:
    command = ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_nvidia_smi(said)


def parse_nvidia_smi(text: str) -> NvidiaDriver | None:
    """Lines such as `580.65.06, 8.9`, one per GPU."""
    rows = [
        re.fullmatch(r"\s*(\d+(?:\.\d+)+)\s*(?:,\s*(\d+)\.(\d+))?.*", line)
        for line in text.splitlines()
        if line.strip()
    ]
    found = [row for row in rows if row]
    return _driver(found[0][1], [(int(row[2] or 0), int(row[3] or 0)) for row in found]) if found else None


def _driver(version: str, capabilities: list[tuple[int, int]]) -> NvidiaDriver | None:
    parts = re.findall(r"\d+", version)
    known = [capability for capability in capabilities if capability != (0, 0)]
    return NvidiaDriver(tuple(int(part) for part in parts), min(known, default=(0, 0))) if parts else None


def driver_in_sight() -> bool:
    """Whether there is a trace of an NVIDIA driver; cheap enough to notice a GPU that came later."""
    if sys.platform == "win32":
        return os.path.exists(
            os.path.join(os.environ.get("SYSTEMROOT", r"C:\Windows"), "System32", "nvml.dll")
        )
    return os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/dxg")
