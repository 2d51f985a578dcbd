"""The chapters of the open book: which are ticked to be read alone, and the summary of each that was told.

A summary is kept with the text that it was told from and no other, so it tells nothing of what comes later.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from app.desk.store import Store
from app.store.library import Library, SummaryOrigin
from core.conversation.reading import book_chapters
from core.documents.document import Document, Section
from core.events import Finished
from core.evidence.occurrences import named_within
from core.request import Request

log = logging.getLogger(__name__)
Kept = TypeVar("Kept")
_HEADING = re.compile(r"^## .*$", re.MULTILINE)


OUTLINED = 8  # of each kind
SAID_OF = ("person", "place")  # core.evidence.occurrences.KINDS


class Chapters:
    """Ticks chapters of the open book, and keeps their summaries in the library."""

    def __init__(self, store: Store, library: Library) -> None:
        self._store, self._library, self._lock = store, library, threading.Lock()

    def tick(self, number: int) -> None:
        """Ticks a chapter, or no longer."""
        book = self._library.find(self._store.state.book_id)
        if book and 1 <= number <= len(book.chapters):
            self._store.update(
                lambda now: replace(
                    now, selected_chapters=tuple(sorted(set(now.selected_chapters) ^ {number}))
                )
            )

    def untick(self) -> None:
        """Ticks none any more: all are read."""
        self._store.update(selected_chapters=())

    def keep(self, ask: Request, done: Finished, model: str = "") -> None:
        """Keeps the summaries of chapters that an answer of this model holds. They can be told again: what
        the disk does not take is logged.
        """
        if ask.book is None or ask.question is not None or ask.summary_length != "chapters":
            return
        book = ask.book.up_to(ask.spoiler_limit)
        found = told_by_chapter(book, done)
        try:
            with self._lock:
                self._outline(book, found)
                kept = self._library.summaries(ask.book_id) | found
                self._library.write_summaries(ask.book_id, kept)
                origins = self._library.origins(ask.book_id) | _origins(book, done, model)
                self._library.write_origins(ask.book_id, origins)
        except (OSError, KeyError):
            log.exception("summaries of chapters could not be kept")

    def _outline(self, book: Document, told: Collection[str]) -> None:
        """Keeps whom and which places the chapters of these keys name, once for each."""
        kept = self._library.outlines(book.sha256)
        for one in book_chapters(book):
            key = _key(book, one)
            if key in told and key not in kept:
                named = named_within(book.text, one.start, one.end)
                kept[key] = {kind: [name for name, _times in named[kind][:OUTLINED]] for kind in SAID_OF}
        self._library.write_outlines(book.sha256, kept)

    def outlines(self, book: Document) -> dict[int, dict[str, list[str]]]:
        """Whom and which places a chapter names, by its number, where its summary is kept."""
        return _by_number(book, self._library.outlines(book.sha256))

    def summaries(self, book: Document) -> dict[int, str]:
        """The kept summaries of the book's chapters, by number; of a limited book those before the limit."""
        return _by_number(book, self._library.summaries(book.sha256))

    def origins(self, book: Document) -> dict[int, SummaryOrigin]:
        """Where the kept summaries come from, by the chapters' numbers, as far as that was kept."""
        return _by_number(book, self._library.origins(book.sha256))


def told_by_chapter(book: Document, done: Finished) -> dict[str, str]:
    """The chapters' summaries in an answer that tells them under headings, each under the key of the chapter
    that its sentences stand on.
    """
    told = _told_sections(book, done)
    return {_key(book, chapter): done.text[start:end].strip() for chapter, start, end in told}


def _origins(book: Document, done: Finished, model: str) -> dict[str, SummaryOrigin]:
    """Where the same summaries come from."""
    found = {}
    for chapter, start, end in _told_sections(book, done):
        begin = start + len(done.text[start:end]) - len(done.text[start:end].lstrip())
        moved = [
            replace(
                one,
                start=one.start - begin,
                end=one.end - begin,
                book_start=one.book_start - chapter.start,
                book_end=one.book_end - chapter.start,
            )
            for one in done.stands
            if begin <= one.start < end
        ]
        found[_key(book, chapter)] = SummaryOrigin(model, tuple(moved))
    return found


def _told_sections(book: Document, done: Finished) -> Iterator[tuple[Section, int, int]]:
    """The chapters that an answer tells, each with where in its text."""
    chapters = book_chapters(book)
    for start, end in _sections(done.text):
        inside = [one for one in done.stands if start <= one.start < end]
        for one in chapters:
            if inside and one.start <= inside[0].book_start < one.end:
                yield one, start, end


def _by_number(book: Document, kept: Mapping[str, Kept]) -> dict[int, Kept]:
    """What is kept under the keys of the book's chapters, by the chapters' numbers."""
    keys = enumerate((_key(book, one) for one in book_chapters(book)), 1) if kept else ()
    return {number: kept[key] for number, key in keys if key in kept}


def _sections(text: str) -> Iterator[tuple[int, int]]:
    heads = list(_HEADING.finditer(text))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        yield head.end(), after.start() if after else len(text)


def _key(book: Document, chapter: Section) -> str:
    return hashlib.sha256(book.text[chapter.start : chapter.end].encode()).hexdigest()[:32]
