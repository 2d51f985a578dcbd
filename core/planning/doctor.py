"""The health report: what was detected, what would run, what is wrong. Values and text; no torch."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from core import paths
from core.config import RULES, Settings
from core.errors import UserError
from core.hardware.facts import Hardware
from core.hardware.gpus import look_up
from core.model.store.catalogue import CatalogueEntry
from core.planning.offers import choose_model
from core.planning.stored_facts import NOTHING, StoredFacts
from core.planning.wording import snapshot_line
from core.text.words import GB, size
from core.text.words import translated as _

PACKAGES = (
    "torch",
    "transformers",
    "gradio",
    "pypdf",
    "pypdfium2",
    "EbookLib",
    "huggingface-hub",
    "safetensors",
    "tokenizers",
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
    known: StoredFacts = NOTHING,
) -> dict[str, Any]:
    """{"system", "hardware", "packages", "would_run", "problems"}; JSON values. Problems are no error."""
    problems = [
        *hardware.problems,
        *_package_problems(),
        *_disk_problems(hardware),
        *_link_problems(hardware),
    ]
    try:
        choice = choose_model(hardware, settings, is_downloaded=is_downloaded, known=known)
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
            "program": paths.program_version(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "executable": sys.executable,
        },
        "settings": _chosen(settings),
        "hardware": hardware.to_json(),
        "packages": {name: _version(name) for name in PACKAGES + OPTIONAL_PACKAGES},
        "would_run": would_run,
        "problems": problems,
    }


def _chosen(settings: Settings) -> dict[str, Any]:
    """What is not as by default. Texts and paths are the person's: of them it says only that they are set."""
    values, plain = settings.to_json(), Settings().to_json()
    chosen = {key: value for key, value in values.items() if value != plain[key]}
    free = {key for key, value in chosen.items() if not isinstance(value, (bool, int, float))}
    return {key: "set" if key in free and not RULES[key].names else value for key, value in chosen.items()}


def format_doctor(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    run, problems = _would_run(report["would_run"]), _problems(report["problems"])
    return "\n".join([*_detected(report), "", *run, "", *problems])


def _detected(report: dict[str, Any]) -> list[str]:
    machine, system = report["hardware"], report["system"]
    memory = _("{total}, {free} available").format(**_sizes(machine, "ram_bytes", "ram_available_bytes"))
    packages = ", ".join(f"{name} {version}" for name, version in report["packages"].items() if version)
    rows = [
        (_("program"), f"{paths.APP_NAME} {system['program']}".strip()),
        (_("system"), f"{system['platform']}, Python {system['python']}"),
        (_("CPU"), _cpu_line(machine)),
        (_("RAM"), memory),
        *((_("GPU"), _gpu_line(gpu)) for gpu in machine["gpus"]),
        *([] if machine["gpus"] else [(_("GPU"), _("none that CUDA can use"))]),
        (_("disk"), _disk_line(machine)),
        *([(_("snapshots"), snapshot_line(report["snapshots"]))] if "snapshots" in report else []),
        *((_("measured"), line) for line in report.get("measured", ())),
        *([(_("log"), report["log"])] if "log" in report else []),
        (_("packages"), packages),
    ]
    return [_("Detected"), *(f"  {name:<9} {value}" for name, value in rows)]


def _sizes(facts: dict[str, Any], total: str, free: str) -> dict[str, str]:
    return {"total": size(facts[total]), "free": size(facts[free])}


def _would_run(run: dict[str, Any] | None) -> list[str]:
    if run is None:
        return [_("Would run"), "  " + _("nothing: see below")]
    said = _("{model} on {device} in {dtype}, {tokens} tokens of context, about {ms:.0f} ms per token")
    plan = run["plan"]
    words = said.format(
        model=run["model"],
        device=plan["device"],
        dtype=plan["dtype"],
        tokens=f"{plan['context_tokens']:,}",
        ms=plan["expected_tbt_ms"],
    )
    return [_("Would run"), f"  {words}", *(f"  - {note}" for note in plan["notes"])]


def _problems(problems: list[str]) -> list[str]:
    found = [f"  - {problem}" for problem in problems]
    return [_("Problems"), *(found or ["  " + _("none")])]


def _cpu_line(machine: dict[str, Any]) -> str:
    said = _("{name}, {cores} cores, {flags}")
    flags = " ".join(machine["cpu_flags"])
    return said.format(name=machine["cpu_name"], cores=machine["physical_cores"], flags=flags)


def _gpu_line(gpu: dict[str, Any]) -> str:
    bus = _("{rate:.1f} GB/s from host (not measured)")
    if gpu["pcie_measured"]:
        bus = _("{rate:.1f} GB/s from host (measured)")
        if gpu["pcie_back_gb_per_s"]:
            bus = _("{rate:.1f} GB/s from host, {back:.1f} back (measured)")
    said = _("{name}, {total}, {free} free, {bus}, driver {driver}")
    return said.format(
        name=gpu["name"],
        **_sizes(gpu, "vram_bytes", "free_bytes"),
        bus=bus.format(rate=gpu["pcie_gb_per_s"], back=gpu["pcie_back_gb_per_s"]),
        driver=gpu["driver"] or _("unknown"),
    )


def _disk_line(machine: dict[str, Any]) -> str:
    if machine["disk_free_bytes"] is None:
        return _("not looked at")
    said = _("{free} free in {folder}")
    if machine["disk_gb_per_s"]:
        said = _("{free} free in {folder}, writes {rate:.2f} GB/s")
    free = size(machine["disk_free_bytes"])
    return said.format(free=free, folder=machine["disk_path"], rate=machine["disk_gb_per_s"])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package_problems() -> list[str]:
    missing = [name for name in PACKAGES if _version(name) is None]
    if not missing:
        return []
    said = _("Packages are missing: {names}. Start the app by launcher.py, which repairs its environment.")
    return [said.format(names=", ".join(missing))]


def _disk_problems(hardware: Hardware) -> list[str]:
    free = hardware.disk_free_bytes
    if free is None or free >= LOW_DISK_BYTES:
        return []
    said = _("Only {free} is free in {folder}. Free some space, or set data_dir to another drive's folder.")
    return [said.format(free=size(free), folder=hardware.disk_path)]


def _link_problems(hardware: Hardware) -> list[str]:
    said = _(
        "{gpu} gets {rate:.1f} GB/s from host memory; {usual:.0f} is usual. Put it in the first x16 slot, "
        "and look in the mainboard's manual whether an M.2 slot takes lanes from it."
    )
    problems = []
    for gpu in hardware.gpus:
        spec = look_up(gpu.name, vram_bytes=gpu.vram_bytes)
        if spec is None or not gpu.pcie_measured:
            continue
        if gpu.pcie_gb_per_s < SLOW_LINK_SHARE * spec.pcie_gb_per_s:
            problems.append(said.format(gpu=gpu.name, rate=gpu.pcie_gb_per_s, usual=spec.pcie_gb_per_s))
    return problems
