"""Where the time of some rounds, or of reading a prompt, goes: a Chrome trace, and the operators that take
most in each level.

    python benchmarks/profile.py TRACE.json [--what rounds|prefill] [--book FILE] [--context 4096] [--mode
    triforce] [--temperature 0]
                                 [--rounds 8] [--top 12]

The trace opens in https://ui.perfetto.dev or chrome://tracing. An operator's self time is without that of the
operators it calls; "(the program)" is what a level spends outside of all of them. Profiling slows small
operators down, so shares are to be trusted, not sums. For milliseconds per token by part see the gap in
benchmarks/peers.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

# started as a file: the repository is on the path, and not this folder
if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.backend.cpu.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

bound_spinning()

import torch  # noqa: E402 (after the thread setting, which is read when torch loads)
from torch.autograd import DeviceType  # noqa: E402
from torch.profiler import ProfilerActivity, profile, record_function  # noqa: E402

from benchmarks import decode, embedded  # noqa: E402
from benchmarks.levels import LEVELS, Recorder  # noqa: E402
from benchmarks.passes import read_anew  # noqa: E402
from core.ask import Params  # noqa: E402
from core.assembly.engines import build_engine  # noqa: E402
from core.decoding.decoder import Round  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.model.store.embedded import ensure_embedded  # noqa: E402

MARK = "level: "  # how the ranges of levels are named in the trace
PROGRAM = "(the program)"
OUTSIDE = "between passes"
WARM = 64  # tokens that are read unprofiled


class MarkedLevels(Recorder):
    """Marks each pass in the trace with its level."""

    def within(self, level: str) -> AbstractContextManager:
        """See Recorder."""
        return record_function(MARK + level)


def main(arguments: list[str] | None = None) -> int:
    """Profiles once, writes the trace, prints the tables."""
    options = _arguments(arguments)
    folder = ensure_embedded()
    ids = embedded.book_ids(options.book, folder, least=options.context)[: options.context]
    if options.what == "prefill":
        taken = prefill(_prefill_engine(folder, len(ids), options), ids)
    else:
        bench = decode.prepare(folder, ids, options, MarkedLevels(), lambda: False)
        taken = rounds(bench, options.mode, options.temperature, options.rounds)
    taken.export_chrome_trace(str(options.trace))
    found = top(taken.events(), options.top)
    for level, rows in found.items():
        print(f"\n{level}: self time of the {len(rows)} operators that take most")
        for name, calls, ms, share in rows:
            print(f"{100 * share:6.1f} %  {ms:9.2f} ms  {calls:6} calls  {name}")
    print(json.dumps({"trace": str(options.trace), "top": found}))
    return 0


def rounds(bench: decode.Bench, mode: str, temperature: float, count: int) -> profile:
    """`count` rounds behind the prompt. A first one is not profiled: it sets up kernels, and retrieval has
    nothing to draft from yet.
    """
    kind, bench.recorder.trained_draft = decode.MODES[mode]
    room = bench.context.capacity - len(bench.ids) - 1
    params = Params(
        mode=kind, temperature=temperature, top_p=0.9 if temperature else 1.0, max_new_tokens=room, seed=1
    )
    events = (
        event for event in bench.engine.generate(bench.context, bench.ids, params) if isinstance(event, Round)
    )
    next(events)
    with _profiler() as taken:
        for _ in range(count):
            next(events, None)
    return taken


def prefill(engine: Engine, ids: Sequence[int]) -> profile:
    """Reading all of `ids`. A few are read before: the first pass of a process sets up its kernels."""
    read_anew(engine, ids[:WARM])
    with _profiler() as taken, record_function(MARK + "prefill"):
        read_anew(engine, ids)
    return taken


def _profiler() -> profile:
    gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return profile(activities=[ProfilerActivity.CPU, *gpu])


Row = tuple[str, int, float, float]  # operator, calls, milliseconds, share of its level


def top(events: Iterable[Any], count: int) -> dict[str, list[Row]]:
    """The operators with the most self time in each level, on the device where that did something, else on
    the CPU.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0, 0.0, 0.0]))
    for event in events:
        # what ran on a GPU is in the operator that launched it
        if event.device_type == DeviceType.CPU:
            entry = found[_level(event)][PROGRAM if event.name.startswith(MARK) else event.name]
            for place, amount in enumerate(
                (1, event.self_cpu_time_total / 1e3, event.self_device_time_total / 1e3)
            ):
                entry[place] += amount
    return {level: _most(found[level], count) for level in (*LEVELS, "prefill", OUTSIDE) if level in found}


def _level(event: Any) -> str:
    """The level of the pass that an operator ran in."""
    while event is not None:
        if event.name.startswith(MARK):
            return event.name.removeprefix(MARK)
        event = event.cpu_parent
    return OUTSIDE


def _most(operators: dict[str, list[float]], count: int) -> list[Row]:
    place = 2 if any(entry[2] for entry in operators.values()) else 1
    total = sum(entry[place] for entry in operators.values()) or 1.0
    ordered = sorted(operators.items(), key=lambda one: -one[1][place])
    return [(name, int(entry[0]), entry[place], entry[place] / total) for name, entry in ordered[:count]]


def _prefill_engine(folder: Path, tokens: int, options: argparse.Namespace) -> Engine:
    plan, settings = embedded.plan_for(folder, tokens + embedded.SPARE_TOKENS, dtype=options.dtype)
    return build_engine(plan, settings, folder)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path, help="where the Chrome trace goes")
    parser.add_argument("--what", choices=("rounds", "prefill"), default="rounds")
    parser.add_argument("--book", type=Path, default=embedded.BOOK)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--mode", choices=tuple(decode.MODES), default="triforce")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--top", type=int, default=12)
    decode.add_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
