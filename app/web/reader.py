"""The reader pane: the book's chapters and the text around one place, with the quoted passage marked; what
was found in the book; bookmarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.desk.reader import where
from app.desk.values import BookSearch, ShownPassage
from app.render.templating import render
from app.store.notebook import Bookmark
from core.documents.document import Document, Section
from core.evidence.passages import sentence_spans
from core.evidence.quotations import is_quotation, is_source
from core.text.language_detection import script, spoken_language

# what is shown at once; a page must stay light for a book without chapters
WINDOW_CHARS = 24_000
SHOWN_HITS = 20  # of a chapter; the others are one click away
AROUND_CHARS = 60  # shown of a line on each side of what was found
NEAR_CHARS = 2_000  # before it, where what is shown begins
GAP = re.compile(r"\n\s*\n")
SPACE = re.compile(r"\s+")
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph at `offset` cut at the passage; `first`: the passage begins in it; `motto`: the book quotes
    it from somebody whom it names below.
    """

    offset: int
    page: str | None
    before: str
    marked: str = ""
    after: str = ""
    first: bool = False
    motto: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A place that was found, with what stands before and behind it."""

    offset: int
    length: int
    page: str | None
    before: str
    words: str
    after: str


def reader_html(book: Document | None, passage: ShownPassage) -> str:
    """Chapter list and text."""
    if book is None:
        return render("reader_empty.html")
    section = book.section_at(passage.offset)
    start = _beginning(book.text, section.start, passage.offset - WINDOW_CHARS // 4)
    end = start + WINDOW_CHARS
    end = _beginning(book.text, start, end) if end < section.end else section.end
    before = _beginning(book.text, section.start, start - WINDOW_CHARS // 2)
    paragraphs = list(_paragraphs(book, start, end, passage))
    if start == section.start and paragraphs and _names(paragraphs[0], section.title):
        del paragraphs[0]  # it stands above the text already
    return render(
        "reader.html",
        book=book,
        section=section,
        page=book.page_at(passage.offset),
        script=script(book.text[start:end]),
        spoken=spoken_language(book.text[start:end]),
        passage=passage,
        paragraphs=paragraphs,
        earlier=before if start > section.start else None,
        later=end if end < len(book.text) else None,
    )


def _beginning(text: str, first: int, at: int) -> int:
    """Where the last paragraph shortly before `at` begins, else a sentence, else a word; at `first` or behind
    it.
    """
    near = max(first, at - NEAR_CHARS)
    if near == first:
        return first
    paragraphs = [gap.end() for gap in GAP.finditer(text, near, at)]
    sentences = [begin for begin, _end in sentence_spans(text, near, at)[1:]]  # the first is cut off itself
    words = [near + space.end() for space in SPACE.finditer(text[near:at])]
    return next((found[-1] for found in (paragraphs, sentences, words) if found), at)


def found_html(book: Document | None, search: BookSearch, *, limited: bool = False) -> str:
    """What was looked for and where it stands, chapter by chapter; empty where nothing was looked for.
    `limited`: the book was searched up to its spoiler limit.
    """
    if book is None or not search.wanted:
        return ""
    chapters = places_in_chapters(book, search.found.places, search.unfolded)
    count = search.found.count
    return render("found.html", wanted=search.wanted, count=count, chapters=chapters, limited=limited)


def places_in_chapters(
    book: Document, places: Sequence[tuple[int, int]], unfolded: int
) -> list[tuple[Section, int, list[Hit]]]:
    """Places of a book as (chapter, how many are in it, those that are shown); all of the chapter that begins
    at `unfolded`.
    """
    inside: dict[Section, list[tuple[int, int]]] = {}
    for start, end in places:
        inside.setdefault(book.section_at(start), []).append((start, end))
    chapters = []
    for section, found in inside.items():
        shown = found if section.start == unfolded else found[:SHOWN_HITS]
        chapters.append((section, len(found), [_hit(book, start, end) for start, end in shown]))
    return chapters


def marks_html(book: Document | None, bookmarks: Sequence[Bookmark]) -> str:
    """The bookmarks with their notes; empty without any."""
    if book is None or not bookmarks:
        return ""
    marks = [(one, where(book, one.offset)) for one in bookmarks]
    return render("marks.html", marks=marks)


def way_back_html(book: Document | None, offset: int | None) -> str:
    """The way back to where the person read before a place was looked up; empty where they are there."""
    if book is None or offset is None:
        return ""
    return render("way_back.html", place=where(book, offset))


def _hit(book: Document, start: int, end: int) -> Hit:
    """With the words around it on its line."""
    text = book.text
    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    left, right = max(begin, start - AROUND_CHARS), min(stop, end + AROUND_CHARS)
    if left > begin:  # at a word's border, where there are spaces
        left = text.find(" ", left, start) + 1 or left
    if right < stop:
        right = max(text.rfind(" ", end, right), end) if " " in text[end:right] else right
    return Hit(start, end - start, book.page_at(start), text[left:start], text[start:end], text[end:right])


def _names(paragraph: Paragraph, title: str) -> bool:
    """Whether it is the chapter's heading, and nothing in it is marked."""
    said = WORD.findall(paragraph.before.casefold())
    return not paragraph.marked and bool(said) and said == WORD.findall(title.casefold())


def _paragraphs(book: Document, start: int, end: int, passage: ShownPassage) -> Iterator[Paragraph]:
    """The text between at its empty lines, each paragraph without the white space around it."""
    text = book.text
    borders = [start, *(edge for gap in GAP.finditer(text, start, end) for edge in gap.span()), end]
    unmarked = True
    for left, right in zip(borders[::2], borders[1::2], strict=True):
        inner = text[left:right].strip()
        if not inner:
            continue
        left = text.index(inner, left)
        right = left + len(inner)
        begins, ends = max(left, passage.offset), min(right, passage.offset + passage.length)
        page, motto = book.page_at(left), is_quotation(text, left) or is_source(text, left, right)
        if begins >= ends:
            yield Paragraph(left, page, inner, motto=motto)
        else:
            cut = text[left:begins], text[begins:ends], text[ends:right]
            yield Paragraph(left, page, *cut, unmarked, motto)
            unmarked = False
