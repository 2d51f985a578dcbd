"""The reader pane: the book's chapters and the text around one place, with the quoted passage marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.templating import render
from app.values import Passage
from core.documents.document import Document

# what is shown at once; a page must stay light for a book without chapters
WINDOW_CHARS = 24_000
GAP = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph cut at the passage; `first`: the passage begins in it."""

    before: str
    marked: str = ""
    after: str = ""
    first: bool = False


def reader_html(book: Document | None, passage: Passage) -> str:
    """Chapter list and text."""
    if book is None:
        return render("reader_empty.html")
    section = book.section_at(passage.offset)
    start = max(section.start, passage.offset - WINDOW_CHARS // 4)
    end = min(section.end, start + WINDOW_CHARS)
    if start == section.start and book.text.startswith(section.title, start):
        start = min(start + len(section.title), end)  # it stands above the text already
    return render(
        "reader.html",
        sections=book.sections,
        section=section,
        page=book.page_at(passage.offset),
        passage=passage,
        paragraphs=list(_paragraphs(book.text, start, end, passage)),
        earlier=max(section.start, start - WINDOW_CHARS // 2) if start > section.start else None,
        later=end if end < len(book.text) else None,
    )


def _paragraphs(text: str, start: int, end: int, passage: Passage) -> Iterator[Paragraph]:
    """`text[start:end]` at its empty lines, each paragraph without the white space around it."""
    borders = [start, *(edge for gap in GAP.finditer(text, start, end) for edge in gap.span()), end]
    unmarked = True
    for left, right in zip(borders[::2], borders[1::2], strict=True):
        inner = text[left:right].strip()
        if not inner:
            continue
        left = text.index(inner, left)
        right = left + len(inner)
        begins, ends = max(left, passage.offset), min(right, passage.offset + passage.length)
        if begins >= ends:
            yield Paragraph(inner)
        else:
            yield Paragraph(text[left:begins], text[begins:ends], text[ends:right], unmarked)
            unmarked = False
