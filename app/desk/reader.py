"""What the person does in the open book: where it stands open, what is looked for, bookmarks and notes. Never
goes behind the conversation's limit.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import BookSearch, NamesPanel, ShownPassage
from app.store.history import History
from app.store.library import Library
from app.store.notebook import NOTE_CHARS, WORDS_CHARS, Bookmark, Notebook
from app.store.turns import StoredTurn
from core.config import checked
from core.conversation.chapter_names import section_title
from core.documents.document import Document
from core.documents.finding import Finder
from core.text.words import translated as _

_GAP = re.compile(r"\n\s*\n")
WANTED_CHARS = 200
BACK_CHARS = 1500  # who stands so near to a place is there
_REACH_CHARS = 40_000  # how far behind its paragraph a selected passage is looked for


class Reader:
    """The open book in the reader pane. Thread-safe."""

    def __init__(self, store: Store, library: Library) -> None:
        self._store, self._library = store, library
        self._lock = threading.RLock()
        self._finder: tuple[int, Finder] | None = None

    @property
    def bookmarks(self) -> tuple[Bookmark, ...]:
        """Those that may be shown."""
        return shown_bookmarks(self._known(), self._store.state.notebook)

    @property
    def all_bookmarks(self) -> tuple[Bookmark, ...]:
        """Those behind the limit as well."""
        state = self._store.state
        return shown_bookmarks(self._library.find(state.book_id), state.notebook)

    def opened(self, whole: Document | None, spoiler_limit: int | None) -> dict[str, Any]:
        """The fields of the state that show a book where it was left, at first at its first chapter."""
        nothing = {"book_search": BookSearch(), "names": NamesPanel(), "aside": None}
        if whole is None:
            return {"passage": ShownPassage(), "notebook": Notebook(), **nothing}
        notebook = self._library.notebook(whole.sha256).settled_in(whole.text).visited()
        first = whole.chapters[0].start if whole.chapters else 0
        passage = ShownPassage(first if notebook.position is None else notebook.position)
        passage = _inside(as_known(whole, spoiler_limit), passage)
        return {"passage": passage, "notebook": notebook, **nothing}

    def show(self, offset: int, length: int = 0) -> None:
        """Goes to a place, and marks `length` characters there."""
        self._go(offset, length, self._store.state.notebook.came_from)

    def look_up(self, offset: int, length: int) -> None:
        """Goes to a place that is looked up, where `length` characters are marked. Where the person read
        before stays known until they are back, from however many places.
        """
        notebook = self._store.state.notebook
        came_from = notebook.position if notebook.came_from is None and length else notebook.came_from
        self._go(offset, length, came_from)

    def back(self) -> None:
        """Goes to where the person read before places were looked up."""
        at = way_back(self._known(), self._store.state.notebook)
        if at is not None:
            self._go(at, 0, None)

    def stay(self) -> None:
        """The person reads on from the place that was looked up."""
        if book := self._known():
            self._write(book, replace(self._store.state.notebook, came_from=None))

    def stand(self, offset: int) -> None:
        """The person reads on from here; nothing is shown anew."""
        book = self._known()
        if book and 0 <= offset < len(book.text):
            self._stand(book, offset, self._store.state.notebook.came_from)

    def _go(self, offset: int, length: int, came_from: int | None) -> None:
        book = self._known()
        if book and 0 <= offset < max(1, len(book.text)):
            length = max(0, min(length, len(book.text) - offset))
            self._store.update(passage=ShownPassage(offset, length))  # also where it cannot be kept
            self._stand(book, offset, came_from)

    def _stand(self, book: Document, offset: int, came_from: int | None) -> None:
        if came_from is not None and abs(offset - came_from) < BACK_CHARS:
            came_from = None
        now = replace(self._store.state.notebook, position=offset, came_from=came_from)
        if now != self._store.state.notebook:
            self._write(book, now)

    def turn(self, step: int) -> None:
        """Goes to the beginning of a chapter: the next with 1, the one before with -1. At an end nothing
        happens.
        """
        book = self._known()
        if book is None:
            return
        at = book.sections.index(book.section_at(self._store.state.passage.offset)) + step
        if 0 <= at < len(book.sections):
            self.show(book.sections[at].start)

    def look_for(self, words: str, *, exact: bool) -> None:
        """Finds all places of the words; none: the list goes away."""
        if book := self._known():
            self._store.update(book_search=self._found(book, words.strip()[:WANTED_CHARS], exact))

    def unfold(self, chapter: int) -> None:
        """Shows all places that were found in the chapter that begins there."""
        self._store.update(lambda now: replace(now, book_search=replace(now.book_search, unfolded=chapter)))

    def limited(self, spoiler_limit: int | None) -> dict[str, Any]:
        """The fields of the state that keep inside of a new limit: what was found may lie behind it, and
        where the book stands open too.
        """
        now = self._store.state
        whole = self._library.find(now.book_id)
        if whole is None:
            return {}
        book, search = as_known(whole, spoiler_limit), now.book_search
        found = self._found(book, search.wanted, search.exact)
        aside = now.aside if now.aside and now.aside.end <= len(book.text) else None
        return {"passage": _inside(book, now.passage), "book_search": found, "aside": aside}

    def mark(self, paragraph: int, words: str) -> None:
        """A bookmark at the words, which stand somewhere from the `paragraph` on; at all of those it cuts."""
        book = self._known()
        spans = place_of_words(book.text, paragraph, words) if book else None
        if spans:
            start, end = _of_whole_words(book.text, *spans)
            kept = book.text[start : min(end, start + WORDS_CHARS)]
            notebook = self._store.state.notebook
            self._write(book, notebook.with_bookmark(Bookmark(start, end - start, kept)))

    def note(self, offset: int, note: str) -> None:
        """Writes a note to the bookmark at `offset`, in place of the one there."""
        book, notebook = self._known(), self._store.state.notebook
        for one in notebook.bookmarks if book else ():
            if one.offset == offset:
                noted = replace(one, note=note.strip()[:NOTE_CHARS])
                self._write(book, notebook.with_bookmark(noted))

    def bring(self, bookmarks: Sequence[Bookmark]) -> None:
        """Takes bookmarks of another computer along, wherever they stand in the book."""
        whole = self._library.find(self._store.state.book_id)
        if bookmarks and whole:
            self._write(whole, self._store.state.notebook.brought(bookmarks, whole.text))

    def unmark(self, offset: int) -> None:
        """Takes a bookmark and its note away."""
        if book := self._known():
            self._write(book, self._store.state.notebook.without_bookmark(offset))

    def instruct(self, text: str) -> None:
        """The person's own instructions for every answer about this book; empty: none. Raises UserError where
        they are too long.
        """
        if book := self._known():
            instructions = checked("instructions", text)
            self._write(book, replace(self._store.state.notebook, instructions=instructions))

    def read_as(self, mode: str) -> None:
        """How questions have this book read from now on. Raises UserError where there is no such way."""
        if book := self._known():
            self._write(book, replace(self._store.state.notebook, reading_mode=checked("reading_mode", mode)))

    def limit_chosen(self, spoiler_limit: int | None) -> None:
        """Keeps with the book how far it may be read."""
        if book := self._known():
            self._write(book, replace(self._store.state.notebook, spoiler_limit=spoiler_limit))

    def names_shown(self, end: int) -> None:
        """The person has seen who and what occurs up to `end`."""
        if book := self._known():
            self._write(book, replace(self._store.state.notebook, names_end=end))

    def noted(self, *, limited: bool = True) -> list[tuple[str, str, str]]:
        """The bookmarks that may be shown, or if not `limited` all, for an export: (words, place, note)."""
        state = self._store.state
        book = self._known() if limited else self._library.find(state.book_id)
        lost = _("no longer in the book")
        shown = shown_bookmarks(book, state.notebook)
        return [(one.words, lost if one.lost else where(book, one.offset), one.note) for one in shown]

    def _known(self) -> Document | None:
        state = self._store.state
        return as_known(book, state.spoiler_limit) if (book := self._library.find(state.book_id)) else None

    def _found(self, book: Document, words: str, exact: bool) -> BookSearch:
        with self._lock:
            edition = hash(book.text)
            if self._finder is None or self._finder[0] != edition:
                self._finder = edition, Finder(book.text)
            return BookSearch(words, exact, self._finder[1].find(words, exact=exact))

    def _write(self, book: Document, notebook: Notebook) -> None:
        """Raises OSError where it cannot be written; it holds all the same, and is written with the next."""
        with self._lock:
            self._store.update(notebook=notebook)
            self._library.write_notebook(book.sha256, notebook)


def shown_bookmarks(book: Document | None, notebook: Notebook) -> tuple[Bookmark, ...]:
    """The bookmarks in what may be read of a book."""
    return tuple(one for one in notebook.bookmarks if book and one.offset < len(book.text))


def way_back(book: Document | None, notebook: Notebook) -> int | None:
    """Where in what may be read the person read before a place was looked up; None: they are there."""
    at = notebook.came_from
    return at if book and at is not None and at < len(book.text) else None


def _inside(book: Document, passage: ShownPassage) -> ShownPassage:
    """The passage, or the beginning of the last section where it lies behind what may be read."""
    if passage.offset + passage.length > len(book.text):
        return ShownPassage(book.section_at(max(0, len(book.text) - 1)).start)
    return passage


def as_known(book: Document, spoiler_limit: int | None) -> Document:
    """The book as far as it may be read; one that was read anew may have fewer chapters than then."""
    return book.up_to(min(spoiler_limit, len(book.chapters)) if spoiler_limit and book.chapters else None)


def last_limit(history: History, library: Library, book_id: str) -> int | None:
    """The spoiler limit that a book opens with: its newest conversation's, else the last that was chosen."""
    talks = history.conversations(book_id)
    return talks[0].spoiler_limit if talks else library.notebook(book_id).spoiler_limit


