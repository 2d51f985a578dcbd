"""The reader pane: the book's chapters and the text around one place, with the quoted passage marked."""

from __future__ import annotations

from html import escape

from app.markup import plain_html
from app.values import Passage
from core.documents.document import Document

# what is shown at once; a page must stay light for a book without chapters
WINDOW_CHARS = 24_000


def reader_html(book: Document | None, passage: Passage) -> str:
    """Chapter list and text; the mark carries the id the page scrolls to."""
    if book is None:
        return '<div class="reader-empty"><p class="quiet">Open a book to read along.</p></div>'
    section = book.section_at(passage.offset)
    number = book.sections.index(section)
    start = max(section.start, passage.offset - WINDOW_CHARS // 4)
    end = min(section.end, start + WINDOW_CHARS)
    if start == section.start and book.text.startswith(section.title, start):
        start = min(start + len(section.title), end)  # it stands above the text already
    options = "".join(
        f'<option value="{one.start}"{" selected" if index == number else ""}>'
        f"{' ' * 3 * (one.level - 1)}{escape(one.title) or f'Section {index + 1}'}</option>"
        for index, one in enumerate(book.sections)
    )
    page = book.page_at(passage.offset)
    where = f"page {escape(page)}" if page else ""
    return (
        f'<div class="reader-head"><label>Chapter<select data-act="goto">{options}</select></label>'
        f'<span>{where}</span></div><div class="reader-text" tabindex="0" role="region" aria-label="Book '
        'text" '
        f'data-place="{passage.offset}:{passage.length}"><h3>{escape(section.title)}</h3>'
        f"{_earlier(section.start, start)}{_marked(book.text, start, end, passage)}{_later(book, end)}</div>"
    )


def _marked(text: str, start: int, end: int, passage: Passage) -> str:
    left, right = max(start, passage.offset), min(end, passage.offset + passage.length)
    if left >= right:
        return plain_html(text[start:end])
    # the mark is put in after escaping, with characters no book text can hold
    marked = f"{text[start:left]}\x02{text[left:right]}\x03{text[right:end]}".replace("\x00", "")
    html = plain_html(marked)
    before, _, rest = html.partition("\x02")
    inside, _, after = rest.partition("\x03")
    inside = inside.replace("</p><p>", "</mark></p><p><mark>")
    return f'{before}<mark id="passage">{inside}</mark>{after}'


def _earlier(section_start: int, start: int) -> str:
    if start <= section_start:
        return ""
    return _turn_to(max(section_start, start - WINDOW_CHARS // 2), "Earlier in this chapter")


def _later(book: Document, end: int) -> str:
    if end >= len(book.text):
        return ""
    return _turn_to(end, "Read on")


def _turn_to(offset: int, words: str) -> str:
    return (
        f'<button type="button" class="quiet-button" data-act="cite" data-offset="{offset}" data-length="0">'
        f"{words}</button>"
    )
