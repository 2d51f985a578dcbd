"""What benchmarks/card/gpu.py found, as tables: passes beside their floors, times between tokens beside the
paper's, and what could not run.
"""

from __future__ import annotations

from typing import Any

from benchmarks.card import large_shape_answers, stated_acceptance
from benchmarks.lib.results import Table
from core.text.words import GB

LEVELS = {
    "verification": "verification",
    "middle": "middle",
    "draft": "draft, random weights in the shape of a 68M model",
}
PAPER = (
    ("TriForce, published: one RTX 4090, 127K", 312.0, 1516.0),
    ("TriForce, published: two RTX 4090, 127K", 108.0, 840.0),
)
DIFFERS = (
    "Published rows: Llama-2-7B-128K with a 68M draft on text of its own; plain decoding by DeepSpeed with "
    "attention on the CPU (one card) "
    "or streamed over both cards. Ours: SmolLM2 or random weights in the named shape on this card; passes "
    "are measured, acceptance is stated, and the "
    "draft's figures (0.35 accepted as published, 1 ms assumed) are not measured. The paper's 2.31 times is "
    "on chip, A100, 122K."
)


def card_tables(done: dict[str, Any]) -> list[Table]:
    """Passes against their floors, times between tokens beside the paper's, and answers up to 8K."""
    passes = {name: row for name, row in done.items() if "verify_ms" in row}
    made = [
        Table(
            "Passes in large shapes, and the least their bytes would take",
            (
                "Case",
                "layers on chip",
                "prefill, s",
                "TFLOP/s",
                "plain, ms",
                "verification of 17, ms",
                "link floor, ms",
                "middle pass of 2, ms",
                "memory floor, ms",
                "peak, GB",
            ),
            tuple(_passes(name, row) for name, row in passes.items()),
        )
    ]
    rows = [
        (
            _case(name),
            f"{one['acceptance']}",
            one["gamma"],
            one["tbt_ms"],
            _rows(row, "verify_ms", 1),
            one["against_plain"],
            one["tbt_4090_ms"],
        )
        for name, row in passes.items()
        for one in row["expected"]
    ]
    rows += [(name, "measured", None, ours, plain, plain / ours, None) for name, ours, plain in PAPER]
    made.append(
        Table(
            "Time between tokens at stated acceptances, beside the published",
            (
                "Case",
                "acceptance",
                "gamma",
                "TBT, ms",
                "plain, ms",
                "times as fast",
                "projected to one RTX 4090, ms",
            ),
            tuple(rows),
            (DIFFERS,),
        )
    )
    made.append(
        Table(
            "Short passes, launched operation by operation and replayed as CUDA graphs",
            ("Case", "level", "rows", "launched, ms", "replayed, ms"),
            tuple(
                (_case(name), LEVELS[level], *(times.values() if times else (None, None, "no graphs here")))
                for name, row in passes.items()
                for level, found in row["graphs"].items()
                for times in found or [None]
            ),
        )
    )
    made += [*large_shape_answers.large_shape_tables(done), stated_acceptance.stated_table(done)]
    refused = tuple((name, row["refused"]) for name, row in done.items() if "refused" in row)
    return [table for table in (*made, Table("Not run", ("Case", "why"), refused)) if table.rows]


def _case(name: str) -> str:
    return name.removeprefix("passes ").removeprefix("stated ")


def _passes(name: str, row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        _case(name),
        f"{row['on_chip_layers']} of {row['layers']}",
        row["prefill_s"],
        row["prefill_tflops"],
        _rows(row, "verify_ms", 1),
        _rows(row, "verify_ms", 17),
        row["link_floor_ms"],
        _rows(row, "middle_ms", 2),
        row["middle_floor_ms"],
        row["peak_bytes"] / GB,
    )


def _rows(row: dict[str, Any], passes: str, rows: int) -> float:
    """A pass's time; JSON has made the numbers of rows text."""
    times = row[passes]
    return times[rows] if rows in times else times[str(rows)]
