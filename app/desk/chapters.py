"""The chapters of the open book: which are ticked to be read alone, and the summary of each that was told.

A summary is kept with the text that it was told from and no other, so it tells nothing of what comes later.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.reader import as_known
from app.render.export import summaries_as
from core.ask import Ask
from core.conversation.reading import book_chapters
from core.documents.document import Document, Section
from core.errors import UserError
from core.events import Finished
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

log = logging.getLogger(__name__)
_HEADING = re.compile(r"^## .*$", re.MULTILINE)


class Chapters:
    """Acts on a desk. `ticked`: numbers of chapters (1-based), in order; none: all are read. `version` rises
    with every summary that is kept.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk, self._lock = desk, threading.Lock()
        self.ticked: tuple[int, ...] = ()
        self.version = 0

    def tick(self, number: int) -> None:
        """Ticks a chapter, or no longer; 0: none is ticked any more."""
        count = len(self._desk.book.chapters) if self._desk.book else 0
        if number == 0:
            self.ticked = ()
        elif number <= count:
            self.ticked = tuple(sorted(set(self.ticked) ^ {number}))
        self._desk.change()

    def summarize(self, wish: Ask, numbers: Iterable[int]) -> None:
        """Has each of these chapters told, from its own text alone. Those that the book has not, or not
        before its limit, are passed over.
        """
        count = self._desk.until or (len(self._desk.book.chapters) if self._desk.book else 0)
        chosen = tuple(sorted({one for one in numbers if 1 <= one <= max(1, count)}))
        if not chosen:
            return
        in_a_row = chosen[-1] - chosen[0] == len(chosen) - 1
        span, ticked = ((chosen[0], chosen[-1]), ()) if in_a_row else (None, chosen)
        self._desk.summarize(replace(wish, chapters=span, ticked=ticked, summary_length="chapters"))

    def keep(self, ask: Ask, done: Finished) -> None:
        """Keeps the summaries of chapters that an answer holds. They can be told again: what the disk does
        not take is logged.
        """
        if ask.book is None or ask.question is not None or ask.summary_length != "chapters":
            return
        found = told_by_chapter(ask.book.up_to(ask.until), done)
        try:
            with self._lock:
                kept = self._desk.library.summaries(ask.book_id) | found
                self._desk.library.write_summaries(ask.book_id, kept)
        except (OSError, KeyError):
            log.exception("summaries of chapters could not be kept")
        self.version += 1

    def summaries(self, book: Document) -> dict[int, str]:
        """The kept summaries of the book's chapters, by number; of a limited book those before the limit."""
        kept = self._desk.library.summaries(book.sha256)
        keys = enumerate((_key(book, one) for one in book_chapters(book)), 1) if kept else ()
        return {number: kept[key] for number, key in keys if key in kept}

    def export(self, form: str) -> tuple[str, str]:
        """All kept summaries of the open book as (file name, content); `form`: md, html or json. None that
        lies behind the conversation's limit. Raises UserError where there is none that can be read.
        """
        whole = self._desk.book
        book = as_known(whole, self._desk.until) if whole else None
        chapters = book_chapters(book) if book else ()
        told = sorted(self.summaries(book).items()) if book else []
        if not told:
            words = _("No summary of this book can be read. See that the data folder is there, then retry.")
            raise UserError(words)
        titled = [(chapters[number - 1].title, text) for number, text in told]
        name = _("{title}, summaries").format(title=book.title[:80] if book else "")
        return f"{name}.{form}", summaries_as(form, book, titled)


def told_by_chapter(book: Document, done: Finished) -> dict[str, str]:
    """The chapters' summaries in an answer that tells them under headings, each under the key of the chapter
    that its sentences stand on.
    """
    chapters, found = book_chapters(book), {}
    for start, end in _sections(done.text):
        inside = [one for one in done.stands if start <= one.start < end]
        for one in chapters:
            if inside and one.start <= inside[0].book_start < one.end:
                found[_key(book, one)] = done.text[start:end].strip()
    return found


def _sections(text: str) -> Iterator[tuple[int, int]]:
    heads = list(_HEADING.finditer(text))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        yield head.end(), after.start() if after else len(text)


def _key(book: Document, chapter: Section) -> str:
    return hashlib.sha256(book.text[chapter.start : chapter.end].encode()).hexdigest()[:32]
