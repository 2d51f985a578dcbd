"""Where a round's time goes on this CPU: the embedded model on real book text, plain decoding and TriForce.

    python -m benchmarks.rounds --book FILE [--contexts 1024,8000,16000,32000] [--turns 5] [--tokens 128]
    [--threads 1 --clock cpu] [--isa avx2] [--minutes 60] [--save rounds]

Every turn has an answer with a stopwatch around every kernel and one without, of each mode in turn, each turn
with another seed; figures are medians over turns. Parts hold what they take themselves, so they add up to the
time with the stopwatch, which is told beside the time without. What was read of the book is kept
(--snapshots), and so is a context that is finished (--state). On a busy machine one thread by its CPU time
says more than the clock; reading has all threads.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

import torch

from benchmarks.lib import embedded, resumable
from benchmarks.lib.ngrams import distinct
from benchmarks.lib.results import Table, save_result
from benchmarks.lib.resumable import Cases
from benchmarks.lib.round_timer import PARTS, RoundRecorder
from benchmarks.speed.decode import DecodeBench, add_decode_options, prepared_bench
from benchmarks.speed.forward_times import OutOfTime
from benchmarks.speed.llamacpp import timed_how
from benchmarks.speed.peer_processes import CLOCKS
from core.decoding.decoder import Round
from core.model.store.embedded import ensure_embedded
from core.request import Params

# name -> mode, temperature
ANSWERS = {
    "plain": ("autoregressive", 0.6),
    "TriForce, T 0": ("triforce", 0.0),
    "TriForce, T 0.6": ("triforce", 0.6),
}
WHOLE = ("a round", "a token, ms", "without the stopwatch, ms", "4-grams")
NOTES = (
    "Microseconds a round, medians over turns. Between kernels: norms, rotation, gates, what a pass does in "
    "Python, and the stopwatch. 4-grams: the share of the text's that are distinct.",
)


def main(arguments: list[str] | None = None) -> int:
    """The contexts that are missing, and the table of all."""
    options = _arguments(arguments)
    folder = ensure_embedded()
    ids = embedded.book_ids(options.book, folder, least=max(options.contexts))
    conditions = {key: getattr(options, key) for key in ("tokens", "turns", "threads", "clock")}
    conditions |= {"book": options.book.name, "isa": isa.cap()}
    state = Cases(options.state, conditions, minutes=options.minutes)

    def at(length: int) -> dict[str, Any]:
        recorder = RoundRecorder(CLOCKS[options.clock])
        bench = prepared_bench(folder, ids[:length], options, recorder, state.out_of_time)
        torch.set_num_threads(options.threads or torch.get_num_threads())
        return profiles(bench, recorder, turns=options.turns, tokens=options.tokens)

    try:
        for length in options.contexts:
            state.measure(str(length), lambda length=length: at(length))
            print(length, json.dumps(state.done[str(length)]), flush=True)
    except OutOfTime:
        pass
    made = round_table(state.done, timed_how(options))
    if options.save:
        save_result(options.save, [made], {"conditions": conditions}, folder=options.folder)
    for row in (made.columns, *made.rows):
        print(*row, sep="  ")
    return 0


def profiles(
    bench: DecodeBench, recorder: RoundRecorder, *, turns: int, tokens: int
) -> dict[str, dict[str, float]]:
    """By answer: microseconds a round by part, and what else the table says. Raises OutOfTime."""
    model = bench.engine.model
    models = {id(one): one for one in (model, model.drafting)}.values()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ANSWERS}
    for turn in range(turns + 1):
        for name, (mode, temperature) in ANSWERS.items():
            how = Params(
                max_new_tokens=tokens,
                temperature=temperature,
                top_p=0.9 if temperature else 1.0,
                mode=mode,
                seed=turn + 1,
            )
            alone = _answer(bench, how)
            with recorder.watching(*models) as watch:
                watched = _answer(bench, how)
            parts = {part: 1e6 * watch.seconds[part] / len(watched) for part in PARTS}
            said, heard = ([token for one in answer for token in one.tokens] for answer in (watched, alone))
            found[name].append(
                {
                    "tokens a round": len(said) / len(watched),
                    **parts,
                    "a round": sum(parts.values()),
                    "a token, ms": 1e3 * sum(watch.seconds.values()) / len(said),
                    "without the stopwatch, ms": 1e3 * sum(one.seconds for one in alone) / len(heard),
                    "4-grams": distinct(said),
                }
            )
    # the first turn warms
    return {
        name: {key: median(one[key] for one in taken[1:]) for key in taken[0]}
        for name, taken in found.items()
    }


def _answer(bench: DecodeBench, how: Params) -> list[Round]:
    events = list(bench.engine.generate(bench.context, bench.ids, how, should_stop=bench.out_of_time))
    if events[-1].reason == "user":
        raise OutOfTime
    return [event for event in events if isinstance(event, Round)]


def round_table(done: dict[str, dict[str, dict[str, float]]], how: tuple[str, ...] = ()) -> Table:
    """Of cases by context, shortest first, and `how` they were timed; parts that none of them has are left
    out.
    """
    cases = sorted((int(length), found) for length, found in done.items())
    every = [one for _length, found in cases for one in found.values()]
    told = ("tokens a round", *(part for part in PARTS if any(one[part] for one in every)), *WHOLE)
    return Table(
        "Where a round's time goes",
        ("Context", "Mode", *told),
        tuple(
            (length, name, *(_short(one[column]) for column in told))
            for length, found in cases
            for name, one in found.items()
        ),
        (*how, *NOTES),
    )


def _short(number: float) -> float:
    return round(number) if number >= 100 else round(number, 2)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    embedded.add_text_options(parser, (1024, 8000, 16_000, 32_000))
    resumable.add_resume_options(parser, "rounds")
    add_decode_options(parser)
    isa.add_option(parser)
    parser.add_argument("--threads", type=int, default=0, help="that answer; 0: all physical cores")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall", help="cpu: on a busy machine")
    parser.set_defaults(draft=Path("none"))
    parser.add_argument("--turns", type=int, default=5, help="behind one that warms")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
