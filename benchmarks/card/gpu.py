"""One command for a CUDA machine: pass times, prefill, memory and bytes moved at the size of 7B to 13B
models, against the physical floors.

    python -m benchmarks.gpu --book FILE [--minutes 9 | --quick] [--random] [--ram-gib N] [--save gpu]

The embedded model in the shape of a large one (benchmarks/lib/upscale.py) reads real text, offloaded under a
24 GiB card's memory, and on chip as far as the card allows. With --random, weights and ids are random
(benchmarks/card/sources.py), which needs no file, and decoding is timed at a stated acceptance, too
(benchmarks/card/stated_acceptance.py). Stops after --minutes; started again, it goes on with the cases that
are missing (--state). Acceptance is measured up to 8K tokens, beyond it is stated. --tiny runs everything on
the CPU with random models of a few rows, to test this program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.card import large_shape_answers, stated_acceptance
from benchmarks.card.four_bit_backends import RoundingCpu, RoundingCuda
from benchmarks.card.gpu_tables import card_tables
from benchmarks.card.made_cache import fill_cache
from benchmarks.card.sources import (
    ModelSource,
    Random,
    book_source,
    draft_shape,
    random_draft,
    random_ids,
    small_book,
)
from benchmarks.lib.results import RESULTS, save_result
from benchmarks.lib.upscale import LLAMA_2_7B, LLAMA_2_13B, LLAMA_3_8B, QWEN_3_4B
from benchmarks.speed.forward_times import (
    VERIFY_ROWS,
    MeasuredSpeeds,
    OutOfTime,
    measure_forward,
    measured_speeds,
)
from core.assembly.cache_factory import CacheFactory, kv_type
from core.assembly.models import prepare_attention
from core.backend.base import Backend
from core.backend.cpu.backend import CpuBackend
from core.backend.cuda.backend import CudaBackend
from core.config import Settings
from core.errors import PlanError
from core.hardware.facts import GIB, Hardware
from core.hardware.gpus import imagine, imagined_hardware
from core.hardware.probe import measure_bus, probe
from core.model.gguf.size_estimates import ROUNDED, in_format
from core.model.llama import LlamaModel
from core.model.loader import build_model
from core.model.shapes import ModelShape
from core.planning.plan import Plan
from core.planning.planner import make_plan

CARD_GIB = 24.0  # the consumer card that the cap stands for,
KEPT_GIB = 1.5  # of which the screen and the CUDA context have so much
# for 128K; beyond 8K only times are taken, so the text's quality does not matter
ROPE_THETA = 2_000_000.0
ANSWER_TOKENS, TINY_ANSWER_TOKENS = 128, 24
RANDOM_VOCAB = 32_000  # of the random ids: every shape's own vocabulary has as many


@dataclass(frozen=True, slots=True)
class CardCase:
    """One thing to measure. `what`: "passes", "answers" for acceptance and text, "stated" for passes and
    decoding of random weights, or "made" for that decoding behind keys and values that are made; `residency`:
    which part of the KV stays in VRAM; `coded`: weights in 4 bits and KV cache in 8.
    """

    shape: ModelShape
    context: int
    capped: bool
    what: str = "passes"
    residency: str = "layers"
    coded: bool = False

    @property
    def name(self) -> str:
        """Its key in the state."""
        kept = "" if self.residency == "layers" else f", {self.residency}"
        held = ", codes" if self.coded else ""
        card = "24 GiB" if self.capped else "uncapped"
        return f"{self.what} {self.shape.name} {self.context} {card}{kept}{held}"


CASES = (
    CardCase(LLAMA_2_7B, 130_048, True),
    CardCase(LLAMA_3_8B, 130_048, True, coded=True),
    CardCase(LLAMA_3_8B, 130_048, True),
    CardCase(LLAMA_2_7B, 130_048, True, coded=True),
    CardCase(LLAMA_3_8B, 130_048, False),
    CardCase(LLAMA_2_7B, 65_536, False),
    CardCase(LLAMA_3_8B, 8000, True, "answers"),
    CardCase(LLAMA_3_8B, 130_048, True, residency="blocks"),
    CardCase(LLAMA_2_7B, 65_536, True),
    CardCase(LLAMA_2_7B, 32_768, True),
    CardCase(LLAMA_3_8B, 65_536, True),
    CardCase(LLAMA_3_8B, 32_768, True),
    CardCase(LLAMA_2_7B, 32_768, False),
    CardCase(LLAMA_2_13B, 32_768, False),
    CardCase(LLAMA_2_7B, 124_928, False),
)
QUICK = 2  # of them
RANDOM_CASES = (
    CardCase(LLAMA_2_7B, 130_048, True, "made"),
    CardCase(LLAMA_3_8B, 130_048, True, "stated"),
    CardCase(LLAMA_3_8B, 130_048, True, "made", coded=True),
    CardCase(LLAMA_2_7B, 32_768, True, "stated"),
    CardCase(LLAMA_2_7B, 130_048, True, "stated"),
    CardCase(QWEN_3_4B, 130_048, True, "made"),
    CardCase(QWEN_3_4B, 130_048, True, "made", coded=True),
    CardCase(LLAMA_3_8B, 130_048, False, "stated"),
)
TINY = ModelShape("tiny", 3, 64, 8, 4, 16, 96, vocab=97, native_context=1024, longest_context=1024)
TINY_CASES = (
    CardCase(TINY, 300, True),
    CardCase(TINY, 300, False),
    CardCase(TINY, 300, True, residency="blocks"),
    CardCase(TINY, 150, True, "answers"),
    CardCase(TINY, 300, True, coded=True),
)
TINY_RANDOM_CASES = (CardCase(TINY, 300, True, "stated"),)


@dataclass(frozen=True, slots=True)
class CardBench:
    """What all cases share. `card_gib`: the card that a capped case stands for."""

    source: ModelSource
    machine: Hardware
    speeds: MeasuredSpeeds
    tiny: bool
    out_of_time: Callable[[], bool]
    card_gib: float = CARD_GIB


def main(arguments: list[str] | None = None) -> int:
    """Runs what is missing and shows what is there."""
    options = _arguments(arguments)
    deadline = time.monotonic() + 60 * options.minutes
    done: dict[str, Any] = json.loads(options.state.read_text()) if options.state.is_file() else {}
    cases = _cases(options)
    if options.quick:
        cases = cases[:QUICK]
    missing = [case for case in cases if case.name not in done]
    if missing:
        bench = _bench(options, lambda: time.monotonic() > deadline)
        for case in missing:
            if bench.out_of_time():
                break
            try:
                done[case.name] = run_case(case, bench)
            except OutOfTime:
                break
            except RuntimeError as error:  # of one case: the others are still wanted
                done[case.name] = {"refused": f"it broke: {error}", "broke": True}
            options.state.parent.mkdir(parents=True, exist_ok=True)
            options.state.write_text(json.dumps(done, indent=1))
            print(case.name, json.dumps(done[case.name]), flush=True)
            if "broke" in done[case.name]:
                # what broke on a card stays broken in this process
                return _in_a_new_process(arguments, minutes=(deadline - time.monotonic()) / 60)
    left = [case.name for case in cases if case.name not in done]
    made = card_tables(done)
    if options.save and done:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        save_result(options.save, made, {"gpu": gpu, "cases": done, "left": left}, folder=options.folder)
    print(json.dumps({"tables": [[table.title, table.columns, table.rows] for table in made], "left": left}))
    return 0


def _in_a_new_process(arguments: list[str] | None, *, minutes: float) -> int:
    """The cases that are left, in the time that is."""
    given = sys.argv[1:] if arguments is None else arguments
    command = [sys.executable, "-m", "benchmarks.card.gpu", *given, "--minutes", f"{max(0.0, minutes):.3f}"]
    return subprocess.run(command, check=False).returncode


def run_case(case: CardCase, bench: CardBench) -> dict[str, Any]:
    """One case from a fresh model and an empty device. Where that is full, again with a quarter fewer layers
    on the device, as the product does. A plan that does not fit is a result too. Raises OutOfTime, and
    RuntimeError for what breaks otherwise.
    """
    found = _once(case, bench, None)
    full: list[int] = []
    while (layers := found.pop("full_with", None)) is not None:
        full.append(layers)
        if layers == 0:
            break
        found = _once(case, bench, layers - max(1, layers // 4))
    return {**found, "full_with_layers": full} if full else found


def _once(case: CardCase, bench: CardBench, layers: int | None) -> dict[str, Any]:
    """With so many layers on the device, or as many as the planner says. `full_with`: it had no room for
    these.
    """
    context = case.context + max(VERIFY_ROWS) + 256
    theta = None if bench.tiny or case.what == "answers" else ROPE_THETA
    config = bench.source.config(case.shape, positions=context + 64, rope_theta=theta)
    shape = ModelShape.from_hf_config(config.source, name=config.name)
    draft = draft_shape(config.vocab) if case.what in ("stated", "made") else None
    if case.coded:
        shape = in_format(shape, shape.name, ROUNDED[4])
    settings = _settings(case, context, bench)
    if layers is not None:
        settings = replace(settings, on_chip_layers=layers)
    try:
        plan = make_plan(bench.machine, settings, target=shape, draft=draft)
    except PlanError as error:
        return {"refused": str(error)}
    backend = _backend(case, plan, bench)
    try:
        with torch.inference_mode():
            weights = bench.source.weights(config, backend)
            model = build_model(config, weights, backend, positions=context + 64)
            drafts = None if case.what == "answers" else random_draft(backend, vocab=config.vocab)
            prepare_attention(plan, backend, model, drafts)
            room = CacheFactory(plan, settings, model)
            if case.what == "answers":
                found = _spoken(model, plan, room, case, bench)
            elif case.what == "made":
                found = _behind_made_rows(model, drafts, plan, room, case, bench)
            else:
                found = _passed(model, drafts, shape, plan, room, case, bench)
        return {
            **found,
            "on_chip_layers": plan.on_chip_layers,
            "layers": plan.layers,
            "planned_vram_bytes": plan.bytes_in("VRAM"),
            "peak_bytes": backend.peak_memory_bytes(),
            "notes": backend.notes,
            "planned_tbt_ms": plan.expected_tbt_ms,
        }
    except RuntimeError as error:
        if not backend.out_of_memory(error):
            raise
        return {"refused": f"out of memory: {error}", "full_with": plan.on_chip_layers}
    finally:
        weights = model = drafts = room = None
        backend.release()


def _passed(
    model: LlamaModel,
    draft: LlamaModel,
    shape: ModelShape,
    plan: Plan,
    room: CacheFactory,
    case: CardCase,
    bench: CardBench,
) -> dict[str, Any]:
    """Passes, and decoding where its acceptance is stated. Raises OutOfTime."""
    ids = bench.source.ids[: case.context + max(VERIFY_ROWS)]
    cache = room.new_cache(plan.context_tokens if case.what == "stated" else len(ids))
    more = {"out_of_time": bench.out_of_time}
    found = measure_forward(model, shape, plan, cache, ids, bench.speeds, draft=draft, **more)
    if case.what == "stated":
        found["decoded"] = stated_acceptance.decoded_stated(
            model, draft, plan, room, cache, ids[: case.context], **more
        )
    return found


def _behind_made_rows(
    model: LlamaModel, draft: LlamaModel, plan: Plan, room: CacheFactory, case: CardCase, bench: CardBench
) -> dict[str, Any]:
    """Decoding at a stated acceptance behind a context that was not read."""
    cache, ids = room.new_cache(plan.context_tokens), bench.source.ids[: case.context]
    shape, backend = model.config.kv_shape, model.backend
    # the newest token is what the first pass is about
    fill_cache(cache, len(ids) - 1, shape=shape, backend=backend, rows=kv_type(plan))
    late = bench.out_of_time
    decoded = stated_acceptance.decoded_stated(model, draft, plan, room, cache, ids, out_of_time=late)
    return {"context": case.context, "decoded": decoded}


def _spoken(
    model: LlamaModel, plan: Plan, room: CacheFactory, case: CardCase, bench: CardBench
) -> dict[str, Any]:
    """The book goes on behind the context, and the model does. Raises OutOfTime."""
    tokens = TINY_ANSWER_TOKENS if bench.tiny else ANSWER_TOKENS
    ids = bench.source.ids[: case.context + tokens]
    return {
        "context": case.context,
        "along": large_shape_answers.along(
            model, plan, room, ids, case.context, out_of_time=bench.out_of_time
        ),
        "answers": large_shape_answers.answer_figures(
            model, plan, room, ids[: case.context], tokens=tokens, out_of_time=bench.out_of_time
        ),
    }


# ---- what it runs on ---------------------------------------------------------------------------------------


def _settings(case: CardCase, context: int, bench: CardBench) -> Settings:
    if bench.tiny:
        return Settings(
            device="cpu",
            dtype="float32",
            context_tokens=context,
            on_chip_layers=1 if case.capped else case.shape.layers,
            kv_residency=case.residency,
            kv=8 if case.coded else None,
            retrieval_budget=64,
            prefill_segment_tokens=128,
            prefill_chunk_tokens=50,
            max_new_tokens=24,
        )
    return Settings(
        device="cuda",
        dtype="bfloat16",
        context_tokens=context,
        vram_gib=bench.card_gib if case.capped else None,
        kv_residency=case.residency,
        kv=8 if case.coded else None,
        weights=4 if case.coded else 16,  # as they are made: nothing here rounds what the plan would
    )


def _backend(case: CardCase, plan: Plan, bench: CardBench) -> Backend:
    if bench.tiny:
        return (RoundingCpu if case.coded else CpuBackend)(torch.float32)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    cap = int((bench.card_gib - KEPT_GIB) * GIB) if case.capped else None
    made = RoundingCuda if case.coded else CudaBackend
    return made(
        torch.bfloat16,
        index=plan.gpu_index,
        memory_cap_bytes=cap,
        keep_free_bytes=plan.keep_free_bytes,
        page_lock_bytes=plan.page_lock_bytes,
    )


def _bench(options: argparse.Namespace, out_of_time: Callable[[], bool]) -> CardBench:
    if options.tiny:
        imagined = (
            imagined_hardware(gpu=None, ram_gib=16),
            MeasuredSpeeds(link_gb_per_s=10.0, memory_gb_per_s=10.0),
        )
        source = Random(random_ids(TINY.vocab, 1000)) if options.random else small_book()
        return CardBench(source, *imagined, True, out_of_time)
    machine = imagine(probe(measure=False), ram_gib=options.ram_gib)
    bus = measure_bus(machine.gpus[0].index) if machine.gpus else {"problem": "no CUDA GPU"}
    if "problem" in bus:
        raise SystemExit(
            f"This benchmark needs a CUDA GPU: {bus['problem']}. --tiny tests the program without one."
        )
    print("bus", json.dumps(bus), flush=True)
    # torch is asked before there is a backend, and remembers how GPUs were numbered then
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    speeds = measured_speeds(torch.device("cuda", machine.gpus[0].index), bus["h2d_gb_per_s"])
    return CardBench(_source(options), machine, speeds, False, out_of_time)


def _cases(options: argparse.Namespace) -> tuple[CardCase, ...]:
    if options.random:
        return TINY_RANDOM_CASES if options.tiny else RANDOM_CASES
    return TINY_CASES if options.tiny else CASES


def _source(options: argparse.Namespace) -> ModelSource:
    if options.random:
        return Random(random_ids(RANDOM_VOCAB, max(case.context for case in CASES) + max(VERIFY_ROWS)))
    return book_source(
        options.book, options.model, longest=max(case.context for case in CASES) + max(VERIFY_ROWS)
    )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--book",
        type=Path,
        default=Path(__file__).resolve().parents[2] / "assets" / "samples" / "the-light-on-the-holm.epub",
    )
    parser.add_argument("--model", type=Path, help="folder of the small model; the embedded one")
    parser.add_argument("--random", action="store_true", help="random weights and ids, which need no file")
    parser.add_argument("--ram-gib", type=float, help="memory beside the card, where too little is told")
    parser.add_argument("--minutes", type=float, help="9, or 3 with --quick")
    parser.add_argument(
        "--quick", action="store_true", help="the first cases alone: 128K under 24 GB, 7B, and 8B in codes"
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=RESULTS.parent / "gpu-cases.json",
        help="finished cases; delete it to start over",
    )
    parser.add_argument("--save", help="name of the result below --folder")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument(
        "--tiny", action="store_true", help="the whole program on the CPU, with nothing worth measuring"
    )
    options = parser.parse_args(arguments)
    if options.minutes is None:
        options.minutes = 3.0 if options.quick else 9.0
    return options


if __name__ == "__main__":
    sys.exit(main())
