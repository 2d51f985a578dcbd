"""Who occurs in what is read of a book, and its main characters, whom a summary names. No model here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.conversation.part_summaries import SummaryLine
from core.conversation.reading import ReadingPart
from core.documents.document import Document
from core.evidence.people import Person, introducing, introduction, people
from core.text.language_detection import foreign

_LEAST_MENTIONS = 3  # of somebody who is one of the people of a book
_SAID = re.compile(r"[^“\"‘'«„].*[.…]\Z")  # by the book, not by somebody in it
_MAIN = 3  # characters that a summary names,
_MAIN_SHARE = 0.25  # each mentioned at least so often, measured by the most named one


@dataclass(frozen=True, slots=True)
class Introduction:
    """The book's own sentence that says who somebody is, and by which `names` a text may call him."""

    line: SummaryLine
    names: frozenset[str]

    def known(self, text: str) -> bool:
        """Whether a text names this person."""
        return any(re.search(rf"\b{re.escape(name)}\b", text) for name in self.names)


def occurring(book: Document, parts: Sequence[ReadingPart]) -> list[Person]:
    """The people of these parts, those named most first, by places in the book; none of a text that is not
    English.
    """
    if foreign(book.text):
        return []
    start, end = parts[0].start, parts[-1].end
    found = []
    for one in people(book.text[start:end]):
        moved = [(left + start, right + start) for left, right in one.mentions]
        inside = tuple(span for span in moved if any(part.start <= span[0] < part.end for part in parts))
        if len(inside) >= _LEAST_MENTIONS:
            found.append(replace(one, mentions=inside))
    return sorted(found, key=lambda one: -len(one.mentions))


def introductions(book: Document, parts: Sequence[ReadingPart]) -> list[Introduction]:
    """Of the main characters of these parts, each with the sentence that introduces whoever it is."""
    found = occurring(book, parts)[:_MAIN]
    main = [one for one in found if len(one.mentions) >= _MAIN_SHARE * len(found[0].mentions)]
    main = [one for one in main if introducing(book.text, one.mentions)]
    return [one for one in (_introduction(book, person) for person in main) if _SAID.match(one.line.text)]


def _introduction(book: Document, person: Person) -> Introduction:
    start, end = introduction(book.text, person.mentions)
    line = SummaryLine(" ".join(book.text[start:end].split()), start, end, own=True)
    return Introduction(line, frozenset(form.split()[-1] for form in person.forms))
