"""A summary's lines as the text that a person reads: sections under headings, in paragraphs, and where in it
each line stands. No model here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from core.conversation.chapter_names import chapter_names, range_name
from core.conversation.part_summaries import SummaryLine
from core.conversation.reading import book_chapters
from core.documents.document import Document
from core.events import SourceSpan
from core.evidence.naming import in_first_person
from core.evidence.narrator import writer
from core.text.levelled import LevelledText
from core.text.words import translated as _
from core.text.words import translated_count as _n

_PARAGRAPH_LINES = 5


@dataclass(frozen=True, slots=True)
class HeadedLines:
    """A run of lines under a heading, "" for none."""

    heading: str
    lines: tuple[SummaryLine, ...]


def by_writer(book: Document, lines: Sequence[SummaryLine]) -> list[HeadedLines]:
    """`lines` in a row; where some stand in letters or journals of people who are "I" there, and others are
    somebody else's or the book's own, each letter's under its title, what stands between under its chapters'.
    """
    chapters = book_chapters(book)
    starts, writers = [one.start for one in chapters], [writer(one.title) for one in chapters]
    groups: list[tuple[list[int], list[SummaryLine]]] = []
    for at, some in groupby(lines, key=lambda line: max(0, bisect_right(starts, line.start) - 1)):
        if groups and not writers[at] and not writers[groups[-1][0][-1]]:
            groups[-1][0].append(at)
            groups[-1][1].extend(some)
        else:
            groups.append(([at], list(some)))
    telling = {writers[inside[0]] for inside, _some in groups}
    written = [line.text for inside, some in groups if writers[inside[0]] for line in some]
    several = len(telling - {None}) > 1
    if not several and (len(telling) < 2 or not any(map(in_first_person, written))):
        return [HeadedLines("", tuple(lines))]
    names = chapter_names(book, chapters)
    titles = [
        chapters[inside[0]].title if writers[inside[0]] else range_name(names, inside) if number else ""
        for number, (inside, _some) in enumerate(groups)
    ]
    return [HeadedLines(title, tuple(some)) for title, (_inside, some) in zip(titles, groups, strict=True)]


def composed(
    sections: Sequence[HeadedLines], *, quoting: bool
) -> tuple[LevelledText, tuple[SourceSpan, ...]]:
    """`sections` as one text in paragraphs, and where in it each line stands. `quoting`: the book's own
    sentences in quotation marks, among others.
    """
    parts, at, stands = [], 0, []

    def add(part: LevelledText) -> None:
        nonlocal at
        parts.append(part)
        at += len(part.text)

    for section in sections:
        if section.heading:
            add(LevelledText.plain(("\n\n" if at else "") + f"## {section.heading}"))
        for number, line in enumerate(section.lines):
            if at:
                add(LevelledText.plain("\n\n" if number % _PARAGRAPH_LINES == 0 else " "))
            quoted = quoting and line.own
            said = LevelledText.plain(_quotation(line.text)) if quoted else line.levelled
            stands.append(SourceSpan(at, at + len(said.text), line.start, line.end, line.own))
            add(said)
    return LevelledText.joined(parts), tuple(stands)


def quoted(stands: Sequence[SourceSpan]) -> list[str]:
    """What is said of the book's own sentences among those of a model."""
    number = sum(one.quoted for one in stands)
    words = _n(
        "{quoted} of {count} sentence is the book's own, in quotation marks.",
        "{quoted} of {count} sentences are the book's own, in quotation marks.",
        len(stands),
    )
    return [words.format(quoted=number, count=len(stands))] if number else []


def _quotation(sentence: str) -> str:
    return f"“{sentence.replace('“', '‘').replace('”', '’')}”"


def stopped_in(part: int, count: int, *, kept: bool) -> str:
    """What is said of a summary that was stopped in this one of its parts. `kept`: some were told before."""
    words = _("Stopped in part {number} of {count}.")
    if kept:
        words = _("Stopped in part {number} of {count}; the parts before it are kept.")
    return words.format(number=part, count=count)


def retold_to(part: int, count: int) -> str:
    """The same of one whose parts stood there in the book's own sentences, and were being retold."""
    words = _(
        "Stopped while part {number} of {count} was retold: what was not retold stands in the book's own "
        "sentences, chosen from all of these parts."
    )
    return words.format(number=part, count=count)
