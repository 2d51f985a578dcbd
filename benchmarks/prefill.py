"""How fast prompts are read: seconds and tokens per second by context, against the machine's matrix products,
and what takes the time.

    python benchmarks/prefill.py --book FILE [--contexts 1024,4096,8000,16000,32000] [--transformers]
    [--minutes 60] [--save prefill]

The embedded model reads the first N tokens of a book; contexts beyond the native one are stretched by YaRN.
Its FLOPs are those of the layers' matrices and of causal attention, counted once. The machine's rate is
that of the widest product that prefill makes, a chunk by the MLP's matrix, alone, before and after.
--transformers lets transformers read the same prompt with the same weights before it. Finished contexts are
kept (--state). Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# started as a file: the repository is on the path, and not this folder
if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from core.backend.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

bound_spinning()

import torch  # noqa: E402 (after the thread setting, which is read when torch loads)

from benchmarks import cases, embedded  # noqa: E402
from benchmarks.cases import Cases  # noqa: E402
from benchmarks.parts import Parts, timed_engine  # noqa: E402
from benchmarks.passes import OutOfTime, read_anew  # noqa: E402
from benchmarks.store import Table, save  # noqa: E402
from core.backend.base import Backend  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.model import catalogue  # noqa: E402
from core.model.embedded import ensure_embedded  # noqa: E402
from core.model.shapes import ModelShape  # noqa: E402
from core.planning.plan import Plan  # noqa: E402

REPEATS = 20  # of the product alone
# tokens that are read before: the first pass of a process sets up its kernels
WARM = 64
COLUMNS = (
    "Context",
    "seconds",
    "tokens per s",
    "TFLOP/s",
    "matrix products, TFLOP/s",
    "share",
    "linear layers, s",
    "their share",
    "attention, s",
    "its share",
    "rest, s",
    "transformers, s",
)
NOTE = (
    "Shares are of the rate of the widest product that prefill makes, alone and in the same run: of all the "
    "time, of the linear layers' and of attention's."
)


def main(arguments: list[str] | None = None) -> int:
    """Reads what was not read yet and shows what is there."""
    options = _arguments(arguments)
    folder = ensure_embedded()
    ids = embedded.book_ids(options.book, folder, least=max(options.contexts))
    state = Cases(
        options.state,
        {"book": options.book.name, "dtype": options.dtype, "transformers": options.transformers},
        minutes=options.minutes,
    )
    every = {
        str(length): lambda length=length: case(folder, ids[:length], options, state.out_of_time)
        for length in options.contexts
    }
    left = state.measure_all(every)
    made = table(state.done)
    if options.save:
        save(options.save, [made], {"cases": state.done, "left": left}, folder=options.folder)
    print(json.dumps({"rows": made.rows, "left": left}))
    return 0


def case(
    folder: Path, ids: Sequence[int], options: argparse.Namespace, out_of_time: Callable[[], bool]
) -> dict[str, Any]:
    """One context. Raises OutOfTime."""
    plan, settings = embedded.plan_for(folder, len(ids) + embedded.SPARE_TOKENS, dtype=options.dtype)
    found = {"transformers_s": _transformers_s(folder, plan, ids) if options.transformers else None}
    engine, parts = timed_engine(plan, settings, folder)
    shape, rows = catalogue.find(folder.name).shape, plan.prefill_chunk_tokens
    prefill(engine, parts, shape, ids[:WARM])
    before = matmul_flops(engine.model.backend, shape, rows=rows)
    found |= prefill(engine, parts, shape, ids, out_of_time=out_of_time)
    return {**found, "matmul_flops": max(before, matmul_flops(engine.model.backend, shape, rows=rows))}


def prefill(
    engine: Engine,
    parts: Parts,
    shape: ModelShape,
    ids: Sequence[int],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Seconds of all, of linear layers and of attention, and the FLOPs of both. Raises OutOfTime."""
    parts.reset()
    started = time.perf_counter()
    cache = read_anew(engine, ids, out_of_time=out_of_time)
    if cache.length < len(ids):
        raise OutOfTime
    return {
        "seconds": time.perf_counter() - started,
        "linear_s": parts.seconds["linear"],
        "attention_s": parts.seconds["attention"],
        "linear_flops": len(ids) * shape.linear_flops_per_token,
        "attention_flops": shape.attention_flops(len(ids), 0),
    }


def matmul_flops(backend: Backend, shape: ModelShape, *, rows: int) -> float:
    """FLOP/s of `rows` rows by the MLP's gate and up matrices as the backend prepares them, the best of
    REPEATS.
    """
    wide, hidden = 2 * shape.intermediate, shape.hidden
    layer = backend.linear(torch.ones(wide, hidden), None)
    x = torch.ones(rows, hidden, dtype=backend.dtype, device=backend.device)

    def seconds() -> float:
        started = time.perf_counter()
        layer(x)[0, 0].item()
        return time.perf_counter() - started

    return 2 * rows * wide * hidden / min(seconds() for _ in range(REPEATS))


def _transformers_s(folder: Path, plan: Plan, ids: Sequence[int]) -> float:
    from benchmarks import transformers_peer

    model = transformers_peer.load(folder, plan, device=plan.device)
    transformers_peer.prefill_s(model, ids[:WARM])
    return transformers_peer.prefill_s(model, ids)


def table(done: dict[str, dict[str, Any]]) -> Table:
    """One row per context, the shortest first."""
    return Table(
        "Reading a prompt with the embedded model",
        COLUMNS,
        tuple(_row(int(name), done[name]) for name in sorted(done, key=int)),
        (NOTE,),
    )


def _row(context: int, found: dict[str, Any]) -> tuple:
    rate, seconds = found["matmul_flops"], found["seconds"]
    linear, attention = found["linear_flops"], found["attention_flops"]
    return (
        context,
        seconds,
        context / seconds,
        (linear + attention) / seconds / 1e12,
        rate / 1e12,
        (linear + attention) / seconds / rate,
        found["linear_s"],
        linear / found["linear_s"] / rate,
        found["attention_s"],
        attention / found["attention_s"] / rate,
        seconds - found["linear_s"] - found["attention_s"],
        found["transformers_s"],
    )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    embedded.add_options(parser, (1024, 4096, 8000, 16_000, 32_000))
    cases.add_options(parser, "prefill")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--transformers", action="store_true", help="beside it, in the same run")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
