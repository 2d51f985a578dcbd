"""Decoding on one card and on several of one computer, in turn: what dividing a model among them gives.

    python -m benchmarks.several_cards --model NAME --book FILE [--gpus 2] [--contexts 8000,65536,124928]
    [--modes autoregressive,triforce] [--tokens 128] [--random] [--save several-cards]

The model, whose KV heads must divide by the number of cards, goes on writing the book behind its first N
tokens, or random ids. Each number of cards is planned as the product plans it, without a draft model, and the
plan's figure stands beside the measured one. --cpu runs as many processes on the CPU, to test this program.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

from benchmarks.card.sources import random_ids
from benchmarks.lib.embedded import BOOK, SPARE_TOKENS, book_ids, parsed_numbers
from benchmarks.lib.results import RESULTS, Table, save_result
from core.assembly.engines import build_engine
from core.assembly.ranked import build_ranked
from core.config import Settings
from core.engine import Done
from core.errors import UserError
from core.hardware.probe import probe
from core.model.store import catalogue
from core.model.store.catalogue import CatalogueEntry
from core.model.store.fetch import model_folder
from core.planning.plan import Plan
from core.planning.planner import make_plan
from core.request import Params

COLUMNS = (
    "Cards",
    "Context",
    "Mode",
    "layers on each card",
    "TBT mean, ms",
    "planned, ms",
    "retrieval accepted",
    "reading, s",
)


@dataclass(frozen=True, slots=True)
class CardsRun:
    """One answer. `planned_ms`: what the plan says of a token in this mode."""

    cards: int
    context: int
    mode: str
    on_chip_layers: int
    tbt_ms: float
    planned_ms: float
    acceptance: float | None
    prefill_s: float


def main(arguments: list[str] | None = None) -> int:
    """Measures one card, then all of them, and shows what was found; what does not fit is said."""
    options = _arguments(arguments)
    entry = catalogue.find(options.model)
    runs: list[CardsRun] = []
    refused: list[str] = []
    for cards in (1, options.gpus):
        for context in options.contexts:
            try:
                runs += _measured(options, entry, context, cards)
            except UserError as error:
                refused.append(f"{cards} cards, {context} tokens: {error}")
            print(*runs, *refused, sep="\n", flush=True)
    made = Table("One card and several", COLUMNS, tuple(astuple(run) for run in runs))
    if options.save:
        found = {"model": entry.name, "runs": [asdict(run) for run in runs], "refused": refused}
        save_result(options.save, [made], found, folder=options.folder)
    print(json.dumps({"table": [made.title, made.columns, made.rows], "refused": refused}))
    return 0


def _measured(
    options: argparse.Namespace, entry: CatalogueEntry, context: int, cards: int
) -> Iterator[CardsRun]:
    """All modes behind one prompt, which is read once. Raises UserError where it does not fit."""
    capacity = context + options.tokens + SPARE_TOKENS
    settings, plan = _planned(options, entry, capacity, cards)
    coded = plan.weights_format if plan.weights_kernel == "codes" else ""
    folder = model_folder(entry, lambda stage, share: None, weights=coded)
    ids = (
        random_ids(entry.shape.vocab, context)
        if options.random
        else book_ids(options.book, folder, least=context)
    )
    engine = (build_ranked if plan.devices else build_engine)(plan, settings, folder)
    try:
        place = engine.new_context(capacity)
        for mode in options.modes:
            params = Params(max_new_tokens=options.tokens, temperature=0.0, top_p=1.0, mode=mode, seed=1)
            *_, last = engine.generate(place, list(ids[:context]), params)
            yield _run(plan, cards, context, mode, last)
    finally:
        if plan.devices:
            engine.others.close()


def _planned(
    options: argparse.Namespace, entry: CatalogueEntry, capacity: int, cards: int
) -> tuple[Settings, Plan]:
    """Raises UserError where it does not fit."""
    devices = tuple(range(cards)) if cards > 1 else None
    given = {"context_tokens": capacity, "draft_model": "none", "snapshot_quota_gb": 0}
    if not options.cpu:
        given |= {"device": "cuda", "devices": devices}
        settings = Settings(**given)
        return settings, make_plan(probe(), settings, target=entry.shape)
    settings = Settings(**given, device="cpu", dtype="float32", on_chip_layers=1)
    plan = make_plan(probe(measure=False), settings, target=entry.shape)
    return settings, replace(plan, devices=devices or ())


def _run(plan: Plan, cards: int, context: int, mode: str, done: Done) -> CardsRun:
    planned = {
        "autoregressive": plan.expected_plain_tbt_ms,
        "cpu_attention": plan.expected_cpu_attention_ms or plan.expected_plain_tbt_ms,
    }.get(mode, plan.expected_tbt_ms)
    stats = done.stats
    return CardsRun(
        cards=cards,
        context=context,
        mode=mode,
        on_chip_layers=plan.on_chip_layers,
        tbt_ms=stats.tbt_mean_ms,
        planned_ms=planned,
        acceptance=stats.acceptance_retrieval.rate,
        prefill_s=stats.prefill_s,
    )


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a name from `models list`, or a folder")
    parser.add_argument("--book", type=Path, default=BOOK)
    parser.add_argument("--random", action="store_true", help="random ids, which need no book")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--contexts", type=parsed_numbers(int), default=[8000, 65_536, 124_928])
    parser.add_argument("--modes", type=parsed_numbers(str), default=["autoregressive", "triforce"])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--cpu", action="store_true", help="processes on the CPU, with nothing worth measuring"
    )
    parser.add_argument("--save", help="name of the result below --folder")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
