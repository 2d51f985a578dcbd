"""NVIDIA GPUs as the driver's management library tells. Problems are returned in words. No torch."""

from __future__ import annotations

import logging
import os
from typing import Any

from core.hardware.facts import Gpu
from core.hardware.gpus import look_up, of_class, pcie_rate
from core.text.words import GB
from core.text.words import translated as _

log = logging.getLogger(__name__)


def read_gpus() -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """(GPUs, problems). A machine without NVIDIA's driver is no problem; a driver that is silent is one."""
    try:
        import pynvml as nvml
    except ImportError:
        return (), (_("The package nvidia-ml-py is missing, so NVIDIA GPUs cannot be seen."),)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        absent = ("NVMLError_LibraryNotFound", "NVMLError_LibRmVersionMismatch")
        if type(error).__name__ == absent[0]:
            return (), ()
        if type(error).__name__ == absent[1]:
            return (), (_("The NVIDIA driver was updated while running. Restart the computer."),)
        return (), (_silent(error),)
    try:
        return _read_all(nvml)
    finally:
        _quietly(nvml, nvml.nvmlShutdown)


def _silent(error: Exception) -> str:
    said = _("The NVIDIA driver does not answer ({error}). Reinstall it, or restart the computer.")
    return said.format(error=error)


def _read_all(nvml: Any) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    gpus, problems = [], []
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return (), (_silent(error),)
    for index, number in enumerate(_visible(nvml, count)):
        try:
            gpus.append(_read_one(nvml, number, index, driver))
        except nvml.NVMLError as error:
            problems.append(_("GPU {number} does not answer ({error}).").format(number=index, error=error))
    return tuple(gpus), tuple(problems)


def _visible(nvml: Any, count: int) -> list[int]:
    """The library's numbers of the GPUs that CUDA shows, in CUDA's order. Of parts of a GPU (MIG) the library
    tells too little: then all.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide, environment variables: behind a name that
    is not there CUDA shows none.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None or "MIG" in named:
        return list(range(count))
    found: list[int] = []
    for name in map(str.strip, named.split(",")):
        number = int(name) if name.isdigit() else _by_uuid(nvml, name, count)
        if number is None or number >= count:
            break
        found.append(number)
    return found


def _by_uuid(nvml: Any, name: str, count: int) -> int | None:
    """By the beginning of its name, as CUDA takes it."""
    if not name.startswith("GPU-"):
        return None
    handles = map(nvml.nvmlDeviceGetHandleByIndex, range(count))
    uuids = [_text(_quietly(nvml, nvml.nvmlDeviceGetUUID, handle) or "") for handle in handles]
    return next((number for number, uuid in enumerate(uuids) if uuid.startswith(name)), None)


def _read_one(nvml: Any, number: int, index: int, driver: str) -> Gpu:
    """`number`: the library's; `index`: CUDA's."""
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    name = _text(nvml.nvmlDeviceGetName(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = _quietly(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    spec = look_up(name, vram_bytes=memory.total)
    like = spec or of_class(capability, memory.total)
    generation = _quietly(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
    lanes = _quietly(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle)
    link = pcie_rate(generation or 3, lanes or 16)
    return Gpu(
        name=name,
        vram_bytes=memory.total,
        free_bytes=memory.free,
        driver=driver,
        index=index,
        known=spec is not None,
        memory_gb_per_s=spec.memory_gb_per_s if spec else _memory_rate(nvml, handle) or like.memory_gb_per_s,
        tflops=spec.tflops if spec else _tflops(nvml, handle, capability) or like.tflops,
        pcie_gb_per_s=link,
        compute_capability=tuple(capability) if capability else (spec.compute_capability if spec else None),
    )


def _memory_rate(nvml: Any, handle: Any) -> float | None:
    """GB/s from bus width and memory clock (two transfers per clock), where the driver knows them."""
    bits = _quietly(nvml, nvml.nvmlDeviceGetMemoryBusWidth, handle)
    mhz = _quietly(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM)
    return bits / 8 * mhz * 2e6 / GB if bits and mhz else None


def _tflops(nvml: Any, handle: Any, capability: tuple[int, int] | None) -> float | None:
    """Dense 16-bit TFLOP/s, where the driver knows cores and clock: twice the fp32 rate on cards with tensor
    cores of capability 8 and above.
    """
    cores = _quietly(nvml, nvml.nvmlDeviceGetNumGpuCores, handle)
    mhz = _quietly(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)
    if not (cores and mhz):
        return None
    factor = 2.0 if capability and tuple(capability) >= (8, 0) else 1.0
    return cores * 2 * mhz * 0.85 * factor / 1e6  # boost clocks are not held


def _quietly(nvml: Any, call: Any, *args: Any) -> Any:
    """The answer, or None where this GPU or driver does not know the question."""
    try:
        return call(*args)
    except (nvml.NVMLError, AttributeError) as error:
        log.debug("NVML: %s", error)
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