def read_up_to(book: Document, state: AppState) -> int:
    """The end of the paragraph at which the open book stands open."""
    at = state.passage.offset if state.notebook.position is None else state.notebook.position
    gap = _GAP.search(book.text, min(at, len(book.text)))
    return gap.start() if gap else len(book.text)


def as_read(known: Document, question: StoredTurn | None) -> Document:
    """What is `known` of the book, as far as it was read for the answer to `question`, where chapters were
    chosen for that: an answer stands on nothing else.
    """
    extra = question.extra if question else {}
    chosen = tuple(extra.get("selected_chapters") or ())
    if not chosen and (span := extra.get("chapters")):
        chosen = tuple(range(span[0], span[1] + 1))
    chosen = tuple(one for one in chosen if 1 <= one <= len(known.chapters))
    return _only(known, chosen) if chosen else known


@lru_cache(maxsize=4)
def _only(book: Document, chapters: tuple[int, ...]) -> Document:
    return book.only(chapters)


def where(book: Document, offset: int) -> str:
    """A place for people: chapter, and page where the book has pages."""
    title, page = section_title(book.section_at(offset).title), book.page_at(offset)
    return _("{chapter}, p. {page}").format(chapter=title, page=page) if page else title


def place_of_words(text: str, start: int, words: str) -> tuple[int, int] | None:
    """Where the words stand from `start` on, whatever white space is between them; None: nowhere near."""
    wanted = words.split()[:2000]
    if not wanted or not 0 <= start < len(text):
        return None
    pattern = re.compile(r"\s+".join(map(re.escape, wanted)))
    match = pattern.search(text, start, start + _REACH_CHARS)
    return match.span() if match else None


def _of_whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """A span up to the ends of the words that it cuts, in scripts with capitals: others have no space between
    words, or need not.
    """
    while start > 0 and _cased(text[start - 1]) and _cased(text[start]):
        start -= 1
    while end < len(text) and _cased(text[end - 1]) and _cased(text[end]):
        end += 1
    return start, end


def _cased(letter: str) -> bool:
    return letter.lower() != letter.upper()
