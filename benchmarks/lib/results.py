"""Keeps a result as JSON that says where and when it was taken; the tables in the pages are made of it."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.lib import isa
from core.hardware.cpu import cores, cpu_name

REPO = Path(__file__).resolve().parents[2]
RESULTS = REPO / "benchmarks" / "results"
PACKAGES = ("torch", "transformers", "gradio", "pypdfium2", "llama_cpp_python")


@dataclass(frozen=True, slots=True)
class Table:
    """Figures for a reader: `rows` of as many cells as `columns`; `notes` are sentences below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        uneven = [row for row in self.rows if len(row) != len(self.columns)]
        assert not uneven, f"{self.title}: rows without {len(self.columns)} cells: {uneven}"


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one benchmark. `details` is whatever else the run knows, for later questions."""

    benchmark: str
    tables: tuple[Table, ...]
    machine: dict[str, Any]
    date: str
    commit: str
    details: dict[str, Any] = field(default_factory=dict)


def machine_facts() -> dict[str, Any]:
    """This machine and the versions that matter, in plain values."""
    physical, logical = cores()
    return {
        "cpu": cpu_name(),
        "isa": isa.isa_facts(),
        "physical_cores": physical,
        "logical_cores": logical,
        "ram_gib": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=REPO, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()


def save_result(
    benchmark: str, tables: Sequence[Table], details: dict[str, Any] | None = None, *, folder: Path = RESULTS
) -> Path:
    """Write `<benchmark>.json` into `folder`, over an older one, and return its path."""
    result = Result(
        benchmark, tuple(tables), machine_facts(), date.today().isoformat(), _commit(), details or {}
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark}.json"
    path.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load_result(path: Path) -> Result:
    """The result that `save_result` wrote."""
    values = json.loads(path.read_text(encoding="utf-8"))
    tables = tuple(
        Table(t["title"], tuple(t["columns"]), tuple(tuple(row) for row in t["rows"]), tuple(t["notes"]))
        for t in values["tables"]
    )
    return Result(**{**values, "tables": tables})
