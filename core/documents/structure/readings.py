"""Competing accounts of where a book's chapters begin, and which of them to believe.

The file's own contents, its headings, a printed contents list and lines that look like headings each tell the
chapters; any of them may be wrong. All are settled to parts first and judged by the same few plain measures:
no single chapter holds most of a book, none has ten words, the text is in the chapters, and no line that says
"Chapter 7" stands unnoticed inside one.
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
_LEAST_BELIEVABLE = 0.25  # below it even parts serve a reader better
_NEAR_BLOCKS = 3  # a contents entry and the heading it means


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
    readings += [
        StructureReading(to_parts(found, body), trust) for find, trust in ACCOUNTS if (found := find(body))
    ]
    scored = [
        (score(reading, body, labels), -number, reading.parts) for number, reading in enumerate(readings)
    ]
    best, _order, parts = max(scored, default=(0.0, 0, []))
    return parts if best > _LEAST_BELIEVABLE else []


def score(reading: StructureReading, body: Body, labels: list[int]) -> float:
    """How believable the account is, 0 to 1. `labels`: the blocks that say "Chapter 7" or the like."""
    ends = [*(part.start for part in reading.parts[1:]), body.last]
    sizes = [
        body.words(part.start, end)
        for part, end in zip(reading.parts, ends, strict=False)
        if part.kind == "chapter"
    ]
    if not sizes or not body.total or (len(sizes) < 2 and body.total > _SHORT_BOOK_WORDS):
        return 0.0
    read = sum(sizes)
    most = max(sizes) / read if body.total > _SHORT_BOOK_WORDS else 0.0
    covered = min(1.0, read / body.total)
    return (
        reading.trust
        * covered
        * (1 - 2 * max(0.0, most - 0.5))
        * (1 - 0.8 * _missed(reading.parts, labels))
        * (_usual_size(sizes) if body.total > _SHORT_BOOK_WORDS else 1.0)
    )


def _missed(parts: list[SectionStart], labels: list[int]) -> float:
    """The share of the labelled lines at which no part begins."""
    if not labels:
        return 0.0
    begun = {part.start + step for part in parts for step in range(-1, _NEAR_BLOCKS + 1)}
    return sum(label not in begun for label in labels) / len(labels)


def _usual_size(sizes: list[int]) -> float:
    """1 for chapters of a usual length, less the further their median is from it."""
    least, most = _USUAL_WORDS
    middle = max(1.0, median(sizes))
    return 1 / (1 + abs(math.log(middle / min(max(middle, least), most))))
