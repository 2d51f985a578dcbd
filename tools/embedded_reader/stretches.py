"""Short texts out of books: stretches of a few passages, each for one question, that answer it or do not.

In three of four cases the stretch holds the passage that answers, where the words of the question point at
one; in the others it lies where the question's words point and holds no answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.documents.document import Document, Section
from core.evidence.passages import Passage
from core.evidence.support import Evidence

_LEAST, _MOST = 5, 8  # passages
_POINTED_AT = 12
_WITHOUT = 4  # each so manieth question is put to a stretch that does not answer it


@dataclass(frozen=True, slots=True)
class Stretch:
    """One question about `book.text[start:end]`; `keywords`: see questions.json, None if it has no answer."""

    question: str
    keywords: list[str] | None
    start: int
    end: int


def book_stretches(name: str, book: Document, questions: Sequence[dict[str, Any]]) -> Iterator[Stretch]:
    """A stretch of the book called `name` for each question; none where every one near it has the answer."""
    evidence = Evidence(book)
    passages = evidence.passages

    def holds(keywords: list[str] | None, start: int, end: int) -> bool:
        text = book.text[start:end]
        return bool(keywords) and all(re.search(word, text, re.IGNORECASE) for word in keywords)

    for number, one in enumerate(questions):
        dice, keywords = random.Random(f"{name}/{number}"), one["keywords"]
        near = [passage for passage, _score in evidence.pointed_at(one["question"])[:_POINTED_AT]]
        size = dice.randint(_LEAST, _MOST)
        answers = next((p for p in near if holds(keywords, p.start, p.end)), None)
        if answers and number % _WITHOUT != _WITHOUT - 1:
            yield Stretch(one["question"], keywords, *_around(passages, answers, size, dice))
            continue
        around = (_around(passages, passage, size, dice) for passage in near)
        without = next((place for place in around if not holds(keywords, *place)), None)
        if without:
            yield Stretch(one["question"], None, *without)


def _around(passages: Sequence[Passage], one: Passage, size: int, dice: random.Random) -> tuple[int, int]:
    """`size` passages with this one among them."""
    first = max(0, min(passages.index(one) - dice.randrange(size), len(passages) - size))
    return passages[first].start, passages[first + size - 1].end


def stretch_text(book: Document, place: tuple[int, int]) -> Document:
    """A stretch as a text of its own."""
    text = book.text[slice(*place)]
    name = f"{book.title}, {place[0]} to {place[1]}"
    return Document(name, book.author, book.format, text, (Section("", 0, len(text)),), sha256=name)
