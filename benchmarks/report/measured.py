"""The pages' sections of measured figures, from the JSON files in benchmarks/results. Invents nothing."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lib.results import Result, Table, load_result

LONGEST = 14  # rows that a page shows unfolded
PLAIN, OURS = "autoregressive", "triforce"
DECODE_COLUMNS = (
    "Context",
    "Temperature",
    "Mode",
    "TBT mean, ms",
    "against plain",
    "draft accepted",
    "retrieval accepted",
    "text",
)
PEER_COLUMNS = ("Peer", "Context", "prefill, s", "TBT mean, ms")
NOTHING = (
    "Nothing has been measured for this version yet. `benchmarks/` holds the programs; their results "
    "will be set here."
)


def section(results: Path) -> str:
    """Markdown for all results found; one plain sentence when there are none."""
    found = [load_result(path) for path in sorted(results.glob("*.json"))] if results.is_dir() else []
    return "\n\n".join(_result(result) for result in found) or NOTHING


def _result(result: Result) -> str:
    title = f"## {result.benchmark.capitalize()}"
    return "\n\n".join([title, *map(_shown, result.tables), f"<sub>{provenance(result)}</sub>"])


def _digest(table: Table) -> Table | None:
    return by_mode(table) or by_program(table)


def _shown(table: Table) -> str:
    """A long table is folded, below its digest where it has one."""
    digest = _digest(table)
    parts = [_table(digest)] if digest else []
    if len(table.rows) > LONGEST:
        parts.append(
            f"<details><summary>All {len(table.rows)} rows</summary>\n\n{_table(table)}\n\n</details>"
        )
    else:
        parts.append(_table(table))
    return "\n\n".join(parts)


def by_mode(table: Table) -> Table | None:
    """The modes of `benchmarks/speed/decode.py` side by side, one row per context and temperature; None for
    other tables.
    """
    if not set(DECODE_COLUMNS) <= set(table.columns):
        return None
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    cases = list(dict.fromkeys((row["Context"], row["Temperature"]) for row in rows))
    modes = [mode for mode in dict.fromkeys(row["Mode"] for row in rows) if mode != PLAIN]
    made = []
    for case in cases:
        here = [row for row in rows if (row["Context"], row["Temperature"]) == case]
        plain = [row["TBT mean, ms"] for row in here if row["Mode"] == PLAIN]
        # the plain answer's text was of the other kind, and is in another table
        if not plain and here[0]["against plain"]:
            plain = [here[0]["TBT mean, ms"] * here[0]["against plain"]]
        ratios = {row["Mode"]: row["against plain"] for row in here}
        own = next((row for row in here if row["Mode"] == OURS), None)
        looping = [row["Mode"] for row in here if row["text"] == "loops"]
        text = "varied" if not looping else "loops" if len(looping) == len(here) else "loops in part"
        levels = (own["draft accepted"], own["retrieval accepted"]) if own else (None, None)
        made.append(
            (
                *case,
                sum(plain) / len(plain) if plain else None,
                *(ratios.get(mode) for mode in modes),
                *levels,
                text,
            )
        )
    columns = (
        "Context",
        "Temperature",
        "Plain, ms per token",
        *(f"{mode}, times as fast" for mode in modes),
        "draft accepted",
        "retrieval accepted",
        "Text",
    )
    return Table(
        table.title,
        columns,
        tuple(made),
        (
            "Acceptance is TriForce's. Text that loops is easy to draft: "
            'the rows that say "varied" are the ones to judge by.',
        ),
    )


def by_program(table: Table) -> Table | None:
    """`benchmarks.llamacpp` with a row per program and a column per context; None for other tables."""
    if not set(PEER_COLUMNS) <= set(table.columns):
        return None
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    contexts = list(dict.fromkeys(row["Context"] for row in rows))
    cells = {(row["Peer"], row["Context"]): (row["TBT mean, ms"], row["prefill, s"]) for row in rows}
    missing = (None, None)
    made = tuple(
        (peer, *(cells.get((peer, context), missing)[which] for which in (0, 1) for context in contexts))
        for peer in dict.fromkeys(row["Peer"] for row in rows)
    )
    columns = (
        "Program",
        *(f"{context:,}: ms per token" for context in contexts),
        *(f"{context:,}: prefill, s" for context in contexts),
    )
    return Table(table.title, columns, made, table.notes)


def _table(table: Table) -> str:
    lines = [
        f"**{table.title}**",
        "",
        _row(table.columns),
        _row(["---"] + ["---:"] * (len(table.columns) - 1)),
    ]
    lines += [_row([_cell(cell) for cell in row]) for row in table.rows]
    return "\n".join([*lines, *(f"\n{note}" for note in table.notes)])


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: str | float | int | None) -> str:
    """Three significant digits for a fraction, thousands apart for a whole number, a dash for what was not
    measured.
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def provenance(result: Result) -> str:
    """The file, the machine, the versions, the date and the commit of a result, in one sentence."""
    machine = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    cores = f"{machine['physical_cores']} cores" if machine["physical_cores"] != 1 else "1 core"
    cap = machine.get("isa", {}).get("cap")  # none in results from before there was one
    cpu = f"{machine['cpu']} held to {cap.upper()}" if cap else machine["cpu"]
    return (
        f"`benchmarks/results/{result.benchmark}.json`: {cpu}, {cores}, {machine['ram_gib']} GiB, "
        f"{machine['system']}, "
        f"Python {machine['python']}, {versions}; {result.date}, commit {result.commit}."
    )
