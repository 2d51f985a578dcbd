"""The health report: what was detected, what would run, what is wrong. Values and text; changes nothing. No
torch.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from core.config import Settings
from core.errors import UserError
from core.hardware.facts import GB, GIB, Hardware
from core.hardware.gpus import look_up
from core.model.catalogue import CatalogueEntry
from core.planning.known import NOTHING, Known
from core.planning.offers import choose
from core.planning.wording import size, snapshot_line

PACKAGES = (
    "torch",
    "transformers",
    "gradio",
    "pypdf",
    "pypdfium2",
    "EbookLib",
    "huggingface-hub",
    "safetensors",
    "gguf",
    "psutil",
    "nvidia-ml-py",
    "platformdirs",
)
OPTIONAL_PACKAGES = ("flash-attn",)
LOW_DISK_BYTES = 2 * GB
# of the link's usual rate: a narrow slot, or an SSD that took half the lanes
SLOW_LINK_SHARE = 0.6


def doctor_report(
    hardware: Hardware,
    settings: Settings,
    *,
    is_downloaded: Callable[[CatalogueEntry], bool] = lambda entry: entry.embedded,
    known: Known = NOTHING,
) -> dict[str, Any]:
    """{"system", "hardware", "packages", "would_run", "problems"}; JSON values. Finding problems is not an
    error.
    """
    problems = [
        *hardware.problems,
        *_package_problems(),
        *_disk_problems(hardware),
        *_link_problems(hardware),
    ]
    try:
        choice = choose(hardware, settings, is_downloaded=is_downloaded, known=known)
        would_run = {
            "model": choice.entry.name,
            "draft": choice.draft.name if choice.draft else None,
            "plan": choice.plan.to_json(),
        }
    except UserError as error:
        would_run = None
        problems.append(str(error))
    return {
        "system": {
            "platform": platform.platform(),
            "python": platform.python_version(),
            "executable": sys.executable,
        },
        "hardware": hardware.to_json(),
        "packages": {name: _version(name) for name in PACKAGES + OPTIONAL_PACKAGES},
        "would_run": would_run,
        "problems": problems,
    }


def format_doctor(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    machine, run = report["hardware"], report["would_run"]
    lines = [
        "Detected",
        f"  system    {report['system']['platform']}, Python {report['system']['python']}",
        f"  CPU       {machine['cpu_name']}, {machine['physical_cores']} cores, "
        f"{' '.join(machine['cpu_flags'])}",
        f"  RAM       {size(machine['ram_bytes'])}, {size(machine['ram_available_bytes'])} available",
        *(
            [f"  GPU       {_gpu_line(gpu)}" for gpu in machine["gpus"]]
            or ["  GPU       none that CUDA can use"]
        ),
        f"  disk      {_disk_line(machine)}",
        *([f"  snapshots {snapshot_line(report['snapshots'])}"] if "snapshots" in report else []),
        *(f"  measured  {line}" for line in report.get("measured", ())),
        f"  packages  {', '.join(f'{name} {version}' for name, version in report['packages'].items() if version)}",
        "",
        "Would run",
    ]
    if run is None:
        lines.append("  nothing: see below")
    else:
        plan = run["plan"]
        lines.append(
            f"  {run['model']} on {plan['device']} in {plan['dtype']}, {plan['context_tokens']:,} tokens of "
            "context, "
            f"about {plan['expected_tbt_ms']:.0f} ms per token"
        )
        lines += [f"  - {note}" for note in plan["notes"]]
    lines += ["", "Problems", *([f"  - {problem}" for problem in report["problems"]] or ["  none"])]
    return "\n".join(lines)


def _gpu_line(gpu: dict[str, Any]) -> str:
    back = f", {gpu['pcie_back_gb_per_s']:.1f} back" if gpu["pcie_back_gb_per_s"] else ""
    bus = (
        f"{gpu['pcie_gb_per_s']:.1f} GB/s from host{back} "
        f"({'measured' if gpu['pcie_measured'] else 'not measured'})"
    )
    return (
        f"{gpu['name']}, {gpu['vram_bytes'] / GIB:.1f} GiB, {gpu['free_bytes'] / GIB:.1f} GiB free, {bus}, "
        "driver "
        f"{gpu['driver'] or 'unknown'}"
    )


def _disk_line(machine: dict[str, Any]) -> str:
    if machine["disk_free_bytes"] is None:
        return "not looked at"
    speed = f", writes {machine['disk_gb_per_s']:.2f} GB/s" if machine["disk_gb_per_s"] else ""
    return f"{size(machine['disk_free_bytes'])} free in {machine['disk_path']}{speed}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package_problems() -> list[str]:
    missing = [name for name in PACKAGES if _version(name) is None]
    return (
        [
            f"Packages are missing: {', '.join(missing)}. Start the app by launcher.py, which repairs its "
            "environment."
        ]
        if missing
        else []
    )


def _disk_problems(hardware: Hardware) -> list[str]:
    free = hardware.disk_free_bytes
    if free is None or free >= LOW_DISK_BYTES:
        return []
    return [
        f"Only {size(free)} is free in {hardware.disk_path}. Free some space, or set data_dir to another "
        "drive's folder."
    ]


def _link_problems(hardware: Hardware) -> list[str]:
    problems = []
    for gpu in hardware.gpus:
        spec = look_up(gpu.name, vram_bytes=gpu.vram_bytes)
        if (
            spec is not None
            and gpu.pcie_measured
            and gpu.pcie_gb_per_s < SLOW_LINK_SHARE * spec.pcie_gb_per_s
        ):
            problems.append(
                f"{gpu.name} gets {gpu.pcie_gb_per_s:.1f} GB/s from host memory; {spec.pcie_gb_per_s:.0f} is "
                "usual. Put it in "
                "the first x16 slot, and look in the mainboard's manual whether an M.2 slot takes lanes "
                "from it."
            )
    return problems
