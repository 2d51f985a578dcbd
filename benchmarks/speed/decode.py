"""Decode speed of every mode on real book text: TBT, acceptance, time per pass of each level, and the least a
token's bytes would take.

    python -m benchmarks.decode --book FILE [--contexts 1024,4096,8000,16000,32000] [--temperatures 0,0.6,1]
    [--isa avx2] [--minutes 60] [--save decode]

The model goes on writing the book, whose first N tokens are its prompt. What was read of it is kept on disk
(--snapshots), so that a second run reads nothing. Contexts beyond the native one are stretched by YaRN. A
case is one context at one temperature: plain decoding runs before and after its other modes, and the ratios
are taken to the mean of the two. Finished cases are kept (--state), so a run that was stopped goes on. Text
that repeats itself drafts too easily: answers of which under 60% of 4-grams are distinct are reported apart.
Needs a quiet machine; what something disturbed is done again (benchmarks/lib/noise_guard.py).
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

from benchmarks.lib import embedded, resumable
from benchmarks.lib.level_timer import LEVELS, MeasuredComposer, PassRecorder
from benchmarks.lib.ngrams import LOOPS_BELOW, distinct
from benchmarks.lib.noise_guard import DISTURBED, calmest
from benchmarks.lib.results import Table, save_result
from benchmarks.lib.resumable import Cases
from benchmarks.speed.forward_times import OutOfTime
from benchmarks.speed.transfer import memory_read_gb_per_s
from core.assembly.engines import build_engine
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.engine import Done, Engine
from core.model.store import catalogue
from core.model.store.embedded import ensure_embedded
from core.paths import subdir
from core.request import Params
from core.text.words import GB

PLAIN = "autoregressive"
# name -> the engine's mode, whether level 0 has the trained draft
MODES = {
    "streaming": ("streaming", False),
    "retrieval": ("retrieval", False),
    "ngram": ("ngram", False),
    "draft": ("draft", True),
    "triforce": ("triforce", False),
    "triforce, trained draft": ("triforce", True),
    PLAIN: (PLAIN, False),
}


@dataclass(frozen=True, slots=True)
class DecodeRun:
    """One answer. Times in milliseconds per token. `passes`: see PassRecorder.summary."""

    context: int
    temperature: float
    mode: str
    tbt_mean_ms: float
    tbt_p50_ms: float
    tbt_p95_ms: float
    acceptance_draft: float | None
    acceptance_retrieval: float | None
    tokens_per_round: float
    distinct_4grams: float
    passes: dict[str, dict[str, Any]]
    same_as_plain: bool | None = None  # greedy only: token for token
    slowdown: float = 1.0  # see Timed

    @property
    def loops(self) -> bool:
        """Whether its text is no evidence of acceptance."""
        return self.distinct_4grams < LOOPS_BELOW


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """An engine and its context, in which the prompt was read."""

    engine: Engine
    context: Context
    recorder: PassRecorder
    ids: Sequence[int]
    out_of_time: Callable[[], bool]


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases that are missing and shows what is there."""
    options = _arguments(arguments)
    folder = ensure_embedded()
    ids = embedded.book_ids(options.book, folder, least=max(options.contexts))
    conditions = {key: getattr(options, key) for key in ("tokens", "budget", "gamma", "dtype", "modes")} | {
        "book": options.book.name,
        "draft": options.draft.name,
        "isa": isa.cap(),
    }
    state = Cases(options.state, conditions, minutes=options.minutes)
    try:
        for length in options.contexts:
            _context(state, folder, ids[:length], options)
    except OutOfTime:
        pass
    left = state.left(
        [
            name
            for length in options.contexts
            for name in (_roofline_name(length), *_names(length, options).values())
        ]
    )
    runs, floors = _found(state)
    made = decode_tables(
        runs, floors, f"Decoding {options.book.stem}", notes=() if options.draft.is_dir() else (NO_DRAFT,)
    )
    if options.save:
        save_result(
            options.save,
            made,
            {"conditions": conditions, "runs": [asdict(run) for run in runs], "floors": floors, "left": left},
            folder=options.folder,
        )
    print(json.dumps({"tables": [[table.title, table.columns, table.rows] for table in made], "left": left}))
    return 0


# ---- measuring ---------------------------------------------------------------------------------------------


def _context(state: Cases, folder: Path, ids: list[int], options: argparse.Namespace) -> None:
    """All that is missing after one prompt, which is read once. Raises OutOfTime."""
    names = _names(len(ids), options)
    if not state.left([_roofline_name(len(ids)), *names.values()]):
        return
    if state.out_of_time():
        raise OutOfTime
    bench = prepared_bench(folder, ids, options, PassRecorder(), state.out_of_time)
    state.measure(_roofline_name(len(ids)), lambda: floor(bench.engine, folder, len(ids)))
    modes = [
        PLAIN,
        *(mode for mode in options.modes if mode != PLAIN and (options.draft.is_dir() or not MODES[mode][1])),
        PLAIN,
    ]
    for temperature, name in names.items():
        state.measure(
            name,
            lambda temperature=temperature: [
                asdict(run) for run in mode_answers(bench, modes, temperature, tokens=options.tokens)
            ],
        )


