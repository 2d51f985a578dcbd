"""What a draft model is worth: acceptance of level 0 by the middle level, tokens per middle pass, and time
between tokens.

    python -m benchmarks.draft --books FILE FILE [--draft FOLDER] [--skip acceptance|times] [--save NAME]

Level 0 is n-gram lookup alone, the draft model alone, or lookup with the model where it finds nothing.
Acceptance is counted on books that the draft was not trained on: passages that the target goes on writing,
and its answers about them. It does not depend on how busy the machine is; the times do, and are compared
within one run with plain decoding before and after.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.lib.ngrams import LOOPS_BELOW, distinct
from benchmarks.lib.noise_guard import calmest
from benchmarks.lib.results import Table, save_result
from core.assembly.composition import Composer
from core.assembly.engines import build_engine
from core.config import load_settings
from core.conversation.reading import ReadingStyle
from core.decoding.context import Context
from core.decoding.decoder import Round
from core.decoding.drafters import Drafter, NgramDrafter
from core.decoding.ngrams import NgramIndex
from core.decoding.randomness import Randomness
from core.decoding.sampling import Sampling
from core.decoding.verify import Draft
from core.documents import read_document
from core.engine import Done, Engine
from core.events import Stats
from core.hardware.probe import probe
from core.model.store import catalogue
from core.model.store.embedded import ensure_embedded
from core.paths import data_dir
from core.planning.planner import make_plan
from core.request import Params
from core.text.prompt import build_prompt
from core.text.tokenizer import Tokenizer

LEVELS = ("n-gram", "draft", "both")
# about the part of a book that the embedded model summarises in one go
PASSAGE_TOKENS = 1200
# a 68M draft of a 7B model: TriForce, https://arxiv.org/abs/2404.11912
PUBLISHED = 0.35


class Counted:
    """A drafter that counts how often it is asked: once per middle pass."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.rollback, self.commit = drafter.rollback, drafter.commit
        self.asked = self.answered = self.proposed = 0

    def propose(self, committed: Sequence[int], gamma: int) -> Draft:
        """See Drafter."""
        draft = self._drafter.propose(committed, gamma)
        self.asked, self.answered, self.proposed = (
            self.asked + 1,
            self.answered + bool(draft.tokens),
            self.proposed + len(draft.tokens),
        )
        return draft


class Chosen(Composer):
    """The product's compositions with a level 0 of one's choice, which is counted."""

    level = "both"
    counted: Counted

    def _level_zero(self, index: NgramIndex, sampling: Sampling, randomness: Randomness) -> Drafter:
        drafters: dict[str, Callable[[], Drafter]] = {
            "n-gram": lambda: NgramDrafter(index),
            "both": lambda: super(Chosen, self)._level_zero(index, sampling, randomness),
            "draft": lambda: self._drafted(sampling, randomness),
        }
        Chosen.counted = Counted(drafters[Chosen.level]())
        return Chosen.counted


@dataclass(frozen=True, slots=True)
class Count:
    """Level 0 over some answers. `passes`: middle passes; `answered`: those for which level 0 proposed
    something.
    """

    task: str
    temperature: float
    level: str
    accepted: int
    evaluated: int
    passes: int
    answered: int
    proposed: int
    tokens: int
    distinct_4grams: float

    @property
    def rate(self) -> float | None:
        """Accepted over evaluated."""
        return self.accepted / self.evaluated if self.evaluated else None

    @property
    def tokens_per_pass(self) -> float:
        """What one middle pass yields: its own token and the accepted ones before it."""
        return 1 + self.accepted / self.passes if self.passes else 1.0


@dataclass(frozen=True, slots=True)
class Time:
    """One answer behind a long context; milliseconds per token. `slowdown`: see Timed."""

    context: int
    temperature: float
    level: str  # of LEVELS, or "plain"
    middle_gamma: int
    tbt_mean_ms: float
    acceptance_draft: float | None
    tokens_per_round: float
    distinct_4grams: float
    slowdown: float


