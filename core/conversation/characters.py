"""Who occurs in what is read of a book, where the book introduces them, and its main characters, whom a
summary names. No model here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.conversation.part_summaries import SummaryLine
from core.conversation.reading import ReadingPart, book_chapters
from core.conversation.retrieval_result import quotation
from core.conversation.supported_sentences import ENDED
from core.documents.document import Document
from core.events import Piece
from core.evidence.naming import TITLES, needs_another
from core.evidence.passages import sentence_spans
from core.evidence.people import Person, introducing, introduction, people
from core.text.language_detection import foreign
from core.text.questions import asked_who
from core.text.ranking import terms
from core.text.words import marked as N_
from core.text.words import translated_count as _n

COUNTED = N_("Counted by name in the text, without the model: namesakes may be counted as one.")
_LEAST_MENTIONS = 3  # of somebody who is one of the people of a book
_SAID = re.compile(r"[^“\"‘'«„].*[.…]\Z")  # by the book, not by somebody in it
_NUMBER = re.compile(r"(?:chapter\s+\w+|[\W\d]+|[IVXLC]+\b)[\W\d]*", re.IGNORECASE)
_NAME = re.compile(r"(?!The\b|An?\b)[A-Z][\w’'-]*[a-z]\.?(?: [A-Z][\w’'-]*[a-z]){0,3}")
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


def occurring(book: Document, parts: Sequence[ReadingPart], *, least: int = _LEAST_MENTIONS) -> list[Person]:
    """The people whom these parts name at `least` so often, those named most first, by places in the book;
    none of a text that is not English.
    """
    if foreign(book.text):
        return []
    start, end = parts[0].start, parts[-1].end
    found = []
    for one in people(book.text[start:end]):
        moved = [(left + start, right + start) for left, right in one.mentions]
        inside = tuple(span for span in moved if any(part.start <= span[0] < part.end for part in parts))
        if len(inside) >= least:
            found.append(replace(one, mentions=inside))
    return sorted(found, key=lambda one: -len(one.mentions))


def asked_for(book: Document, parts: Sequence[ReadingPart], question: str) -> Person | None:
    """The person whom a question names that asks for nothing but who it is; of several the most named. None
    where the book names no such person twice.
    """
    name = _small_words(asked_who(question) or "")
    if not name:
        return None
    called = (
        one
        for one in occurring(book, parts, least=2)
        if any(map(name.issubset, map(_small_words, one.forms)))
    )
    return next((one for one in called if introducing(book.text, one.mentions)), None)


def _small_words(name: str) -> set[str]:
    return set(re.findall(r"\w+", name.lower()))


def introduced_person(book: Document, parts: Sequence[ReadingPart], person: Person) -> tuple[Piece, ...]:
    """How often and where somebody is named, above the sentence that introduces whoever it is, if any."""
    start, end = parts[0].start, parts[-1].end
    chapters = [one for one in book_chapters(book) if one.start < end and one.end > start]
    inside = sum(any(one.start <= at < one.end for at, _end in person.mentions) for one in chapters)
    words = _n(
        "{name} is named {times} times, in {inside} of {count} chapter.",
        "{name} is named {times} times, in {inside} of {count} chapters.",
        len(chapters),
    ).format(name=person.name, times=len(person.mentions), inside=inside, count=len(chapters))
    if not introducing(book.text, person.mentions):
        return (Piece(words, ""),)
    return Piece(words, ""), Piece(" ", ""), *quotation(book, introduction(book.text, person.mentions))


def introductions(book: Document, parts: Sequence[ReadingPart]) -> list[Introduction]:
    """Of the main characters of these parts, each with the sentence that introduces whoever it is."""
    found = occurring(book, parts)[:_MAIN]
    main = [one for one in found if len(one.mentions) >= _MAIN_SHARE * len(found[0].mentions)]
    main = [one for one in main if introducing(book.text, one.mentions)]
    return [one for one in (_introduction(book, person) for person in main) if _SAID.match(one.line.text)]


def naming_its_title(
    book: Document, parts: Sequence[ReadingPart], lines: Sequence[SummaryLine]
) -> tuple[SummaryLine, ...]:
    """The `lines` that tell `parts`; where these lie in one chapter, named after somebody whom no line names,
    with its first sentence that does, and the one before that where it stands by that alone.
    """
    start, end = parts[0].start, parts[-1].end
    chapters = [one for one in book_chapters(book) if one.start < end and one.end > start]
    name = _title_name(chapters[0].title, book.text[start:end]) if len(chapters) == 1 else None
    if name is None or any(name in line.text for line in lines):
        return tuple(lines)
    found = [_own_line(book, one) for one in sentence_spans(book.text, start, end)]
    said = [line for line in found if ENDED.search(line.text) and line.text not in chapters[0].title]
    at = next((at for at, line in enumerate(said) if name in line.text and _SAID.match(line.text)), None)
    if at is None:
        return tuple(lines)
    first = at - (at > 0 and needs_another(said[at].text))
    added = () if needs_another(said[first].text) else said[first : at + 1]
    return tuple(sorted({*lines, *added}, key=lambda line: line.start))


def _title_name(title: str, text: str) -> str | None:
    """By which name a chapter's text calls whom its title names; None where that is nobody's."""
    numbered = _NUMBER.match(title)
    match = _NAME.fullmatch(title[numbered.end() if numbered else 0 :].strip(" ."))
    words = [one for one in match.group().split() if not TITLES.issuperset(terms(one))] if match else []
    small = any(re.search(rf"\b{re.escape(word.lower())}\b", text) for word in words)
    return None if small else next((word for word in words if text.count(word) > 1), None)


def _own_line(book: Document, span: tuple[int, int]) -> SummaryLine:
    return SummaryLine(" ".join(book.text[slice(*span)].split()), *span, own=True)


def _introduction(book: Document, person: Person) -> Introduction:
    line = _own_line(book, introduction(book.text, person.mentions))
    return Introduction(line, frozenset(form.split()[-1] for form in person.forms))
