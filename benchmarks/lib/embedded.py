"""The embedded model as the benchmarks run it: the tokens of a book, the plan for a context, an engine, a
prompt read once and kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.speed.forward_times import OutOfTime
from core.config import Settings, load_settings
from core.decoding.context import Context
from core.documents import read_document
from core.engine import Engine
from core.events import Stats
from core.hardware.probe import probe
from core.model.shapes import ModelShape
from core.model.store import catalogue
from core.planning.plan import Plan
from core.planning.planner import make_plan
from core.request import Params
from core.text.tokenizer import Tokenizer

BOOK = Path(__file__).resolve().parents[2] / "assets" / "samples" / "the-light-on-the-holm.epub"
DRAFT = Path(__file__).resolve().parents[2] / "assets" / "models" / "smollm2-135m-draft"
SPARE_TOKENS = 64  # behind prompt and answer


def book_ids(book: Path, folder: Path, *, least: int) -> list[int]:
    """The book from its first chapter on, in the tokens of the model in `folder`. Raises SystemExit when it
    has fewer than `least`.
    """
    document = read_document(book)
    ids = Tokenizer.load(folder).encode(
        document.text[document.chapters[0].start if document.chapters else 0 :]
    )
    if len(ids) < least:
        raise SystemExit(
            f"{book.name} has {len(ids):,} tokens and {least:,} are needed. Name a longer book, or shorter "
            "--contexts."
        )
    return ids


def embedded_plan(
    folder: Path,
    context_tokens: int,
    *,
    draft: ModelShape | None = None,
    dtype: str | None = None,
    budget: int | None = None,
    gamma: int | None = None,
    device: str | None = None,
    native: bool = True,
    **more: int,
) -> tuple[Plan, Settings]:
    """The product's plan for so many tokens (`native`: for at least the model's own context, as the product
    has it), and its settings, `more` of them as given.
    """
    shape = catalogue.find(str(folder)).shape
    context = max(context_tokens, shape.native_context if native else 0)
    given = {"retrieval_budget": budget, "gamma": gamma, "device": device, **more}
    settings = load_settings(
        None,
        {
            "context_tokens": context,
            "snapshot_quota_gb": 20,
            **{key: value for key, value in given.items() if value is not None},
        },
    )
    plan = make_plan(probe(measure=False), settings, target=shape, draft=draft)
    return (replace(plan, dtype=dtype, computes=dtype) if dtype else plan), settings


def read_into(
    engine: Engine, context: Context, ids: Sequence[int], book_id: str, *, out_of_time: Callable[[], bool]
) -> Stats:
    """Fills `context` with `ids`, from disk as far as they are there, and puts there what was read. Raises
    OutOfTime.
    """
    context.belongs_to(book_id, len(ids))
    *_, done = engine.generate(
        context,
        ids,
        Params(mode="autoregressive", temperature=0.0, max_new_tokens=1),
        should_stop=out_of_time,
    )
    engine.save(context, should_stop=lambda: False)
    if done.reason == "user":
        raise OutOfTime
    return done.stats


def add_text_options(parser: argparse.ArgumentParser, contexts: Sequence[int]) -> None:
    """Which text, and how much of it."""
    parser.add_argument("--book", type=Path, default=BOOK)
    parser.add_argument(
        "--contexts",
        type=parsed_numbers(int),
        default=list(contexts),
        help="tokens of the prompt, separated by commas",
    )


def parsed_numbers(kind: type) -> Callable[[str], list]:
    """Reads "1,2,3"."""
    return lambda text: [kind(part) for part in text.split(",")]
