"""Acceptance of the middle level by the target, over budget, chunk, selection policy, refresh and
temperature.

    python -m benchmarks.acceptance --books FILE FILE [--contexts 7600,4096,2048] [--tokens 128] [--minutes
    25] [--save NAME]

Along a given text both distributions are computed and their overlap is the acceptance (core.decoding.forced),
so nothing is left to chance and a busy machine does no harm. Each prompt is read once. Two texts follow it:
the book's own next words, and what the target answers to the request to summarise. Every figure is of drafts
of eight tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from core.backend.cpu.threads import bound_spinning

bound_spinning()

import torch

from benchmarks.lib.ngrams import LOOPS_BELOW, distinct
from benchmarks.lib.results import Table, save_result
from benchmarks.quality.selection_policies import POLICIES, ByColumnSums
from core.assembly.engines import build_engine
from core.cache.base import TargetKVCache
from core.cache.retrieval import RetrievalKVCache
from core.config import load_settings
from core.conversation.reading import ReadingStyle
from core.decoding import forced
from core.decoding.decoder import Decoder
from core.decoding.drafters import EmptyDrafter, next_logits
from core.decoding.forced import ExpectedTokens, RetrievalLane, SourceStandIn
from core.decoding.randomness import SeededRandomness
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.documents import read_document
from core.engine import Engine
from core.hardware.probe import probe
from core.model.llama import LlamaModel
from core.model.store import catalogue
from core.model.store.embedded import ensure_embedded
from core.paths import data_dir
from core.planning.planner import make_plan
from core.text.tokenizer import Tokenizer

GAMMA = 8
CHUNK_TOKENS = 512  # of a prefill at a time
CHUNK = 8  # while other things vary
BUDGETS = (128, 256, 512, 1024, 2048)
CHUNKS = (4, 16, 32)  # beside CHUNK
NEVER = 1_000_000
# name: (every so many rounds, sooner where acceptance falls below)
REFRESHES = {
    "never": (NEVER, 0.0),
    "every round": (1, 0.0),
    "every 4": (4, 0.0),
    "every 8": (8, 0.0),
    "on drop": (NEVER, 0.7),
    "every 8 or on drop": (8, 0.7),
}
DEFAULT_REFRESH = "every 8 or on drop"
TEMPERATURES = (0.6, 0.0, 1.0)  # the first is what a refresh "on drop" looks at
TOP_P = 0.9
TEXTS = ("book", "answer")


@dataclass(frozen=True, slots=True, order=True)
class RetrievalSetup:
    """One retrieval cache."""

    policy: str
    budget: int
    chunk: int
    refresh: str


@dataclass(frozen=True, slots=True)
class Row:
    """One retrieval cache along one text."""

    book: str
    context: int
    text: str
    temperature: float
    setup: RetrievalSetup
    expected: ExpectedTokens


@dataclass(frozen=True, slots=True)
class ForcedText:
    """A forced text: how surprising it is to the target, and whether it goes round in circles."""

    book: str
    context: int
    text: str
    tokens: int
    perplexity: float
    distinct_4grams: float


def main() -> int:
    """Runs the cases the arguments ask for."""
    options = _arguments()
    deadline = time.monotonic() + 60 * options.minutes
    folder = ensure_embedded()
    tokenizer = Tokenizer.load(folder)
    books = {book.stem: _text_ids(book, tokenizer) for book in options.books}
    rows: list[Row] = []
    texts: list[ForcedText] = []
    left = []
    engine = _engine(folder, max(options.contexts) + 512)
    for number, (name, ids) in enumerate(books.items()):
        start = len(ids) * (number + 1) // (len(books) + 2)
        for context in options.contexts:
            if time.monotonic() > deadline:
                left.append(f"{name} at {context}")
                continue
            with torch.inference_mode():
                for text, found in _case(engine, tokenizer, name, ids[start:], context, options.tokens):
                    texts.append(text)
                    rows += found
                    print(f"{time.monotonic() - deadline + 60 * options.minutes:.0f} s", text, flush=True)
    details = {
        "rows": [_flat(row) for row in rows],
        "texts": [asdict(text) for text in texts],
        "gamma": GAMMA,
        "left": left,
    }
    if options.save:
        save_result(options.save, acceptance_tables(rows, texts), details)
    print(json.dumps(details["left"]))
    return 0


def setups(context: int) -> list[RetrievalSetup]:
    """A star through the default: one thing varies at a time, at every budget below half of the context,
    refreshes at two of them.
    """
    budgets = [budget for budget in BUDGETS if budget <= context // 2]
    made = {
        RetrievalSetup(policy, budget, CHUNK, DEFAULT_REFRESH) for policy in POLICIES for budget in budgets
    }
    made |= {
        RetrievalSetup("mass", budget, chunk, DEFAULT_REFRESH)
        for chunk in CHUNKS
        for budget in budgets
        if budget >= 4 * chunk
    }
    twice = [budget for budget in (256, 1024) if budget in budgets]
    made |= {RetrievalSetup("mass", budget, CHUNK, refresh) for budget in twice for refresh in REFRESHES}
    made |= {RetrievalSetup("mean_key", budget, CHUNK, "never") for budget in twice}  # the paper's
    return sorted(made)


def _case(
    engine: Engine, tokenizer: Tokenizer, name: str, ids: list[int], context: int, tokens: int
) -> list[tuple[ForcedText, list[Row]]]:
    """One prompt, read once, and the two texts behind it."""
    style = ReadingStyle.from_record(catalogue.find(engine.model_name).reading)
    frame = tokenizer.frame(style.system)
    head = [*frame.opening, *ids[: context - len(frame.opening)]]
    cache = engine.new_context(context + 512).cache
    columns = ByColumnSums(cache, CHUNK)
    _read(engine.model, head[:-2], cache, columns)
    request = [*tokenizer.encode("\n\n"), *tokenizer.encode(style.part_prompts[0]), *frame.ask]
    made = []
    for kind in TEXTS:
        prompt, penalty = (head, 1.0) if kind == "book" else ([*head, *request], style.repetition_penalty)
        whole = (
            [*head, *ids[len(head) - len(frame.opening) :][:tokens]]
            if kind == "book"
            else (_answered(engine, cache, prompt, penalty, tokens))
        )
        samplings = [
            Sampling(temperature, TOP_P if temperature else 1.0, penalty, len(prompt))
            for temperature in TEMPERATURES
        ]
        made.append(_forced(engine, cache, columns, name, context, kind, whole, len(prompt), samplings))
    return made


def _read(model: LlamaModel, ids: list[int], cache: TargetKVCache, columns: ByColumnSums) -> None:
    """Prefills chunk by chunk so that `columns` see every row: a prefill shows its last chunk."""
    for start in range(0, len(ids), CHUNK_TOKENS):
        for _ in model.prefill(
            ids[start : start + CHUNK_TOKENS],
            cache,
            segment_tokens=CHUNK_TOKENS,
            chunk_tokens=CHUNK_TOKENS,
            should_stop=lambda: False,
            tap=columns.tap,
        ):
            pass


def _answered(
    engine: Engine, cache: TargetKVCache, prompt: list[int], penalty: float, tokens: int
) -> list[int]:
    """The prompt and what plain decoding at the first temperature makes of it."""
    cache.rollback(min(cache.length, len(prompt) - 2))
    ids = list(prompt)
    decoder = Decoder(
        EmptyDrafter(),
        engine.model,
        cache,
        Sampling(TEMPERATURES[0], TOP_P, penalty, len(prompt)),
        SeededRandomness(1),
        gamma=1,
    )
    while len(ids) < len(prompt) + tokens:
        ids += decoder.round(ids, most=1).tokens
    return ids


def _forced(
    engine: Engine,
    cache: TargetKVCache,
    columns: ByColumnSums,
    name: str,
    context: int,
    kind: str,
    ids: list[int],
    start: int,
    samplings: Sequence[Sampling],
) -> tuple[ForcedText, list[Row]]:
    """All setups side by side along one text."""
    made = setups(context)
    lanes = [_lane(engine, cache, columns, setup) for setup in made]
    forced.select_first(engine.model, cache, ids[:start], lanes, chunk_tokens=CHUNK_TOKENS)
    logits = next_logits(engine.model, cache, ids[:start], ids[start:-1])
    chosen = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[start:]).unsqueeze(-1))
    cache.rollback(start - 1)
    sums = forced.force(engine.model, cache, ids, start, lanes, samplings, gamma=GAMMA)
    rows = [
        Row(name, context, kind, sampling.temperature, setup, expected)
        for setup, of_lane in zip(made, sums, strict=True)
        for sampling, expected in zip(samplings, of_lane, strict=True)
    ]
    answer = ids[start:]
    return ForcedText(
        name, context, kind, len(answer), math.exp(-chosen.mean().item()), distinct(answer)
    ), rows


def _lane(
    engine: Engine, source: TargetKVCache, columns: ByColumnSums, setup: RetrievalSetup
) -> RetrievalLane:
    policy = POLICIES[setup.policy]
    cache = RetrievalKVCache(
        source,
        budget=setup.budget,
        chunk=setup.chunk,
        tail_tokens=engine.plan.tail_tokens,
        policy=partial(policy, begun=columns) if policy is ByColumnSums else policy,
    )
    every, floor = REFRESHES[setup.refresh]
    watch = SourceStandIn()
    return RetrievalLane(cache, RetrievalRefresh(watch, cache, every=every, floor=floor), watch)


# ---- what came out -----------------------------------------------------------------------------------------


def acceptance_tables(rows: Sequence[Row], texts: Sequence[ForcedText]) -> list[Table]:
    """One table for each thing that varied, and the texts it was measured along."""
    contexts = sorted({row.context for row in rows})
    columns = tuple(
        f"{context:,}, T = {temperature:g}" for context in contexts for temperature in sorted(TEMPERATURES)
    )
    made = []
    for title, name, of_star in (
        (
            "selection and budget",
            "Selection, budget",
            lambda s: (s.chunk, s.refresh) == (CHUNK, DEFAULT_REFRESH),
        ),
        ("chunk and budget", "Chunk, budget", lambda s: (s.policy, s.refresh) == ("mass", DEFAULT_REFRESH)),
        (
            "refresh",
            "Refresh, budget",
            lambda s: (s.policy, s.chunk) == ("mass", CHUNK) and s.budget in (256, 1024),
        ),
    ):
        names = {"Selection": "policy", "Chunk": "chunk", "Refresh": "refresh"}
        varied = names[name.split(",")[0]]
        chosen = sorted(
            {row.setup for row in rows if of_star(row.setup)},
            key=lambda s: (str(getattr(s, varied)).zfill(20), s.budget),
        )
        lines = [
            (
                f"{getattr(setup, varied)}, {setup.budget:,}",
                *(
                    rate(rows, setup, context, temperature)
                    for context in contexts
                    for temperature in sorted(TEMPERATURES)
                ),
            )
            for setup in chosen
        ]
        made.append(
            Table(f"Acceptance of the retrieval level by {title}", (name, *columns), tuple(lines), _NOTES)
        )
    facts = tuple(
        (
            f"{text.book}, {text.text}",
            text.context,
            text.tokens,
            text.perplexity,
            text.distinct_4grams,
            "loops" if text.distinct_4grams < LOOPS_BELOW else "varied",
        )
        for text in texts
    )
    return [
        *made,
        Table(
            "Texts along which acceptance was computed",
            ("Text", "Context", "Tokens", "Perplexity", "Distinct 4-grams", "text"),
            facts,
        ),
    ]


_NOTES = (
    f"Expected accepted over evaluated tokens of drafts of {GAMMA}, over all texts; selection by mass, "
    f"chunks of {CHUNK} and "
    f"refresh {DEFAULT_REFRESH} where not named; top-p {TOP_P:g} above temperature 0. A dash: the budget is "
    "more than half of the "
    "context.",
)


def rate(
    rows: Sequence[Row], setup: RetrievalSetup, context: int, temperature: float, text: str | None = None
) -> float | None:
    """Acceptance over all texts of the kind; None where it was not computed."""
    found = [
        row.expected
        for row in rows
        if (row.setup, row.context, row.temperature) == (setup, context, temperature)
        and text in (None, row.text)
    ]
    return sum(found, ExpectedTokens()).rate if found else None


def _flat(row: Row) -> dict[str, object]:
    return {
        **{name: getattr(row, name) for name in ("book", "context", "text", "temperature")},
        **asdict(row.setup),
        **asdict(row.expected),
        "rate": row.expected.rate,
    }


def _text_ids(book: Path, tokenizer: Tokenizer) -> list[int]:
    document = read_document(book)
    return tokenizer.encode(document.text[document.chapters[0].start if document.chapters else 0 :])


def _engine(folder: Path, context_tokens: int) -> Engine:
    settings = load_settings(None, {"context_tokens": context_tokens, "snapshot_quota_gb": 0})
    plan = make_plan(probe(data_dir()), settings, target=catalogue.find(folder.name).shape, draft=None)
    # so that every chunk divides a block
    return build_engine(replace(plan, retrieval_chunk=max(CHUNKS)), settings, folder)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--books", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--contexts", type=lambda text: [int(part) for part in text.split(",")], default=[7600, 4096, 2048]
    )
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--minutes", type=float, default=25.0, help="no case is begun after so long")
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
