"""The README's section of measured figures, from the JSON files in benchmarks/results. Invents nothing."""

from __future__ import annotations

from pathlib import Path

from benchmarks.store import Result, Table, load

NOTHING = "Nothing has been measured for this version yet. `benchmarks/` holds the programs; their results will be set here."


def section(results: Path) -> str:
    """Markdown for all results found; one plain sentence when there are none."""
    found = [load(path) for path in sorted(results.glob("*.json"))] if results.is_dir() else []
    return "\n\n".join(_result(result) for result in found) or NOTHING


def _result(result: Result) -> str:
    return "\n\n".join([*map(_table, result.tables), f"<sub>{_provenance(result)}</sub>"])


def _table(table: Table) -> str:
    lines = [f"**{table.title}**", "", _row(table.columns), _row(["---"] + ["---:"] * (len(table.columns) - 1))]
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)])


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: str | float | int | None) -> str:
    """Three significant digits for a fraction, thousands apart for a whole number, a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def _provenance(result: Result) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    cores = f"{machine['physical_cores']} cores" if machine["physical_cores"] != 1 else "1 core"
    return (f"`benchmarks/results/{result.benchmark}.json`: {machine['cpu']}, {cores}, {machine['ram_gib']} GiB, {machine['system']}, "
            f"Python {machine['python']}, {versions}; {result.date}, commit {result.commit}.")
