"""A model of 1.5 thousand million weights as Q4_K_M on the CPU, beside llama.cpp: reading, the time between
tokens, resident memory.

    python -m benchmarks.larger [--book BOOK] [--contexts 1024,8000] [--tokens 16] [--minutes 60]
                                [--threads 1] [--clock cpu] [--made FOLDER] [--save larger]

The embedded model in a larger shape (benchmarks.expanded) computes its own text at the larger one's cost;
llama.cpp's quantiser makes the file (pip install llama-cpp-python), and both programs read that file. They
are run as benchmarks/peers.py runs them: each a process of its own, answers in turns, medians over turns. On
a machine that others use, the CPU time of one thread says more than a clock: it leaves out what others took,
though not that they fill caches and the memory's bandwidth. Memory is what the process holds after its last
answer: of it, pages of the file are mapped and may be given back, the rest is the program's own. The load of
the machine before each context is kept with the figures; finished contexts are kept, too (--state).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import cases, embedded, peers
from benchmarks import gguf_made as files
from benchmarks.contenders import CLOCKS, OURS
from benchmarks.store import Table, save
from benchmarks.texts import LOOPS_BELOW
from core.model.gguf.reader import read_header
from core.model.shapes import Sizes
from core.model.store.embedded import ensure_embedded
from core.paths import subdir

SHAPE = Sizes("1.5B", 30, 2048, 32, 8, 64, 5632)
POSITIONS = 8192
KIND = "Q4_K_M"
PROGRAMS = ("llama.cpp", "ours")
COLUMNS = (
    "Program",
    "Context",
    "prefill, s",
    "TBT mean, ms",
    "its turns",
    "the median's spread",
    "resident, MB",
    "of it pages of files, MB",
    "text",
)
AGAINST_COLUMNS = ("Context", "prefill", "plain", "TriForce", "TriForce, T 0.6", "TriForce, T 1", "memory")
NOTE = (
    f"The embedded model in a shape of {SHAPE.layers} layers, width {SHAPE.hidden} and {SHAPE.intermediate} "
    f"in the MLP, {SHAPE.heads} heads and {SHAPE.kv_heads} for keys and values: {{weights:.2f}} thousand "
    f"million weights, {KIND}, a file of {{mb:,.0f}} MB."
)
LOAD_NOTE = "Load of the machine before each context: {loads}."
AGAINST_NOTE = (
    "How many times as fast ours is: its prefill and its time between tokens against llama.cpp's plain "
    "decoding, the median over turns; and how many times llama.cpp's memory ours takes."
)


def main(arguments: list[str] | None = None) -> int:
    """The contexts that are missing, and the tables of all."""
    options = _arguments(arguments)
    options.gguf = model(options.made)
    conditions = {"book": options.book.name, "tokens": options.tokens, "shape": SHAPE.name}
    conditions |= {"threads": options.threads, "clock": options.clock}
    state = cases.Cases(options.state, conditions, minutes=options.minutes)
    every = {
        str(length): lambda length=length: _case(length, options, state.left_s())
        for length in options.contexts
    }
    left = state.measure_all(every, _short)
    if options.save:
        save(options.save, tables(state.done), {"cases": state.done, "left": left}, folder=options.folder)
    print({"left": left})
    return 0


def model(made: Path) -> Path:
    """The file that both programs read, made below `made` where it is not there."""
    base = next(ensure_embedded(taught=False).glob("*.gguf"))
    target = made / f"larger-{files.SIXTEEN}.gguf"
    finished = target.with_name(target.name.replace(files.SIXTEEN, KIND))
    if finished.is_file():
        return finished
    source = files.expanded(base, SHAPE, target, positions=POSITIONS)
    return files.quantised_by_llama_cpp(source, KIND, threads=os.cpu_count() or 1)


def _case(length: int, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What both programs' answers came to, and what was so meanwhile. Raises OutOfTime."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    told = argparse.Namespace(**{**vars(options), "only": list(PROGRAMS)})
    programs = peers.at(length, told, seconds)
    given = {"load_before": load, "threads": options.threads, "clock": options.clock}
    return {"programs": programs, **given, **_facts(options.gguf)}


def _facts(file: Path) -> dict[str, float]:
    sizes = (math.prod(tensor.shape) for tensor in read_header(file).tensors.values())
    return {"weights": sum(sizes) / 1e9, "mb": file.stat().st_size / 1e6}


# ---- what is shown -----------------------------------------------------------------------------------------


def tables(done: dict[str, Any]) -> list[Table]:
    """Of the contexts that are done."""
    if not done:
        return []
    facts = next(iter(done.values()))
    loads = ", ".join(f"{case['load_before']:.1f}" for case in done.values() if case["load_before"])
    note = NOTE.format(weights=facts["weights"], mb=facts["mb"])
    note += " " + peers.CLOCK_NOTES[facts["clock"]].format(threads=facts["threads"] or "all cores")
    notes = (note, *([LOAD_NOTE.format(loads=loads)] if loads else []))
    made = [
        Table(f"A shape of {SHAPE.name} as {KIND} beside llama.cpp", COLUMNS, tuple(_rows(done)), notes),
        Table(
            f"A shape of {SHAPE.name} against llama.cpp, times as fast",
            AGAINST_COLUMNS,
            tuple(_against(done)),
            (AGAINST_NOTE,),
        ),
    ]
    return [table for table in made if table.rows]


def _rows(done: dict[str, Any]) -> Iterator[tuple]:
    for length, case in done.items():
        for program in case["programs"].values():
            memory = program.get("memory", {})
            held = memory.get("resident_mb"), memory.get("of_files_mb")
            for name, row in program.get("rows", {}).items():
                times = row["prefill_s"], row["tbt_mean_ms"], peers.spread(row["turns_ms"]), row["spread"]
                text = "loops" if row["distinct_4grams"] < LOOPS_BELOW else "varied"
                yield (name, int(length), *times, *held, text)


def _against(done: dict[str, Any]) -> Iterator[tuple]:
    for length, case in done.items():
        theirs, ours = (case["programs"].get(f"{name} at {length}", {}) for name in PROGRAMS)
        if not ("rows" in theirs and "rows" in ours):
            continue
        peer, rows = theirs["rows"]["llama.cpp"], ours["rows"]
        faster = (peers.times_as_fast(peer, rows[name]) if name in rows else None for name in OURS)
        memory = ours["memory"]["resident_mb"] / theirs["memory"]["resident_mb"]
        reading = peer["prefill_s"] / rows["ours, plain"]["prefill_s"]
        yield int(length), reading, *faster, memory


def _short(case: dict[str, Any]) -> dict[str, Any]:
    said = {name: peers.short(found) for name, found in case["programs"].items()}
    return {**said, "memory": {name: found.get("memory") for name, found in case["programs"].items()}}


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    embedded.add_options(parser, (1024, 8000))
    cases.add_options(parser, "larger")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1, help="of each program; 0: all physical cores")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="cpu")
    parser.add_argument("--made", type=Path, help="where the file is made and kept")
    options = parser.parse_args(arguments)
    options.made = options.made or subdir("benchmarks") / "formats"
    options.book, options.draft = options.book.resolve(), embedded.DRAFT
    return options


if __name__ == "__main__":
    sys.exit(main())