def main() -> int:
    """Runs what the arguments ask for."""
    options = _arguments()
    folder = ensure_embedded()
    tokenizer = Tokenizer.load(folder)
    texts = [_text_ids(book, tokenizer) for book in options.books]
    counts = [] if options.skip == "acceptance" else list(_counts(folder, tokenizer, texts, options))
    times = [] if options.skip == "times" else list(_times(folder, texts, options))
    details = {
        "counts": [asdict(count) for count in counts],
        "times": [asdict(time) for time in times],
        "books": [book.name for book in options.books],
        "published_acceptance": PUBLISHED,
    }
    tables = [table for table in (_acceptance_table(counts), _times_table(times)) if table.rows]
    if options.save:
        save_result(options.save, tables, details)
    print(json.dumps(details))
    return 0


def _text_ids(book: Path, tokenizer: Tokenizer) -> list[int]:
    document = read_document(book)
    start = document.chapters[0].start if document.chapters else 0
    return tokenizer.encode(document.text[start:])


def _counts(
    folder: Path, tokenizer: Tokenizer, texts: list[list[int]], options: argparse.Namespace
) -> Iterator[Count]:
    """Every level 0 at every temperature over the same prompts."""
    style = ReadingStyle.from_record(catalogue.find(folder.name).reading)
    engine = _engine(folder, 4096, options)
    context = engine.new_context(4096)
    tasks = {"continues the book": [], "answers": []}
    for number in range(options.passages):
        text = texts[number % len(texts)]
        start = (number // len(texts) + 1) * len(text) // (options.passages // len(texts) + 2)
        passage = text[start : start + PASSAGE_TOKENS]
        tasks["continues the book"].append((passage, 1.0))
        request = tokenizer.encode(style.part_prompts[0])
        asked = build_prompt(
            tokenizer.frame(style.system), [*passage, *tokenizer.encode("\n\n")], (), request, room=4000
        )
        tasks["answers"].append((asked.ids, style.repetition_penalty))
    for task, prompts in tasks.items():
        for temperature in options.temperatures:
            counts = {level: [] for level in LEVELS}
            for seed, (ids, penalty) in enumerate(prompts):
                # one after the other over the same prompt, which is read once
                for level in LEVELS:
                    counts[level].append(
                        _count(engine, context, ids, task, temperature, penalty, level, seed, options.tokens)
                    )
            for level in LEVELS:
                yield _summed(counts[level])
                print(_summed(counts[level]), flush=True)


def _count(
    engine: Engine,
    context: Context,
    ids: list[int],
    task: str,
    temperature: float,
    penalty: float,
    level: str,
    seed: int,
    tokens: int,
) -> Count:
    answer, stats = _answer(
        engine,
        context,
        ids,
        level,
        temperature=temperature,
        repetition_penalty=penalty,
        seed=seed,
        max_new_tokens=tokens,
    )
    seen, draft = Chosen.counted, stats.acceptance_draft
    return Count(
        task,
        temperature,
        level,
        draft.accepted,
        draft.evaluated,
        seen.asked,
        seen.answered,
        seen.proposed,
        len(answer),
        distinct(answer),
    )


def _summed(counts: list[Count]) -> Count:
    numbers = ("accepted", "evaluated", "passes", "answered", "proposed", "tokens")
    sums = {name: sum(getattr(count, name) for count in counts) for name in numbers}
    return replace(
        counts[0], **sums, distinct_4grams=sum(count.distinct_4grams for count in counts) / len(counts)
    )


def _times(folder: Path, texts: list[list[int]], options: argparse.Namespace) -> Iterator[Time]:
    """Plain decoding, every level 0, plain decoding again, after each context."""
    for length in options.contexts:
        text = next((text for text in texts if len(text) > length), None)
        assert text is not None, f"no book has {length} tokens"
        engine = _engine(folder, length + options.tokens + 64, options)
        context = engine.new_context(engine.context_tokens)
        for temperature in options.temperatures:
            how = {"temperature": temperature, "seed": 1, "max_new_tokens": options.tokens}
            levels = ("plain", *LEVELS, "plain")
            found = calmest(
                [functools.partial(_answer, engine, context, text[:length], level, **how) for level in levels]
            )
            for level, one in zip(levels, found, strict=True):
                answer, stats = one.result
                time = Time(
                    length,
                    temperature,
                    level,
                    engine.plan.middle_gamma,
                    stats.tbt_mean_ms,
                    stats.acceptance_draft.rate,
                    stats.tokens_per_round,
                    distinct(answer),
                    one.slowdown,
                )
                print(time, flush=True)
                yield time
        del engine, context


def _answer(
    engine: Engine, context: Context, ids: list[int], level: str, **how: object
) -> tuple[list[int], Stats]:
    Chosen.level = level
    how["top_p"] = 0.9 if how["temperature"] else 1.0
    tokens: list[int] = []
    for event in engine.generate(
        context, ids, Params(mode="autoregressive" if level == "plain" else "triforce", **how)
    ):
        if isinstance(event, Round):
            tokens += event.tokens
        elif isinstance(event, Done):
            stats = event.stats
    return tokens, stats


def _engine(folder: Path, context_tokens: int, options: argparse.Namespace) -> Engine:
    settings = load_settings(
        None, {"context_tokens": context_tokens, "snapshot_quota_gb": 0, "draft_model": str(options.draft)}
    )
    draft = catalogue.from_folder(options.draft)
    plan = make_plan(probe(data_dir()), settings, target=catalogue.find(folder.name).shape, draft=draft.shape)
    plan = replace(plan, middle_gamma=options.middle_gamma or plan.middle_gamma)
    return build_engine(plan, settings, folder, draft_dir=options.draft, composer=Chosen)


def _acceptance_table(counts: list[Count]) -> Table:
    rows = [
        (
            count.task,
            str(count.temperature),
            count.level,
            count.rate,
            count.answered / count.passes if count.passes else None,
            count.tokens_per_pass,
            count.tokens,
            count.distinct_4grams,
            "loops" if count.distinct_4grams < LOOPS_BELOW else "varied",
        )
        for count in counts
    ]
    return Table(
        "Level 0 of SmolLM2-135M-Instruct on books that the draft was not trained on",
        (
            "The model",
            "Temperature",
            "Level 0",
            "accepted",
            "proposes in",
            "tokens per middle pass",
            "tokens",
            "distinct 4-grams",
            "text",
        ),
        tuple(rows),
        (
            f"Accepted: of the evaluated proposals, by the middle level; the paper has {PUBLISHED} for its "
            'draft. "Proposes in": share of '
            "the middle passes before which level 0 proposed something.",
        ),
    )


def _times_table(times: list[Time]) -> Table:
    rows = []
    for time in times:
        same = [
            other for other in times if (other.context, other.temperature) == (time.context, time.temperature)
        ]
        plain = [other.tbt_mean_ms for other in same if other.level == "plain"]
        lookup = next((other.tbt_mean_ms for other in same if other.level == "n-gram"), None)
        rows.append(
            (
                time.context,
                str(time.temperature),
                time.level,
                time.tbt_mean_ms,
                sum(plain) / len(plain) / time.tbt_mean_ms,
                lookup / time.tbt_mean_ms if lookup else None,
                time.acceptance_draft,
                time.distinct_4grams,
            )
        )
    return Table(
        "TriForce by its level 0: time between tokens",
        (
            "Context",
            "Temperature",
            "Level 0",
            "TBT mean, ms",
            "against plain",
            "against n-gram",
            "draft accepted",
            "distinct 4-grams",
        ),
        tuple(rows),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--books", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--draft",
        type=Path,
        default=Path(__file__).resolve().parents[2] / "assets" / "models" / "smollm2-135m-draft",
    )
    parser.add_argument(
        "--temperatures", type=lambda text: [float(part) for part in text.split(",")], default=[0.0, 0.6, 1.0]
    )
    parser.add_argument(
        "--contexts", type=lambda text: [int(part) for part in text.split(",")], default=[8000, 16000]
    )
    parser.add_argument("--passages", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--middle-gamma", type=int)
    parser.add_argument("--skip", choices=("acceptance", "times"))
    parser.add_argument("--save", help="name of the result below benchmarks/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
