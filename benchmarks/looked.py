"""What it is worth to ask where the model looked, and what it costs.

    python -m benchmarks.looked --reading FOLDER [--split val] [--stories 10] [--questions 10] [--save looked]
    python -m benchmarks.looked --cost [--save looked-cost]

The first reads whole stories of FairytaleQA (FOLDER/fairytaleqa-SPLIT.jsonl) with the embedded model and
asks their questions: the right section first and among three, and the right passage as shipped, by words, by
attention and by both. Stories are taken at even distances, questions likewise. The second times answers with
and without, in turns in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from core.backend.cpu.threads import bound_spinning

bound_spinning()

from benchmarks.embedded import plan_for  # noqa: E402 (after the thread setting, read when torch loads)
from benchmarks.store import Table, save  # noqa: E402
from core.ask import Params  # noqa: E402
from core.assembly.engines import build_engine  # noqa: E402
from core.cache.query_recorder import Head, Looking  # noqa: E402
from core.conversation.answering import answer  # noqa: E402
from core.conversation.asking import asked_of_text  # noqa: E402
from core.conversation.attention_tracker import Looker, Stretches, stretches  # noqa: E402
from core.conversation.reading import ReadingStyle  # noqa: E402
from core.decoding.context import Context  # noqa: E402
from core.documents.document import Document, Section  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.events import Delta, Looked  # noqa: E402
from core.evidence.attention_evidence import combined  # noqa: E402
from core.evidence.passages import Passage, passages  # noqa: E402
from core.model.store import catalogue  # noqa: E402
from core.model.store.embedded import ensure_embedded  # noqa: E402
from core.text.ranking import Ranking, terms  # noqa: E402
from core.text.tokenizer import Tokenizer  # noqa: E402

CONTEXTS = (4096, 16384)
ANSWER_TOKENS, PAIRS, SENTENCE_TOKENS = 96, 5, 20
_READ = 1024  # tokens that are read for a context of any length; the rest are copies of their rows
SIGNALS = ("words", "attention", "both")


class Reader:
    """The embedded model with its heads."""

    def __init__(self, context_tokens: int) -> None:
        folder = ensure_embedded()
        plan, settings = plan_for(folder, context_tokens)
        entry = catalogue.find(catalogue.EMBEDDED)
        self.engine: Engine = build_engine(plan, settings, folder)
        self.style = ReadingStyle.from_record(entry.reading)
        self.tokenizer = Tokenizer.load(folder, frame=entry.frame)
        self.frame = self.tokenizer.frame(self.style.system)
        self.heads = tuple(Head(*one) for one in entry.heads)

    def looking(self) -> Looking:
        """A new one."""
        config = self.engine.model.config
        return Looking(self.heads, group=config.heads // config.kv_heads)

    def looks(
        self, text: str, cuts: Sequence[Sequence[Passage]], questions: Sequence[str]
    ) -> Iterator[list[dict[int, float]]]:
        """For each question, and each way to cut the text, the share of what was looked at by place."""
        document, count = _document(text), self.tokenizer.count
        read = self.tokenizer.encode(text + "\n\n")
        places = [stretches(document, cut, 0, len(text), len(read), count) for cut in cuts]
        ids = [*self.frame.opening, *read]
        context = self.engine.new_context(len(ids) + 200)
        for question in questions:
            prompt = asked_of_text(self.style, question)
            before = prompt.partition(question.strip())[0]
            asked = self.tokenizer.encode(prompt)
            first, last = len(ids) + count(before), len(ids) + count(before + question.strip())
            context.looking = self.looking()
            context.looking.begin(first)
            for _ in self.engine.generate(context, [*ids, *asked, *self.frame.ask], _plain(1)):
                pass
            yield [self._shares(context, place, range(first, last)) for place in places]

    def _shares(self, context: Context, place: Stretches, tokens: range) -> dict[int, float]:
        borders = [len(self.frame.opening) + at for at in place.borders]
        masses = context.looking.masses(context.cache, tokens, borders)
        totals = [sum(one) for one in masses]
        return {
            at: sum(mass[at] / total for mass, total in zip(masses, totals, strict=True)) / len(masses)
            for at in range(len(place.starts))
        }


@dataclass(slots=True)
class Tally:
    """How often the right one was first, and among three."""

    asked: int = 0
    first: int = 0
    three: int = 0

    def add(self, scores: Sequence[float], right: set[int]) -> None:
        """One question."""
        best = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:3]
        self.asked += 1
        self.first += bool(right & set(best[:1]))
        self.three += bool(right & set(best))


def found(reader: Reader, stories: Sequence[dict[str, Any]], most: int) -> dict[tuple[str, str], Tally]:
    """By unit ("section", "passage") and signal."""
    tallies = {(unit, signal): Tally() for unit in ("section", "passage") for signal in SIGNALS}
    for number, story in enumerate(stories):
        text, cuts, owners = _units(story)
        ranked = [Ranking([terms(text[one.start : one.end]) for one in cut]) for cut in cuts]
        questions = story["questions"][:: max(1, len(story["questions"]) // most)][:most]
        looks = reader.looks(text, cuts, [one["question"] for one in questions])
        for question, shares in zip(questions, looks, strict=True):
            gold = {section - story["first_section"] for section in question["sections"]}
            for unit, cut, ranking, share in zip(("section", "passage"), owners, ranked, shares, strict=True):
                right = {at for at, sections in enumerate(cut) if sections & gold}
                words = ranking.scores(question["question"])
                by_looks = [share.get(at, 0.0) for at in range(len(words))]
                for signal, scores in zip(SIGNALS, (words, by_looks, combined(words, share)), strict=True):
                    tallies[unit, signal].add(scores, right)
        print(f"{number + 1} of {len(stories)} stories", flush=True)
    return tallies


def _units(story: dict[str, Any]) -> tuple[str, list[Sequence[Passage]], list[list[set[int]]]]:
    """A story's text; its sections and its passages; the sections that each of them has a part of."""
    text, at, sections = "\n\n".join(story["sections"]), 0, []
    for section in story["sections"]:
        sections.append(Passage(at, at + len(section), "", None))
        at += len(section) + 2
    cuts: list[Sequence[Passage]] = [sections, passages(_document(text))]
    owners = [
        [{n for n, own in enumerate(sections) if own.start < one.end and own.end > one.start} for one in cut]
        for cut in cuts
    ]
    return text, cuts, owners


