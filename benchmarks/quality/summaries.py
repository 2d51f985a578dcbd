"""What summaries of whole stories are worth: the book's own sentences, and what a model tells of them.

    python -m benchmarks.summaries --reading FOLDER [--split val] [--model NAME] [--stories 25] [--save NAME]

FOLDER holds squality-SPLIT.jsonl: stories with four summaries of the plot each. Without `--model` no model
takes part; with one it decides the `summaries` of its catalogue entry (core.conversation.reading). ROUGE-N
(Lin 2004) is the F1 of n-grams of lower-case runs of letters and digits, not stemmed, the mean over the four
summaries.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.lib.results import Table, save_result
from core.backend.cpu.threads import bound_spinning
from core.config import load_settings
from core.documents.document import Document, Section
from core.evidence.choosing import best_sentences
from core.evidence.passages import sentence_spans
from core.request import Request
from core.text.circling import distinct_share

PAGE_WORDS = 420  # as long as the references are on the average
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")
Summary = Callable[[dict[str, Any]], str]


def rouge_f1(summary: str, references: Sequence[str], n: int) -> float:
    """ROUGE-N: the F1 of n-grams, each as often as both texts have it, the mean over the references."""
    own = _grams(summary, n)
    return statistics.fmean(_f1(own, _grams(reference, n)) for reference in references)


def name_counts(summary: str, text: str) -> tuple[int, int]:
    """(names inside the summary's sentences that the text does not know, all such names)."""
    known = {word.lower() for word in re.findall(r"[^\W\d_]+", text)}
    names = _NAME.findall(summary)
    return sum(name.lower() not in known for name in names), len(names)


def summary_means(stories: Sequence[dict[str, Any]], summary: Summary) -> dict[str, Any]:
    """Means over the stories, and the texts, for a person to read."""
    rows, unknown, names = [], 0, 0
    for story in stories:
        told, references = summary(story), story["questions"][0]["summaries"]
        strange, among = name_counts(told, story["text"])
        unknown, names = unknown + strange, names + among
        rows.append(
            {
                "story": story["story"],
                "rouge1": rouge_f1(told, references, 1),
                "rouge2": rouge_f1(told, references, 2),
                "words": len(told.split()),
                "distinct_4grams": distinct_share(told.split()),
                "text": told,
            }
        )
    means = {
        name: statistics.fmean(row[name] for row in rows)
        for name in ("rouge1", "rouge2", "words", "distinct_4grams")
    }
    return {**means, "unknown_names": unknown / max(1, names), "names": names, "stories": rows}


def own_sentences(story: dict[str, Any]) -> str:
    """The summary that the book's own sentences make."""
    text = story["text"]
    spans = best_sentences(text, [(0, len(text))], PAGE_WORDS)
    return " ".join(" ".join(text[start:end].split()) for start, end in spans)


def random_sentences(story: dict[str, Any]) -> str:
    """As many words of sentences drawn at random, in order."""
    text, draw = story["text"], random.Random(story["story"])
    spans = sentence_spans(text, 0, len(text))
    draw.shuffle(spans)
    kept, words = [], 0
    while spans and words < PAGE_WORDS:
        kept.append(spans.pop())
        words += len(text[slice(*kept[-1])].split())
    return " ".join(text[start:end] for start, end in sorted(kept))


def written(stories: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What another writer's summary of the same story reaches against the other three."""
    scores = {1: [], 2: []}
    for story in stories:
        said = story["questions"][0]["summaries"]
        for number, one in enumerate(said):
            others = [*said[:number], *said[number + 1 :]]
            for n, found in scores.items():
                found.append(rouge_f1(one, others, n))
    return {"rouge1": statistics.fmean(scores[1]), "rouge2": statistics.fmean(scores[2])}


def told_by(model: str, way: str) -> Summary:
    """The summaries that a session with this model makes when its catalogue entry says `way`."""
    bound_spinning()  # read when torch loads
    from core.assembly.engines import build_engine
    from core.conversation.reading import ReadingStyle
    from core.conversation.session import Session
    from core.hardware.probe import probe
    from core.model.store.fetch import is_downloaded, model_folder
    from core.planning.offers import choose_model
    from core.text.tokenizer import Tokenizer

    settings = load_settings(None, {"model": model})
    choice = choose_model(probe(measure=False), settings, is_downloaded=is_downloaded)
    folder = model_folder(choice.entry, lambda stage, share: None)
    engine = build_engine(choice.plan, settings, folder)
    style = replace(ReadingStyle.from_record(choice.entry.reading), summaries=way)
    session = Session(engine, Tokenizer.load(folder, frame=choice.entry.frame), style)

    def summary(story: dict[str, Any]) -> str:
        text, name = story["text"], str(story["story"])
        book = Document(name, "", "txt", text, (Section("", 0, len(text)),), sha256=name)
        *_events, finished = session.ask(Request(None, book, name, params={"mode": "autoregressive"}))
        session.forget_book(name)
        print(f"{name}: {finished.notes}", flush=True)
        return finished.text

    return summary


def _grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = re.findall(r"[^\W_]+", text.lower())
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _f1(own: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> float:
    shared = (own & other).total()
    return 2 * shared / (own.total() + other.total()) if shared else 0.0


def summaries_table(results: dict[str, dict[str, Any]]) -> Table:
    """One row a way of summarising."""
    rows = [
        (
            name,
            f"{one['rouge1']:.3f}",
            f"{one['rouge2']:.3f}",
            f"{one['unknown_names']:.1%}" if "unknown_names" in one else "",
            f"{one['words']:.0f}" if "words" in one else "",
        )
        for name, one in results.items()
    ]
    return Table(
        "Whole stories summarised (SQuALITY)",
        ("summary", "ROUGE-1", "ROUGE-2", "unknown names", "words"),
        tuple(rows),
        ("F1, lower-case, not stemmed, mean over four references; a writer's against the other three.",),
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reading", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", metavar="NAME", help="a name from `models list`, or a folder")
    parser.add_argument("--ways", nargs="+", default=["supported"], choices=("supported", "told"))
    parser.add_argument("--stories", type=int, metavar="N", help="the first N of them (default: all)")
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    given = parser.parse_args()
    path = given.reading / f"squality-{given.split}.jsonl"
    stories = [json.loads(line) for line in path.open(encoding="utf-8")][: given.stories]
    results = {
        "sentences drawn at random": summary_means(stories, random_sentences),
        "the book's own sentences": summary_means(stories, own_sentences),
        "another writer's": written(stories),
    }
    for way in given.ways if given.model else ():
        results[f"{given.model}, {way}"] = summary_means(stories, told_by(given.model, way))
    shown = summaries_table(results)
    for row in (shown.columns, *shown.rows):
        print("  ".join(map(str, row)))
    if given.save:
        save_result(given.save, (shown,), details=results)
    own = results["the book's own sentences"]
    print(json.dumps({name: own[name] for name in ("rouge1", "rouge2", "unknown_names")}))


if __name__ == "__main__":
    main()
