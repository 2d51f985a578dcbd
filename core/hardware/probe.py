"""Facts about this machine. No GPU and a broken driver are facts too, never exceptions.

NVML is asked first, torch only in a short-lived process of its own (core.hardware.child). What was measured
is kept per machine in the data folder and measured anew on demand.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import psutil

from core.hardware.cpu import cores, cpu_flags, cpu_name
from core.hardware.facts import CpuRates, Gpu, Hardware, instruction_set
from core.hardware.gpus import look_up, of_class, pinnable
from core.hardware.measured import CPU, CPU_RATES, PAGE_LOCKED, Measurements, kernels_on
from core.hardware.nvml import read_gpus
from core.paths import ROOT
from core.text.words import GB, duration
from core.text.words import translated as _

MIB = 1 << 20
CHILD_TIMEOUT_S = 90
DISK_PROBE_BYTES = 64 * MIB

log = logging.getLogger(__name__)


def probe(
    data_folder: Path | None = None, *, measure: bool = True, again: bool = False, retry_kernels: bool = False
) -> Hardware:
    """What this machine is, now.

    measure: PCIe and disk speed are measured where no earlier measurement is in `data_folder`; again: even
    then, and what is known of compiled kernels is dropped; retry_kernels: that alone. Without a data folder
    nothing is measured. A machine without a GPU reports no bus bandwidth.
    """
    system, wsl = platform.system(), "microsoft" in platform.release().lower()
    physical, logical = cores()
    total, available = ram()
    gpus, problems = read_gpus()
    if problems and not gpus:
        gpus = _gpus_by_torch()
    cache = Measurements(data_folder, again=again) if data_folder else None
    if cache is not None and again:
        cache.forget(PAGE_LOCKED)
        cache.forget(CPU_RATES)
    if cache is not None and (again or retry_kernels):
        for device in (CPU, *(gpu.name for gpu in gpus)):
            cache.forget_kernels(device)
    if cache is not None:
        gpus = tuple(replace(gpu, refused=_refused(gpu.name, cache)) for gpu in gpus)
    if cache is not None and measure:
        gpus, bus_problems = _with_bus(gpus, cache)
        problems += bus_problems
    return Hardware(
        system=system,
        cpu_name=cpu_name(),
        physical_cores=physical,
        logical_cores=logical,
        cpu_flags=cpu_flags(),
        ram_bytes=total,
        ram_available_bytes=available,
        wsl=wsl,
        # Linux inside Windows pins by Windows' rules
        pinnable_bytes=_pinnable("Windows" if wsl else system, total, cache),
        gpus=gpus,
        disk_path=str(data_folder or ""),
        disk_free_bytes=_disk_free(data_folder),
        disk_gb_per_s=_disk_speed(data_folder, cache) if cache is not None and measure else None,
        refused=_refused(CPU, cache) if cache is not None else (),
        cpu_rates=rates_in(cache) if cache is not None else None,
        problems=problems,
    )


# ---- memory and disk ---------------------------------------------------------------------------------------


def ram() -> tuple[int, int]:
    """(total, available) bytes of RAM for this process; a container's limit counts."""
    facts = psutil.virtual_memory()
    limit, used = _cgroup_memory()
    if limit is None:
        return facts.total, facts.available
    return min(facts.total, limit), max(0, min(facts.available, limit - used))


def _cgroup_memory(root: Path = Path("/sys/fs/cgroup")) -> tuple[int | None, int]:
    """(limit, used) of this container, or (None, 0). Files the kernel can drop are not counted as used."""
    for names in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        try:
            limit, used, stat = ((root / name).read_text().strip() for name in names)
            droppable = sum(
                int(line.split()[1]) for line in stat.splitlines() if line.split()[0] == "inactive_file"
            )
            return (None, 0) if limit == "max" else (int(limit), max(0, int(used) - droppable))
        except (OSError, ValueError, IndexError):
            continue
    return None, 0


def _pinnable(system: str, total: int, cache: Measurements | None) -> int:
    """What an earlier run could page-lock when the system refused more; until then what is usual."""
    usual = pinnable(system, total)
    known = cache.get(PAGE_LOCKED) if cache is not None else None
    return usual if known is None else min(usual, known["bytes"])


def _refused(device: str, cache: Measurements) -> tuple[str, ...]:
    """The compiled kernels that the last engine there found not to serve."""
    known = cache.get(kernels_on(device))
    return tuple(known["refused"]) if known else ()


