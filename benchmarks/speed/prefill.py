"""How fast prompts are read: seconds and tokens per second by context, against the same products alone, and
what takes the time.

    python -m benchmarks.prefill --book FILE [--contexts 1024,4096,8000,16000,32000] [--transformers]
    [--isa avx2] [--minutes 60] [--save prefill]

The embedded model reads the first N tokens of a book; contexts beyond the native one are stretched by YaRN.
Its FLOPs are those of the layers' matrices and of causal attention, counted once. What they could take is
measured alone, behind the prompt: a chunk by the model's own matrices, and the last chunk's attention in its
own cache.
--transformers lets transformers read the same prompt with the same weights before it. Finished contexts are
kept (--state). Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import isa
from core.backend.cpu.threads import bound_spinning

bound_spinning()
isa.hold()

import torch

from benchmarks.lib import embedded, resumable
from benchmarks.lib.layer_timer import Parts, timed_engine
from benchmarks.lib.results import Table, save_result
from benchmarks.lib.resumable import Cases
from benchmarks.speed.forward_times import OutOfTime, read_anew
from core.cache.full import FullKVCache
from core.engine import Engine
from core.model.llama import Layer, LlamaModel
from core.model.shapes import ModelShape
from core.model.store import catalogue
from core.model.store.embedded import ensure_embedded
from core.planning.plan import Plan

REPEATS = 20  # of the product alone
# tokens that are read before: the first pass of a process sets up its kernels
WARM = 64
COLUMNS = (
    "Context",
    "seconds",
    "tokens per s",
    "TFLOP/s",
    "alone: matrices, TFLOP/s",
    "attention, TFLOP/s",
    "share",
    "linear layers, s",
    "their share",
    "attention, s",
    "its share",
    "rest, s",
    "transformers, s",
)
NOTE = (
    "Alone: a chunk by the model's own matrices and the last chunk's attention, behind the prompt. Shares: "
    "what all products would take at these rates, of all the time; and of the linear layers' and of "
    "attention's."
)


def main(arguments: list[str] | None = None) -> int:
    """Reads what was not read yet and shows what is there."""
    options = _arguments(arguments)
    folder = ensure_embedded()
    ids = embedded.book_ids(options.book, folder, least=max(options.contexts))
    state = Cases(
        options.state,
        {
            "book": options.book.name,
            "dtype": options.dtype,
            "transformers": options.transformers,
            "isa": isa.cap(),
        },
        minutes=options.minutes,
    )
    every = {
        str(length): lambda length=length: case(folder, ids[:length], options, state.out_of_time)
        for length in options.contexts
    }
    left = state.measure_all(every)
    made = prefill_table(state.done)
    if options.save:
        save_result(options.save, [made], {"cases": state.done, "left": left}, folder=options.folder)
    print(json.dumps({"rows": made.rows, "left": left}))
    return 0


def case(
    folder: Path, ids: Sequence[int], options: argparse.Namespace, out_of_time: Callable[[], bool]
) -> dict[str, Any]:
    """One context. Raises OutOfTime."""
    plan, settings = embedded.embedded_plan(folder, len(ids) + embedded.SPARE_TOKENS, dtype=options.dtype)
    found = {"transformers_s": _transformers_s(folder, plan, ids) if options.transformers else None}
    engine, parts = timed_engine(plan, settings, folder)
    shape = catalogue.find(folder.name).shape
    prefill(engine, parts, shape, ids[:WARM])
    return found | prefill(engine, parts, shape, ids, out_of_time=out_of_time)


def prefill(
    engine: Engine,
    parts: Parts,
    shape: ModelShape,
    ids: Sequence[int],
    *,
    out_of_time: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Seconds of all, of linear layers and of attention, the FLOPs of both, and how many each does a second
    alone. Raises OutOfTime.
    """
    parts.reset()
    started = time.perf_counter()
    cache = read_anew(engine, ids, out_of_time=out_of_time)
    if cache.length < len(ids):
        raise OutOfTime
    found = {
        "seconds": time.perf_counter() - started,
        "linear_s": parts.seconds["linear"],
        "attention_s": parts.seconds["attention"],
        "linear_flops": len(ids) * shape.linear_flops_per_token,
        "attention_flops": shape.attention_flops(len(ids), 0),
    }
    rows = min(len(ids), engine.plan.prefill_chunk_tokens)
    with torch.inference_mode():
        found["linear_rate"] = linear_rate(engine.model, shape, rows=rows)
        found["attention_rate"] = attention_rate(engine.model, cache, shape, rows=rows)
    return found


