"""Facts about this machine. No GPU and a broken driver are facts too, never exceptions. NVML first; no torch here."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import psutil

from core.hardware.cpu import cores, cpu_flags, cpu_name
from core.hardware.facts import Hardware


def probe(data_folder: Path | None = None) -> Hardware:
    """What this machine is, now."""
    physical, logical = cores()
    memory = psutil.virtual_memory()
    system = platform.system()
    return Hardware(
        system=system, cpu_name=cpu_name(), physical_cores=physical, logical_cores=logical, cpu_flags=cpu_flags(),
        ram_bytes=memory.total, ram_available_bytes=memory.available, pinnable_bytes=pinnable(system, memory.total),
        disk_path=str(data_folder or ""), disk_free_bytes=shutil.disk_usage(data_folder).free if data_folder else None,
    )


def pinnable(system: str, ram_bytes: int) -> int:
    """What the system lets a process page-lock: about half of RAM on Windows, nearly all of it on Linux."""
    return int(ram_bytes * (0.5 if system == "Windows" else 0.9))