def rates_in(cache: Measurements) -> CpuRates | None:
    """What was measured of this CPU with the instructions that it has today."""
    known, names = cache.get(CPU_RATES) or {}, [one.name for one in fields(CpuRates)]
    if not all(name in known for name in names):
        return None
    rates = CpuRates(**{name: known[name] for name in names})
    same = (rates.cpu, rates.instructions) == (cpu_name(), instruction_set(cpu_flags()))
    return rates if same else None


def _disk_free(folder: Path | None) -> int | None:
    try:
        return shutil.disk_usage(folder).free if folder else None
    except OSError:
        return None


def _disk_speed(folder: Path, cache: Measurements) -> float | None:
    known = cache.get("disk")
    if known is not None:
        return known["gb_per_s"]
    speed = measure_disk(folder)
    if speed is not None:
        cache.put("disk", {"gb_per_s": speed})
    return speed


def measure_disk(folder: Path) -> float | None:
    """GB/s of writing one file to the folder's disk, flushed; None where it cannot be written."""
    path = folder / f".speed-{os.getpid()}.tmp"
    block = os.urandom(4 * MIB)
    try:
        started = time.perf_counter()
        with path.open("wb") as sink:
            for _ in range(DISK_PROBE_BYTES // len(block)):
                sink.write(block)
            sink.flush()
            os.fsync(sink.fileno())
        return round(DISK_PROBE_BYTES / GB / (time.perf_counter() - started), 3)
    except OSError as error:
        log.info("disk speed not measured: %s", error)
        return None
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


# ---- the bus -----------------------------------------------------------------------------------------------


def _with_bus(gpus: tuple[Gpu, ...], cache: Measurements) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs with their measured host-to-device rate, and what failed, where the nominal one stays."""
    measured, problems = [], []
    for gpu in gpus:
        key = f"{gpu.name}/{gpu.index}/{gpu.driver}"
        known = cache.get(key)
        if known is None:
            known = measure_bus(gpu.index)
            if "problem" in known:
                said = _("{gpu}: PCIe bandwidth was not measured ({problem}).")
                problems.append(said.format(gpu=gpu.name, problem=known["problem"]))
                measured.append(gpu)
                continue
            cache.put(key, known)
        measured.append(
            replace(
                gpu,
                pcie_gb_per_s=known["h2d_gb_per_s"],
                pcie_back_gb_per_s=known.get("d2h_gb_per_s"),
                pcie_measured=True,
            )
        )
    return tuple(measured), tuple(problems)


def measure_bus(index: int) -> dict:
    """{"h2d_gb_per_s", "d2h_gb_per_s"} of one GPU, measured in a child process, or {"problem": words}."""
    return _ask_child("--bus", str(index))


def _gpus_by_torch() -> tuple[Gpu, ...]:
    """What torch can use where the driver's management library is silent; it knows no clocks and no link."""
    return tuple(_gpu(found) for found in _ask_child("--gpus").get("gpus", ()))


def _gpu(found: dict) -> Gpu:
    capability = tuple(found["compute_capability"])
    spec = look_up(found["name"], vram_bytes=found["vram_bytes"])
    like = spec or of_class(capability, found["vram_bytes"])
    return Gpu(
        **{**found, "compute_capability": capability},
        memory_gb_per_s=like.memory_gb_per_s,
        tflops=like.tflops,
        pcie_gb_per_s=like.pcie_gb_per_s,
        known=spec is not None,
    )


def _ask_child(*arguments: str) -> dict:
    """What core.hardware.child says to these arguments; {"problem": words} when that makes no sense."""
    command = [sys.executable, "-m", "core.hardware.child", *arguments]
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CHILD_TIMEOUT_S,
            cwd=ROOT,
            check=False,
            stdin=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except subprocess.TimeoutExpired:
        return {"problem": _("no answer within {time}").format(time=duration(CHILD_TIMEOUT_S))}
    except OSError as error:
        return {"problem": str(error)}
    try:
        answer = json.loads(child.stdout.strip().splitlines()[-1])
        return answer if isinstance(answer, dict) else {"problem": _("an answer that is not understood")}
    except (ValueError, IndexError):
        last = (child.stderr.strip().splitlines() or ["no output"])[-1]
        said = _("the measuring process ended with code {code}: {last}")
        return {"problem": said.format(code=child.returncode, last=last)}