def _names(length: int, options: argparse.Namespace) -> dict[float, str]:
    return {temperature: f"{length} tokens, T {temperature}" for temperature in options.temperatures}


def _roofline_name(length: int) -> str:
    return f"{length} tokens, bytes"


def prepared_bench(
    folder: Path,
    ids: Sequence[int],
    options: argparse.Namespace,
    recorder: PassRecorder,
    out_of_time: Callable[[], bool],
) -> DecodeBench:
    """An engine for `ids` and an answer, and a context with `ids` in it, from disk as far as they are there.
    Raises OutOfTime.
    """
    draft = catalogue.from_folder(options.draft).shape if options.draft.is_dir() else None
    tokens = len(ids) + options.tokens + embedded.SPARE_TOKENS
    given = {"dtype": options.dtype, "budget": options.budget, "gamma": options.gamma}
    plain, settings = embedded.embedded_plan(folder, tokens, **given)
    plan, _ = embedded.embedded_plan(folder, tokens, draft=draft, **given)
    engine = build_engine(
        plan,
        settings,
        folder,
        draft_dir=options.draft if draft else None,
        snapshots=options.snapshots or subdir("benchmarks"),
        composer=functools.partial(MeasuredComposer, recorder, plain),
    )
    context = engine.new_context(tokens)
    embedded.read_into(engine, context, ids, options.book.name, out_of_time=out_of_time)
    return DecodeBench(engine, context, recorder, ids, out_of_time)


def mode_answers(
    bench: DecodeBench, modes: Sequence[str], temperature: float, *, tokens: int
) -> list[DecodeRun]:
    """The modes one after the other behind the same prompt, those that something disturbed once more. Raises
    OutOfTime.
    """
    found = calmest([functools.partial(_answer, bench, mode, temperature, tokens) for mode in modes])
    plain = found[0].result[1]
    runs = [
        replace(run, slowdown=one.slowdown, same_as_plain=said == plain if temperature == 0 else None)
        for one in found
        for run, said in [one.result]
    ]
    print(*runs, sep="\n", flush=True)
    return runs


def _answer(bench: DecodeBench, mode: str, temperature: float, tokens: int) -> tuple[DecodeRun, list[int]]:
    kind, bench.recorder.trained_draft = MODES[mode]
    params = Params(
        max_new_tokens=tokens, temperature=temperature, top_p=0.9 if temperature else 1.0, mode=kind, seed=1
    )
    said: list[int] = []
    for event in bench.engine.generate(bench.context, bench.ids, params, should_stop=bench.out_of_time):
        if isinstance(event, Round):
            said += event.tokens
        elif isinstance(event, Done):
            done = event
    if done.reason == "user":
        raise OutOfTime
    stats = done.stats
    return DecodeRun(
        context=len(bench.ids),
        temperature=temperature,
        mode=mode,
        tbt_mean_ms=stats.tbt_mean_ms,
        tbt_p50_ms=stats.tbt_p50_ms,
        tbt_p95_ms=stats.tbt_p95_ms,
        acceptance_draft=stats.acceptance_draft.rate,
        acceptance_retrieval=stats.acceptance_retrieval.rate,
        tokens_per_round=stats.tokens_per_round,
        distinct_4grams=distinct(said),
        passes=bench.recorder.summary(),
    ), said


def floor(engine: Engine, folder: Path, context: int) -> dict[str, float]:
    """The bytes that a plain token reads after `context` tokens, and the memory's measured rate."""
    return {
        "weight_bytes": catalogue.find(folder.name).shape.pass_bytes(engine.plan.dtype),
        "kv_bytes": context * catalogue.find(folder.name).shape.kv_bytes_per_token(engine.plan.kv_rows),
        "memory_gb_per_s": memory_read_gb_per_s(engine.model.backend.device),
    }


# ---- what is shown -----------------------------------------------------------------------------------------

COLUMNS = (
    "Context",
    "Temperature",
    "Mode",
    "TBT mean, ms",
    "p50",
    "p95",
    "against plain",
    "draft accepted",
    "retrieval accepted",
    "tokens per round",
    "distinct 4-grams",
    "text",
)
NOTES = (
    'TBT mean is what a reader waits per token on average; "against plain" is plain decoding\'s mean over '
    "the mode's, in the same run.",
)
NO_DRAFT = "No trained draft model was there, so the modes with one were left out."
PASS_COLUMNS = (
    "Context",
    "Temperature",
    "Mode",
    *(f"{level} pass, ms" for level in LEVELS),
    "rows of a full pass",
    "middle per full pass",
)
FLOOR_COLUMNS = (
    "Context",
    "weights, MB",
    "KV, MB",
    "memory, GB/s",
    "floor, ms",
    "plain, ms",
    "share of the memory's rate",
)
FLOOR_NOTE = (
    "Floor: the bytes that one plain token must read, weights and KV, at the rate at which this "
    "machine's memory was read."
)


