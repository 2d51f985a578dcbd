"""Decode speed of every mode on real book text: TBT, acceptance per level and tokens per round, with plain decoding in the same run.

    python benchmarks/decode.py --book FILE [--contexts 1024,4096,8000] [--temperatures 0,0.6,1] [--tokens 128] [--save NAME]

The model goes on writing the book, whose first N tokens are its prompt. Contexts beyond the native one are stretched by YaRN. Plain
decoding runs before and after the other modes of a case and the ratios are taken to their mean. Text that repeats itself drafts
too easily, so rows of which under 60% of 4-grams are distinct are marked "loops". Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.backend.threads import bound_spinning  # noqa: E402 (the path above makes the repository importable)

bound_spinning()

import torch  # noqa: E402 (after the thread setting, which is read when torch loads)

from benchmarks.store import Table, save  # noqa: E402
from core.assemble import build_engine  # noqa: E402
from core.config import load_settings  # noqa: E402
from core.decoding.decoder import Round  # noqa: E402
from core.documents import read_document  # noqa: E402
from core.engine import Context, Done, Engine, Params  # noqa: E402
from core.hardware.planner import plan as make_plan  # noqa: E402
from core.hardware.probe import probe  # noqa: E402
from core.model import catalogue  # noqa: E402
from core.model.embedded import ensure_embedded  # noqa: E402
from core.paths import data_dir  # noqa: E402
from core.text.tokenizer import Tokenizer  # noqa: E402

MODES = ("autoregressive", "streaming", "retrieval", "ngram", "triforce", "autoregressive")
LOOPS_BELOW = 0.6


@dataclass(frozen=True, slots=True)
class Run:
    """One answer. Times in milliseconds per token."""

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
    same_as_plain: bool | None                 # greedy only: token for token
    prefill_s: float


def main() -> int:
    """Runs the cases the arguments ask for."""
    options = _arguments()
    document = read_document(options.book)
    folder = ensure_embedded()
    ids = Tokenizer.load(folder).encode(document.text[document.chapters[0].start:])
    runs: list[Run] = []
    for contexts in _by_stretch(options.contexts):
        engine = _engine(folder, max(contexts) + options.tokens + 64, options)
        context = engine.new_context(engine.context_tokens)
        for length in contexts:
            runs += _case(engine, context, ids[:length], options)
        del engine, context
    rows = list(_rows(runs))
    table = Table(f"Decoding {document.title}: time between tokens", COLUMNS, tuple(rows), NOTES)
    details = {"runs": [asdict(run) for run in runs], "memory_gb_per_s": memory_gb_per_s(), "tokens": options.tokens}
    if options.save:
        save(options.save, [table], details)
    print(json.dumps(details))
    return 0


def _case(engine: Engine, context: Context, ids: list[int], options: argparse.Namespace) -> Iterator[Run]:
    """All modes at all temperatures after one prompt, which is prefilled once."""
    for temperature in options.temperatures:
        plain: list[int] = []
        for mode in options.modes:
            params = Params(
                max_new_tokens=options.tokens, temperature=temperature, top_p=0.9 if temperature else 1.0, mode=mode, seed=1,
                gamma=options.gamma,
            )
            tokens, stats = _answer(engine, context, ids, params)
            plain = plain or tokens
            run = Run(
                context=len(ids), temperature=temperature, mode=mode, tbt_mean_ms=stats.tbt_mean_ms, tbt_p50_ms=stats.tbt_p50_ms,
                tbt_p95_ms=stats.tbt_p95_ms, acceptance_draft=stats.acceptance_draft.rate,
                acceptance_retrieval=stats.acceptance_retrieval.rate, tokens_per_round=stats.tokens_per_round,
                distinct_4grams=distinct(tokens), same_as_plain=tokens == plain if temperature == 0 else None, prefill_s=stats.prefill_s,
            )
            print(run, flush=True)
            yield run


def _answer(engine: Engine, context: Context, ids: list[int], params: Params) -> tuple[list[int], object]:
    tokens: list[int] = []
    for event in engine.generate(context, ids, params):
        if isinstance(event, Round):
            tokens += event.tokens
        elif isinstance(event, Done):
            stats = event.stats
    return tokens, stats


COLUMNS = (
    "Context", "Temperature", "Mode", "TBT mean, ms", "p50", "p95", "against plain", "draft accepted", "retrieval accepted",
    "tokens per round", "distinct 4-grams", "text",
)
NOTES = (
    "TBT mean is what a reader waits per token on average; \"against plain\" is plain decoding's mean over the mode's, in the same run.",
)


def _rows(runs: list[Run]) -> Iterator[tuple]:
    for run in runs:
        plains = [r.tbt_mean_ms for r in runs if (r.context, r.temperature, r.mode) == (run.context, run.temperature, "autoregressive")]
        ratio = sum(plains) / len(plains) / run.tbt_mean_ms if plains else None
        text = "loops" if run.distinct_4grams < LOOPS_BELOW else "varied"
        yield (
            run.context, str(run.temperature), run.mode, run.tbt_mean_ms, run.tbt_p50_ms, run.tbt_p95_ms, ratio, run.acceptance_draft,
            run.acceptance_retrieval, run.tokens_per_round, run.distinct_4grams, text,
        )


def _engine(folder: Path, context_tokens: int, options: argparse.Namespace) -> Engine:
    settings = load_settings(None, {"context_tokens": context_tokens, "retrieval_budget": options.budget})
    entry = catalogue.find(folder.name)
    plan = make_plan(probe(data_dir()), settings, target=entry.shape, draft=None)
    if options.dtype:
        plan = replace(plan, dtype=options.dtype)
    return build_engine(plan, settings, folder)


def _by_stretch(contexts: list[int], native: int = 8192) -> list[list[int]]:
    """Contexts that fit the native one share an engine and a prefill; each longer one has its own."""
    return [part for part in ([c for c in contexts if c <= native - 192], *([c] for c in contexts if c > native - 192)) if part]


def distinct(tokens: list[int], n: int = 4) -> float:
    """The share of distinct n-grams: low where the text goes round in circles."""
    grams = [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def memory_gb_per_s() -> float:
    """Read bandwidth of a sum over 256 MB, the best of five."""
    data = torch.ones(64 * 2**20)
    best = min(_timed(data.sum) for _ in range(5))
    return data.nbytes / best / 1e9


def _timed(action: object) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--book", type=Path, default=Path(__file__).parent.parent / "assets" / "samples" / "the-thursday-clock.epub")
    parser.add_argument("--contexts", type=_numbers(int), default=[1024, 4096, 8000])
    parser.add_argument("--temperatures", type=_numbers(float), default=[0.0, 0.6, 1.0])
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--gamma", type=int)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"))
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


def _numbers(kind: type) -> object:
    return lambda text: [kind(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
