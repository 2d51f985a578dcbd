"""The table of instruction sets: ours beside llama.cpp, each with the same instructions, and what is aimed at
with AVX2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib.results import Result, load_result
from benchmarks.report import measured
from benchmarks.report.plan_tables import plan_row

FILES = ("peers-avx2", "peers-as-it-is")
PEER = "llama.cpp"
# with AVX2, by tokens before: time between tokens over llama.cpp's, at temperature 0.6 and plainly
DRAFTED_AIMS = {1024: 0.8, 8000: 0.45, 16_000: 0.35, 32_000: 0.3}
PLAIN_AIMS = {1024: 1.0}
READING_AIM = 2.5  # times as fast, behind any
COLUMNS = (
    "Computed with",
    "Tokens before",
    "TriForce at T 0.6, of llama.cpp's time",
    "plain decoding, of llama.cpp's time",
    "reading, times as fast",
)


def isa_table(results: Path) -> str:
    """Markdown, with each file's provenance; one plain sentence when nothing was measured."""
    found = [load_result(file) for name in FILES if (file := results / f"{name}.json").is_file()]
    if not found:
        return measured.NOTHING
    lines = [plan_row(COLUMNS), plan_row(["---", *("---:" for _ in COLUMNS[1:])])]
    lines += [plan_row(cells) for result in found for cells in _rows(result)]
    return "\n\n".join(["\n".join(lines), *(f"<sub>{measured.provenance(result)}</sub>" for result in found)])


def _rows(result: Result) -> Iterator[tuple[str, ...]]:
    (table,) = (table for table in result.tables if table.title.startswith("Ours against each peer"))
    cap = result.machine["isa"]["cap"]
    for cells in table.rows:
        one = dict(zip(table.columns, cells, strict=True))
        if one["Peer"] != PEER:
            continue
        context = one["Context"]
        drafted, plain = (1 / one[name] if one[name] else None for name in ("TriForce, T 0.6", "plain"))
        yield (
            cap.upper() if cap else "all it has",
            f"{context:,}",
            _beside(drafted, DRAFTED_AIMS.get(context) if cap else None, least=False),
            _beside(plain, PLAIN_AIMS.get(context) if cap else None, least=False),
            _beside(one["prefill"], READING_AIM if cap else None, least=True),
        )


def _beside(value: float | None, aim: float | None, *, least: bool) -> str:
    """The figure, and whether it is what is aimed at: at least that, or at most."""
    if value is None:
        return "–"
    if aim is None:
        return f"{value:.2f}"
    met = value >= aim if least else value <= aim
    return f"{value:.2f} (aim {aim:g}: {'met' if met else 'not met'})"
