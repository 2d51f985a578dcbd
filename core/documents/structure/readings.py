"""Competing accounts of where a book's chapters begin, and which of them to believe.

The file's own contents, its headings, a printed contents list and lines that look like headings each tell the
chapters; any of them may be wrong. All are settled to parts first and judged by the same few plain measures:
no single chapter holds most of a book, none has ten words, the text is in the chapters or in what the account
sets apart as front and back matter, and no line that says "Chapter 7" stands unnoticed inside a chapter.

The file's own contents win at once where these measures find nothing to say against them: an outline was made
by somebody who knew the book, lines that look like headings are a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from core.documents.structure.blocks import ContentsEntry
from core.documents.structure.body import Body
from core.documents.structure.chapters import ACCOUNTS, labelled_lines
from core.documents.structure.parts import SectionStart, to_parts

_SHORT_BOOK_WORDS = 3000  # a shorter text may well be one piece
_USUAL_WORDS = (300, 20_000)  # of a chapter
_SHORTEST_WORDS = 15  # of a chapter in a short text: shorter ones are rows of a table
_LEAST_BELIEVABLE = 0.25  # below it even parts serve a reader better
_NEAR_BLOCKS = 3  # a contents entry and the heading it means
_MOST_OF_MATTER = 0.35  # of the book: a larger "Contents" or "Notes" is a chapter that nobody named
_SOUND = {"covered": 0.85, "most": 0.5, "missed": 0.2, "usual_size": 0.9, "chapters": 3}


@dataclass(frozen=True, slots=True)
class StructureReading:
    """One account settled to parts. `trust` below 1 lets a better founded account win a near tie."""

    parts: list[SectionStart]
    trust: float


def best_parts(marks: list[ContentsEntry], body: Body) -> list[SectionStart]:
    """The parts of the most believable account; empty when none is believable.

    `marks`: the file's own contents, which may be empty.
    """
    labels = labelled_lines(body)
    readings = [StructureReading(to_parts(marks, body), 1.0)] if marks else []
    if readings and _is_sound(_measured(readings[0].parts, body, labels)):
        return readings[0].parts
    readings += [
        StructureReading(to_parts(found, body), trust(found, body))
        for find, trust in ACCOUNTS
        if (found := find(body))
    ]
    scored = [
        (score(reading, body, labels), -number, reading.parts) for number, reading in enumerate(readings)
    ]
    best, _order, parts = max(scored, default=(0.0, 0, []))
    return parts if best > _LEAST_BELIEVABLE else []


@dataclass(frozen=True, slots=True)
class StructureMeasures:
    """`covered`, `most` (of the chapters' words in the longest), `missed` (of the labelled lines) are shares,
    `usual_size` is 1 for chapters of a usual length.
    """

    chapters: int
    covered: float
    most: float
    missed: float
    usual_size: float


def _measured(parts: list[SectionStart], body: Body, labels: list[int]) -> StructureMeasures:
    """The measures of one account. `labels`: the blocks that say "Chapter 7" or the like."""
    ends = [*(part.start for part in parts[1:]), body.last]
    sizes, matter, set_apart = [], 0, set()
    for part, end in zip(parts, ends, strict=False):
        words = body.words(part.start, end)
        if part.kind == "chapter":
            sizes.append(words)
        elif part.kind in ("front", "back") and words < _MOST_OF_MATTER * body.total:
            matter += words
            set_apart.update(range(part.start, end))
    read, long = sum(sizes), body.total > _SHORT_BOOK_WORDS
    return StructureMeasures(
        chapters=len(sizes),
        covered=min(1.0, (read + min(matter, read)) / max(1, body.total)),
        most=max(sizes, default=0) / max(1, read) if long else 0.0,
        missed=_missed(parts, [label for label in labels if label not in set_apart]),
        usual_size=_usual_size(sizes, _USUAL_WORDS[0] if long else _SHORTEST_WORDS) if sizes else 1.0,
    )


def _is_sound(found: StructureMeasures) -> bool:
    """Nothing speaks against the account."""
    return (
        found.chapters >= _SOUND["chapters"]
        and found.covered >= _SOUND["covered"]
        and found.most <= _SOUND["most"]
        and found.missed <= _SOUND["missed"]
        and found.usual_size >= _SOUND["usual_size"]
    )


def score(reading: StructureReading, body: Body, labels: list[int]) -> float:
    """How believable the account is, 0 to 1. `labels`: the blocks that say "Chapter 7" or the like."""
    found = _measured(reading.parts, body, labels)
    if not found.chapters or not body.total or (found.chapters < 2 and body.total > _SHORT_BOOK_WORDS):
        return 0.0
    return (
        reading.trust
        * found.covered
        * (1 - 2 * max(0.0, found.most - 0.5))
        * (1 - 0.8 * found.missed)
        * found.usual_size
    )


def _missed(parts: list[SectionStart], labels: list[int]) -> float:
    """The share of the labelled lines at which no part begins."""
    if not labels:
        return 0.0
    begun = {part.start + step for part in parts for step in range(-1, _NEAR_BLOCKS + 1)}
    return sum(label not in begun for label in labels) / len(labels)


def _usual_size(sizes: list[int], least: int) -> float:
    """1 for chapters of a usual length, less the further their median is from it."""
    most = _USUAL_WORDS[1]
    middle = max(1.0, median(sizes))
    return 1 / (1 + abs(math.log(middle / min(max(middle, least), most))))
