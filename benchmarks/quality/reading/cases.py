"""What is put to the program: questions with their passages, whole stories, books. Files in, values out."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.documents.document import Document, Section
from core.errors import UserError

APART = 10  # every so manieth passage of SQuAD 2.0 is asked about
_SMALL = 3  # letters: shorter words tell nothing about where an answer stands
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one text. `answers` is empty where the text does not say; `gold` are the character
    ranges of `text` that hold the answer, where they are known.
    """

    kind: str  # "own" | "foreign" (of another story) | "elsewhere" (in the same story, not in this passage)
    story: str
    text: str
    question: str
    answers: tuple[str, ...]
    gold: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Story:
    """A whole story with summaries by several writers."""

    name: str
    text: str
    summaries: tuple[str, ...]


def read_stories(folder: Path, kind: str, split: str) -> list[dict[str, Any]]:
    """The stories of one file. Raises UserError when it is not there."""
    path = folder / f"{kind}-{split}.jsonl"
    if not path.is_file():
        raise UserError(f"{path} is not there. Name a folder and a split that have this file.")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def with_passage(stories: Sequence[dict[str, Any]], count: int | None, seed: int) -> list[Question]:
    """`count` questions (None: all), each with the sections that hold its answer; beside every one a question
    of another story and, where there is one, a question of the same story whose sections are far away and
    whose answer has a word that the passage has not.
    """
    dice, found = random.Random(f"{seed}/gold"), []
    for story, question in _sampled(stories, count, dice):
        numbers = set(question["sections"])
        text = _paragraphs([part for number, part in _numbered(story) if number in numbers])
        other = dice.choice([one for one in stories if one is not story])
        foreign = dice.choice(other["questions"])["question"]
        found.append(Question("own", story["story"], text, question["question"], tuple(question["answers"])))
        found.append(Question("foreign", story["story"], text, foreign, ()))
        near = {number + step for number in numbers for step in (-1, 0, 1)}
        known = set(_WORD.findall(text.lower()))
        far = [
            one["question"]
            for one in _answered(story)
            if not near & set(one["sections"]) and _unknown(one["answers"][0], known)
        ]
        if far:
            found.append(Question("elsewhere", story["story"], text, dice.choice(far), ()))
    return _in_a_row(found, seed)


def of_stories(stories: Sequence[dict[str, Any]], count: int | None, seed: int) -> list[Question]:
    """`count` questions (None: all) about whole stories, with the places of their sections."""
    found = []
    for story, question in _sampled(stories, count, random.Random(f"{seed}/story")):
        text, gold = "", []
        for number, part in _numbered(story):
            if number in question["sections"]:
                gold.append((len(text), len(text) + len(_paragraphs([part]))))
            text += _paragraphs([part]) + "\n\n"
        answers = tuple(question["answers"])
        found.append(
            Question("own", story["story"], text.strip(), question["question"], answers, tuple(gold))
        )
    return _in_a_row(found, seed)


def of_passages(folder: Path, count: int | None, seed: int) -> list[Question]:
    """`count` questions (None: all) about the tenth of SQuAD 2.0's passages that nothing is taught on; "own"
    where the passage answers, else "unsaid".
    """
    lines = (folder / "squad2.jsonl").read_text(encoding="utf-8").splitlines()
    found = [
        Question(
            "own" if asked["answers"] else "unsaid",
            f"{number}. {one['title']}",
            one["passage"],
            asked["question"],
            tuple(asked["answers"]),
        )
        for number, one in enumerate(map(json.loads, lines))
        if number % APART == 0
        for asked in one["questions"]
    ]
    dice = random.Random(f"{seed}/squad2")
    return _in_a_row(found if count is None or count >= len(found) else dice.sample(found, count), seed)


def summarised(stories: Sequence[dict[str, Any]], count: int | None) -> list[Story]:
    """The first `count` stories (None: all) with the summaries of their plots; no notices, no line ends."""
    found = []
    for story in stories[:count]:
        parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", story["text"]))
        text = "\n\n".join(
            part for part in parts if part and not part.startswith(("Produced by", "[Transcriber"))
        )
        found.append(Story(str(story["story"]), text, tuple(story["questions"][0]["summaries"])))
    return found


def book_questions(books: Path, reading: Path) -> list[dict[str, Any]]:
    """book, its path, question and keywords of facts.json and of books.jsonl; no keywords: the book does not
    say.
    """
    found = []
    for book in json.loads((books / "facts.json").read_text(encoding="utf-8"))["books"]:
        for fact in book["facts"]:
            found.append((book["file"], fact["question"], fact["answer_keywords"]))
    for line in (reading / "books.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        found.append((one["book"], one["question"], one["keywords"]))
    return [
        {"book": book, "path": books / book, "question": question, "keywords": keywords}
        for book, question, keywords in sorted(found, key=lambda one: one[0])
    ]


def document(name: str, text: str) -> Document:
    """A text as a book of one chapter."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Document(name, "", "txt", text, (Section("", 0, len(text)),), sha256=digest)


def _sampled(
    stories: Sequence[dict[str, Any]], count: int | None, dice: random.Random
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    every = [(story, question) for story in stories for question in _answered(story)]
    return every if count is None or count >= len(every) else dice.sample(every, count)


def _answered(story: dict[str, Any]) -> list[dict[str, Any]]:
    """The questions that have an answer, and sections that are there."""
    numbers = {number for number, _part in _numbered(story)}
    return [one for one in story["questions"] if one["answers"] and numbers.intersection(one["sections"])]


def _in_a_row(asked: Sequence[Question], seed: int) -> list[Question]:
    """Questions about one passage one after the other, the stories in an order of their own: whoever stops
    early has a sample, not the beginning of the alphabet.
    """
    stories = sorted({one.story for one in asked})
    random.Random(f"{seed}/order").shuffle(stories)
    place = {story: number for number, story in enumerate(stories)}
    return sorted(asked, key=lambda one: (place[one.story], one.text))


def _numbered(story: dict[str, Any]) -> list[tuple[int, str]]:
    return list(enumerate(story["sections"], story["first_section"]))


def _paragraphs(sections: Sequence[str]) -> str:
    lines = (" ".join(line.split()) for part in sections for line in part.split("\n"))
    return "\n\n".join(line for line in lines if line)


def _unknown(answer: str, known: set[str]) -> bool:
    return any(len(word) > _SMALL and word not in known for word in _WORD.findall(answer.lower()))
