"""The README's section of measured figures, from the JSON files in benchmarks/results. Invents nothing."""

from __future__ import annotations

from pathlib import Path

NOTHING = "Nothing has been measured for this version yet. `benchmarks/` holds the programs; their results will be set here."


def section(results: Path) -> str:
    """Markdown for all results found; one plain sentence when there are none."""
    return NOTHING
