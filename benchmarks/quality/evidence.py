"""What the evidence for answers is worth: passages found for questions, marks on true and false sentences.

    python -m benchmarks.evidence --reading FOLDER [--split val] [--save evidence]

FOLDER holds fairytaleqa-SPLIT.jsonl (questions whose section is known) and squality-SPLIT.jsonl (people's
summaries). No model takes part: the figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib.results import Table, save_result
from core.documents.document import Document, Section
from core.evidence.passages import sentence_spans
from core.evidence.support import Evidence, SentenceMark
from core.text.ranking import Ranking, terms

_LEAST_WORDS = 5  # of an answer that is a statement rather than a name
_STATES = ("quoted", "agrees", "nothing")
_VERB = re.compile(r"\b(was|is|were|had|did|would|could|will)\b")


@dataclass(frozen=True, slots=True)
class EvidenceStory:
    """A text, its evidence and its characters' names."""

    text: str
    evidence: Evidence
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> EvidenceStory:
        """A story of one chapter."""
        evidence = Evidence(Document("", "", "txt", text, (Section("", 0, len(text)),)))
        small = set(re.findall(r"\b[a-z]+\b", text))
        inside = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,}\b", text))
        names = sorted(name for name, times in inside.items() if times > 1 and name.lower() not in small)
        return cls(text, evidence, tuple(names))


def found(stories: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Share of questions whose right section is first, and among three, by words."""
    first = three = asked = 0
    for story in stories:
        ranking = Ranking([terms(section) for section in story["sections"]])
        for question in story["questions"]:
            gold = {number - story["first_section"] for number in question["sections"]}
            nearest = ranking.nearest(question["question"], 3)
            asked += 1
            first += bool(gold & set(nearest[:1]))
            three += bool(gold & set(nearest))
    return {"questions": asked, "passage_at_1": first / asked, "passage_at_3": three / asked}


def mark_states(
    pairs: Iterator[tuple[EvidenceStory, EvidenceStory, str]], draw: random.Random
) -> dict[str, Counter[str]]:
    """States of marks on sentences of a story: as they are, with names swapped, denied, and held against
    another story whose names they are given.
    """
    changes: dict[str, Callable[[EvidenceStory, EvidenceStory, str], tuple[EvidenceStory, str]]] = {
        "true": lambda own, other, said: (own, said),
        "another name of the story put in": lambda own, other, said: (own, _renamed(said, own, own, draw)),
        "denied": lambda own, other, said: (own, _VERB.sub(r"\1 not", said, count=1)),
        "of another story, names put in": lambda own, other, said: (other, _renamed(said, own, other, draw)),
    }
    states: dict[str, Counter[str]] = {name: Counter() for name in changes}
    for own, other, said in pairs:
        for name, change in changes.items():
            against, changed = change(own, other, said)
            if changed != said or name in ("true", "of another story, names put in"):
                states[name].update(mark.state for mark in against.evidence.marks(changed))
    return states


def _renamed(said: str, source: EvidenceStory, target: EvidenceStory, draw: random.Random) -> str:
    """Every name of `source` replaced by some other name of `target`."""

    def other(match: re.Match[str]) -> str:
        names = [name for name in target.names if name != match.group()]
        return draw.choice(names) if match.group() in source.names and names else match.group()

    return re.sub(r"\b[A-Z][a-z]{2,}\b", other, said)


def statement_answers(
    stories: Sequence[dict[str, Any]],
) -> Iterator[tuple[EvidenceStory, EvidenceStory, str]]:
    """Answers that are statements, with their story and another."""
    made = [EvidenceStory.of("\n\n".join(story["sections"])) for story in stories]
    for number, story in enumerate(stories):
        for question in story["questions"]:
            said = question["answers"][0].strip()
            if len(said.split()) >= _LEAST_WORDS:
                yield made[number], made[(number + 3) % len(made)], said[0].upper() + said[1:]


def summaries(stories: Sequence[dict[str, Any]]) -> Iterator[tuple[EvidenceStory, EvidenceStory, str]]:
    """Sentences of people's plot summaries, with their story and another."""
    made = [EvidenceStory.of(story["text"]) for story in stories]
    for number, story in enumerate(stories):
        for summary in story["questions"][0]["summaries"]:
            for start, end in sentence_spans(summary, 0, len(summary)):
                yield made[number], made[(number + 1) % len(made)], summary[start:end]


def right_places(stories: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of the marks on answers, how many lie in a section that holds the answer."""
    right = placed = 0
    for story in stories:
        whole = EvidenceStory.of("\n\n".join(story["sections"]))
        starts, at = [], 0
        for section in story["sections"]:
            starts.append((at, at + len(section) + 2))
            at += len(section) + 2
        for question in story["questions"]:
            gold = [starts[number - story["first_section"]] for number in question["sections"]]
            said = question["answers"][0].strip()
            for mark in whole.evidence.marks(said) if len(said.split()) >= _LEAST_WORDS else ():
                placed += mark.state != "nothing"
                right += _inside(mark, gold)
    return {"marks": placed, "right": right / placed}


def _inside(mark: SentenceMark, places: Sequence[tuple[int, int]]) -> bool:
    return mark.place is not None and any(low <= mark.place[0] < high for low, high in places)


def evidence_table(title: str, states: dict[str, Counter[str]]) -> Table:
    """One row a kind of sentence: how many, and the share of each state."""
    rows = [
        (name, counts.total(), *(f"{counts[state] / max(1, counts.total()):.0%}" for state in _STATES))
        for name, counts in states.items()
    ]
    return Table(title, ("sentences", "number", *_STATES), tuple(rows))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reading", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--split", default="val")
    parser.add_argument("--save", metavar="NAME", help="keep the result as benchmarks/results/NAME.json")
    given = parser.parse_args()
    tales, plots = (
        [json.loads(line) for line in (given.reading / f"{name}-{given.split}.jsonl").open(encoding="utf-8")]
        for name in ("fairytaleqa", "squality")
    )
    by_words, places = found(tales), right_places(tales)
    tables = [
        Table(
            "Passages found by the words of a question",
            ("questions", "right one first", "among three"),
            ((by_words["questions"], f"{by_words['passage_at_1']:.2f}", f"{by_words['passage_at_3']:.2f}"),),
        ),
        evidence_table(
            "Marks on answers of five words and more (FairytaleQA)",
            mark_states(statement_answers(tales), random.Random(0)),
        ),
        evidence_table(
            "Marks on sentences of plot summaries (SQuALITY)", mark_states(summaries(plots), random.Random(0))
        ),
    ]
    for one in tables:
        print(f"\n{one.title}\n" + "\n".join("  ".join(map(str, row)) for row in (one.columns, *one.rows)))
    figures = {**by_words, **{f"places_{name}": value for name, value in places.items()}}
    if given.save:
        save_result(given.save, tables, details=figures)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