def _document(text: str) -> Document:
    return Document("", "", "txt", text, (Section("", 0, len(text)),))


def _plain(tokens: int) -> Params:
    return Params(max_new_tokens=tokens, temperature=0.0, mode="autoregressive")


class Steady(Looker):
    """Sentences end every SENTENCE_TOKENS tokens, whatever is written. `seconds` went into their looks."""

    seconds, looks = 0.0, 0

    def look(self, text: str, ends: Sequence[int], *, whole: bool = False) -> Iterator[Looked]:
        """See Looker."""
        while (self.looks + 1) * SENTENCE_TOKENS <= len(ends):
            started = time.perf_counter()
            first = self._prompt_tokens - 1 + self.looks * SENTENCE_TOKENS
            yield from self._event(self.looks, range(first, first + SENTENCE_TOKENS))
            self.seconds += time.perf_counter() - started
            self.looks += 1


def cost(context_tokens: int, mode: str) -> dict[str, float]:
    """Milliseconds a token without and with, medians of PAIRS in turns, and of one sentence's look."""
    reader = Reader(context_tokens + 512)
    ids = _filled_ids(reader, context_tokens)
    context = _filled(reader, ids, context_tokens)
    taken: dict[bool, list[float]] = {False: [], True: []}
    looks = []
    for turn in range(2 * PAIRS):
        watched = bool(turn % 2) != bool(turn // 2 % 2)  # without, with, with, without ...
        steady = _steady(reader, context, ids) if watched else None
        context.looking = context.looking if watched else None
        taken[watched].append(_answer(reader, context, ids, mode, steady))
        if steady:
            looks.append(1e3 * steady.seconds / max(1, steady.looks))
    without, with_it = median(taken[False]), median(taken[True])
    return {"without_ms": without, "with_ms": with_it, "look_ms": median(looks)}


def _steady(reader: Reader, context: Context, ids: list[int]) -> Steady:
    """Passages of 400 tokens."""
    borders = tuple(range(0, len(ids) - 64, 400))
    context.looking = reader.looking()
    context.looking.begin(len(ids) - 8)
    question = range(len(ids) - 8, len(ids))
    places = Stretches(borders[:-1], borders)
    return Steady(context, places, text_start=8, question=question, prompt_tokens=len(ids))


def _answer(reader: Reader, context: Context, ids: list[int], mode: str, steady: Steady | None) -> float:
    """Milliseconds a token behind the first round, looks among them."""
    context.keep_prefix_of(ids[:-8])
    events = answer(
        reader.engine,
        context,
        ids,
        Params(max_new_tokens=ANSWER_TOKENS, temperature=0.0, mode=mode),
        decode=reader.tokenizer.decode,
        should_stop=lambda: False,
        looker=steady,
    )
    times = [
        (time.perf_counter(), event.stats.new_tokens if isinstance(event, Delta) else 0)
        for event in events
        if isinstance(event, (Delta, Looked))
    ]
    started, first = times[0]
    return 1e3 * (times[-1][0] - started) / max(1, max(tokens for _, tokens in times) - first)


def _filled_ids(reader: Reader, context_tokens: int) -> list[int]:
    sample = Path(__file__).resolve().parent.parent / "assets" / "samples" / "the-light-on-the-holm.md"
    ids = reader.tokenizer.encode(sample.read_text(encoding="utf-8"))
    return (ids * (context_tokens // len(ids) + 1))[:context_tokens]


def _filled(reader: Reader, ids: list[int], context_tokens: int) -> Context:
    """A context that holds them: what was not read is copies of rows, which take as long to look at."""
    context = reader.engine.new_context(context_tokens + ANSWER_TOKENS + 64)
    for _ in reader.engine.generate(context, ids[: _READ + 1], _plain(1)):
        pass
    cache = context.cache
    while cache.length < context_tokens - 9:
        rows = min(_READ, context_tokens - 9 - cache.length)
        for layer in range(cache.shape.layers):
            cache.write(layer, cache.length, *cache.rows(layer, 0, rows))
        cache.advance(rows)
        cache.commit(cache.length)
    context.hold(ids)
    return context


def tables_found(tallies: dict[tuple[str, str], Tally], stories: int) -> Table:
    """One row a unit and signal."""
    rows = [
        (unit, signal, one.asked, f"{one.first / one.asked:.3f}", f"{one.three / one.asked:.3f}")
        for (unit, signal), one in tallies.items()
    ]
    note = (
        f"FairytaleQA, {stories} whole stories read by the embedded model; questions asked after the story."
    )
    columns = ("Unit", "By", "questions", "right one first", "among three")
    return Table("Passages found by words and by where the model looked", columns, tuple(rows), (note,))


def table_cost(found: dict[tuple[int, str], dict[str, float]]) -> Table:
    """One row a context and mode. The share is of the time of the same answers, so other work on the machine
    touches both.
    """
    rows = [
        (
            f"{tokens:,}",
            mode,
            f"{one['without_ms']:.0f}",
            f"{one['with_ms']:.0f}",
            f"{one['look_ms']:.1f}",
            f"{one['look_ms'] / SENTENCE_TOKENS / one['with_ms']:.1%}",
        )
        for (tokens, mode), one in found.items()
    ]
    columns = (
        "Tokens before",
        "Mode",
        "without, ms a token",
        "with",
        "one sentence's look, ms",
        "share of time",
    )
    note = (
        f"A sentence ends every {SENTENCE_TOKENS} tokens; medians of {PAIRS} answers each way, in turns. "
        "Where the two times differ by more than the share, the machine had other work."
    )
    return Table("What it costs to ask where the model looked", columns, tuple(rows), (note,))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reading", type=Path, metavar="FOLDER")
    parser.add_argument("--split", default="val")
    parser.add_argument("--stories", type=int, default=10)
    parser.add_argument("--questions", type=int, default=10, help="of each story")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    given = parser.parse_args()
    if given.cost:
        costs = {
            (tokens, mode): cost(tokens, mode)
            for tokens in CONTEXTS
            for mode in ("autoregressive", "triforce")
        }
        table, details = table_cost(costs), {f"{tokens} {mode}": one for (tokens, mode), one in costs.items()}
    else:
        lines = (given.reading / f"fairytaleqa-{given.split}.jsonl").read_text(encoding="utf-8").splitlines()
        stories = [json.loads(line) for line in lines]
        stories = stories[:: max(1, len(stories) // given.stories)][: given.stories]
        tallies = found(Reader(16384), stories, given.questions)
        table = tables_found(tallies, len(stories))
        details = {
            f"{unit} {signal}": {"asked": one.asked, "first": one.first, "three": one.three}
            for (unit, signal), one in tallies.items()
        }
    print(f"\n{table.title}\n" + "\n".join("  ".join(map(str, row)) for row in (table.columns, *table.rows)))
    if given.save:
        save(given.save, [table], details=details)
    print(json.dumps(details))


if __name__ == "__main__":
    main()
