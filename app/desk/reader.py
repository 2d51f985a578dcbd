"""What the person does in the open book: where it stands open, what is looked for, bookmarks and notes. Never
goes behind the conversation's limit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.values import Passage
from app.store.notebook import NOTE_CHARS, WORDS_CHARS, Bookmark, Notebook
from core.config import checked
from core.documents.document import Document
from core.documents.finding import Finder, Found
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.store.library import Library

WANTED_CHARS = 200
_REACH_CHARS = 40_000  # how far behind its paragraph a selected passage is looked for


class OpenBook:
    """`whole()`: the open book, None without one; `until()`: the chapter behind which nothing is shown;
    `changed` is called after every change of what is. Thread-safe.
    """

    def __init__(
        self,
        library: Library,
        *,
        whole: Callable[[], Document | None],
        until: Callable[[], int | None],
        changed: Callable[[], None],
    ) -> None:
        self._library, self._whole, self._until, self._changed = library, whole, until, changed
        self._lock = threading.RLock()
        self._finder: tuple[int, Finder] | None = None
        self.passage = Passage()
        self.notebook = Notebook()
        self.wanted, self.exact, self.found = "", False, Found()
        self.unfolded = -1  # where the chapter begins of which all places are shown

    @property
    def bookmarks(self) -> tuple[Bookmark, ...]:
        """Those that may be shown."""
        book = self._known()
        return tuple(one for one in self.notebook.bookmarks if book and one.offset < len(book.text))

    def open(self) -> None:
        """Goes to where the book was left, at first to its first chapter."""
        whole = self._whole()
        with self._lock:
            self.wanted, self.found, self._finder = "", Found(), None
            if whole is None:
                self.passage, self.notebook = Passage(), Notebook()
                return
            self.notebook = self._library.notebook(whole.sha256).settled_in(whole.text)
            first = whole.chapters[0].start if whole.chapters else 0
            self.passage = Passage(first if self.notebook.position is None else self.notebook.position)
            self._keep_inside()

    def show(self, offset: int, length: int = 0) -> None:
        """Goes to a place, and marks `length` characters there."""
        book = self._known()
        if book and 0 <= offset < max(1, len(book.text)):
            self.passage = Passage(offset, max(0, min(length, len(book.text) - offset)))
            self.stand(offset)
            self._changed()

    def stand(self, offset: int) -> None:
        """The person reads on from here; nothing is shown anew."""
        book = self._known()
        if book and 0 <= offset < len(book.text) and offset != self.notebook.position:
            self._write(book, replace(self.notebook, position=offset))

    def turn(self, step: int) -> None:
        """Goes to the beginning of a chapter: the next with 1, the one before with -1. At an end nothing
        happens.
        """
        book = self._known()
        if book is None:
            return
        at = book.sections.index(book.section_at(self.passage.offset)) + step
        if 0 <= at < len(book.sections):
            self.show(book.sections[at].start)

    def look_for(self, words: str, *, exact: bool) -> None:
        """Finds all places of the words; none: the list goes away."""
        book = self._known()
        if book is None:
            return
        words, self.unfolded = words.strip()[:WANTED_CHARS], -1
        with self._lock:
            edition = hash(book.text)
            if self._finder is None or self._finder[0] != edition:
                self._finder = edition, Finder(book.text)
            self.wanted, self.exact = words, exact
            self.found = self._finder[1].find(words, exact=exact)
        self._changed()

    def unfold(self, chapter: int) -> None:
        """Shows all places that were found in the chapter that begins there."""
        self.unfolded = chapter
        self._changed()

    def limited(self) -> None:
        """The limit has changed: what was found may lie behind it, and where the book stands open too."""
        self._keep_inside()
        self.look_for(self.wanted, exact=self.exact)

    def mark(self, paragraph: int, words: str) -> None:
        """A bookmark at the words, which stand somewhere from the `paragraph` on."""
        book = self._known()
        spans = _place(book.text, paragraph, words) if book else None
        if spans:
            start, end = spans
            kept = book.text[start : min(end, start + WORDS_CHARS)]
            self._write(book, self.notebook.with_bookmark(Bookmark(start, end - start, kept)))
            self._changed()

    def note(self, offset: int, note: str) -> None:
        """Writes a note to the bookmark at `offset`, in place of the one there."""
        book = self._known()
        for one in self.notebook.bookmarks if book else ():
            if one.offset == offset:
                noted = replace(one, note=note.strip()[:NOTE_CHARS])
                self._write(book, self.notebook.with_bookmark(noted))
                self._changed()

    def unmark(self, offset: int) -> None:
        """Takes a bookmark and its note away."""
        if book := self._known():
            self._write(book, self.notebook.without_bookmark(offset))
            self._changed()

    def instruct(self, text: str) -> None:
        """The person's own instructions for every answer about this book; empty: none. Raises UserError where
        they are too long.
        """
        if book := self._known():
            self._write(book, replace(self.notebook, instructions=checked("instructions", text)))
            self._changed()

    def noted(self) -> list[tuple[str, str, str]]:
        """The bookmarks that may be shown, for an export: (words, place, note)."""
        book = self._known()
        lost = _("no longer in the book")
        shown = self.bookmarks if book else ()
        return [(one.words, lost if one.lost else where(book, one.offset), one.note) for one in shown]

    def markdown(self) -> str:
        """Bookmarks and notes for an export; empty without any."""
        parts = [_noted(*one) for one in self.noted()]
        return "\n\n".join(["## " + _("Bookmarks and notes"), *parts]) if parts else ""

    def _known(self) -> Document | None:
        return as_known(book, self._until()) if (book := self._whole()) else None

    def _keep_inside(self) -> None:
        book = self._known()
        if book and self.passage.offset + self.passage.length > len(book.text):
            self.passage = Passage(book.section_at(max(0, len(book.text) - 1)).start)

    def _write(self, book: Document, notebook: Notebook) -> None:
        with self._lock:
            self.notebook = notebook
            self._library.write_notebook(book.sha256, notebook)


def as_known(book: Document, until: int | None) -> Document:
    """The book as far as it may be read; one that was read anew may have fewer chapters than then."""
    return book.up_to(min(until, len(book.chapters)) if until and book.chapters else None)


def where(book: Document, offset: int) -> str:
    """A place for people: chapter, and page where the book has pages."""
    title, page = book.section_at(offset).title, book.page_at(offset)
    return _("{chapter}, p. {page}").format(chapter=title, page=page) if page else title


def _noted(words: str, place: str, note: str) -> str:
    quoted = "\n".join(f"> {line}" for line in words.splitlines())
    return "\n\n".join(part for part in (quoted, f"({place})", note) if part)


def _place(text: str, start: int, words: str) -> tuple[int, int] | None:
    """Where the words stand from `start` on, whatever white space is between them; None: nowhere near."""
    wanted = words.split()[:2000]
    if not wanted or not 0 <= start < len(text):
        return None
    pattern = re.compile(r"\s+".join(map(re.escape, wanted)))
    match = pattern.search(text, start, start + _REACH_CHARS)
    return match.span() if match else None