def _found(state: Cases) -> tuple[list[DecodeRun], dict[int, dict[str, float]]]:
    """All runs, and what a token reads by context; shortest contexts first."""
    runs = [DecodeRun(**run) for found in state.done.values() if isinstance(found, list) for run in found]
    floors = {int(name.split()[0]): found for name, found in state.done.items() if isinstance(found, dict)}
    return sorted(runs, key=lambda run: (run.context, run.temperature)), dict(sorted(floors.items()))


def decode_tables(
    runs: Sequence[DecodeRun], floors: dict[int, dict[str, float]], title: str, *, notes: tuple[str, ...] = ()
) -> list[Table]:
    """Varied text, looping text, passes by level, bytes against the memory's rate; only those that have
    rows.
    """
    varied, looping = ([run for run in runs if run.loops == loops] for loops in (False, True))
    slowed = [run.slowdown for run in runs if run.slowdown >= DISTURBED]
    if slowed:
        notes += (
            f"{len(slowed)} of {len(runs)} answers stayed beside something that slowed the machine, up to "
            f"{max(slowed):.2f} times.",
        )
    made = (
        Table(
            f"{title}: text that varies", COLUMNS, tuple(_row(run, runs) for run in varied), (*NOTES, *notes)
        ),
        Table(
            f"{title}: text that loops, no evidence of acceptance",
            COLUMNS,
            tuple(_row(run, runs) for run in looping),
            NOTES,
        ),
        Table(f"{title}: median time of a pass by level", PASS_COLUMNS, tuple(_passes(run) for run in runs)),
        Table(
            f"{title}: plain decoding against the memory's rate",
            FLOOR_COLUMNS,
            tuple(_floors(runs, floors)),
            (FLOOR_NOTE,),
        ),
    )
    return [table for table in made if table.rows]


def _plain_ms(runs: Sequence[DecodeRun], context: int, temperature: float | None = None) -> float | None:
    plains = [
        run.tbt_mean_ms
        for run in runs
        if (run.context, run.mode) == (context, PLAIN) and temperature in (None, run.temperature)
    ]
    return sum(plains) / len(plains) if plains else None


def _row(run: DecodeRun, runs: Sequence[DecodeRun]) -> tuple:
    plain = _plain_ms(runs, run.context, run.temperature)
    return (
        run.context,
        str(run.temperature),
        run.mode,
        run.tbt_mean_ms,
        run.tbt_p50_ms,
        run.tbt_p95_ms,
        plain / run.tbt_mean_ms if plain else None,
        run.acceptance_draft,
        run.acceptance_retrieval,
        run.tokens_per_round,
        run.distinct_4grams,
        "loops" if run.loops else "varied",
    )


def _passes(run: DecodeRun) -> tuple:
    found = run.passes
    middle, full = (found.get(level, {}).get("passes", 0) for level in ("middle", "full"))
    return (
        run.context,
        str(run.temperature),
        run.mode,
        *(found[level]["ms"] if level in found else None for level in LEVELS),
        found["full"]["rows"] if full else None,
        middle / full if middle and full else None,
    )


def _floors(runs: Sequence[DecodeRun], floors: dict[int, dict[str, float]]) -> Iterator[tuple]:
    for context, found in floors.items():
        read = found["weight_bytes"] + found["kv_bytes"]
        least_ms, plain_ms = 1e3 * read / (found["memory_gb_per_s"] * GB), _plain_ms(runs, context)
        yield (
            context,
            found["weight_bytes"] / 1e6,
            found["kv_bytes"] / 1e6,
            found["memory_gb_per_s"],
            least_ms,
            plain_ms,
            least_ms / plain_ms if plain_ms else None,
        )


def add_decode_options(parser: argparse.ArgumentParser) -> None:
    """What `prepared_bench` wants to know."""
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--gamma", type=int)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument(
        "--draft",
        type=Path,
        default=embedded.DRAFT,
        help="folder of a trained draft; one that is not there: none",
    )
    parser.add_argument(
        "--snapshots", type=Path, help="where the KV of what was read is kept; below the data folder"
    )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    embedded.add_text_options(parser, (1024, 4096, 8000, 16_000, 32_000))
    resumable.add_resume_options(parser, "decode")
    isa.add_option(parser)
    parser.add_argument("--temperatures", type=embedded.parsed_numbers(float), default=[0.0, 0.6, 1.0])
    parser.add_argument(
        "--modes",
        type=lambda text: text.split(";"),
        default=[*MODES],
        help="separated by ; (plain always runs)",
    )
    add_decode_options(parser)
    options = parser.parse_args(arguments)
    unknown = [mode for mode in options.modes if mode not in MODES]
    if unknown:
        parser.error(f"unknown modes {unknown}; there are {'; '.join(MODES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