def linear_rate(model: LlamaModel, shape: ModelShape, *, rows: int) -> float:
    """FLOP/s of `rows` rows by a layer's matrices, each the best of REPEATS, in turn with other layers'."""
    widths = {
        "qkv": shape.hidden,
        "out": shape.heads * shape.head_dim,
        "gate_up": shape.hidden,
        "down": shape.intermediate,
    }
    x = torch.ones(rows, max(widths.values()), dtype=model.backend.dtype, device=model.backend.device)
    seconds = sum(
        _best(model, lambda layer, name=name, width=width: getattr(layer, name)(x[:, :width].contiguous()))
        for name, width in widths.items()
    )
    return rows * shape.linear_flops_per_token / shape.layers / seconds


def attention_rate(model: LlamaModel, cache: FullKVCache, shape: ModelShape, *, rows: int) -> float:
    """FLOP/s of the last `rows` rows' attention to all that the cache holds, likewise."""
    backend, store = model.backend, cache.store
    q = torch.ones(rows, shape.heads, shape.head_dim, dtype=backend.dtype, device=backend.device)
    order = iter(itertools.cycle(range(shape.layers)))

    def attend(_layer: Layer) -> torch.Tensor:
        at = next(order)
        return backend.attend(q, store.k[at], store.v[at], length=cache.length, causal=True)

    flops = shape.attention_flops(rows, cache.length - rows) / shape.layers
    return flops / _best(model, attend)


def _best(model: LlamaModel, run: Callable[[Layer], torch.Tensor]) -> float:
    def seconds(layer: Layer) -> float:
        started = time.perf_counter()
        run(layer).flatten()[0].item()
        return time.perf_counter() - started

    layers = itertools.islice(itertools.cycle(model._layers), REPEATS)
    return min(seconds(layer) for layer in layers)


def _transformers_s(folder: Path, plan: Plan, ids: Sequence[int]) -> float:
    from benchmarks.speed import transformers_peer

    model = transformers_peer.load_peer(folder, plan, device=plan.device)
    transformers_peer.peer_prefill_s(model, ids[:WARM])
    return transformers_peer.peer_prefill_s(model, ids)


def prefill_table(done: dict[str, dict[str, Any]]) -> Table:
    """One row per context, the shortest first."""
    return Table(
        "Reading a prompt with the embedded model",
        COLUMNS,
        tuple(_row(int(name), done[name]) for name in sorted(done, key=int)),
        (NOTE,),
    )


def _row(context: int, found: dict[str, Any]) -> tuple:
    seconds, linear, attention = found["seconds"], found["linear_flops"], found["attention_flops"]
    alone = linear / found["linear_rate"], attention / found["attention_rate"]
    return (
        context,
        seconds,
        context / seconds,
        (linear + attention) / seconds / 1e12,
        found["linear_rate"] / 1e12,
        found["attention_rate"] / 1e12,
        sum(alone) / seconds,
        found["linear_s"],
        alone[0] / found["linear_s"],
        found["attention_s"],
        alone[1] / found["attention_s"],
        seconds - found["linear_s"] - found["attention_s"],
        found["transformers_s"],
    )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    embedded.add_text_options(parser, (1024, 4096, 8000, 16_000, 32_000))
    resumable.add_resume_options(parser, "prefill")
    isa.add_option(parser)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--transformers", action="store_true", help="beside it, in the same run")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
