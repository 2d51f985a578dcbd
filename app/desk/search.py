"""Looks through titles, the books themselves and all that was said about them: conversations with the
earlier versions of their answers, the person's own notes, kept summaries of chapters. Nothing behind a book's
limit is found.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.desk.chapters import Chapters
from app.desk.reader import as_known, last_limit, where
from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import BookPlaces, TextSearch
from app.render.markdown import without_marks
from app.store.book_entry import BookEntry
from app.store.folder_scan import FoundFile
from app.store.fulltext import FoundTurn
from app.store.history import History
from app.store.library import Library
from core.conversation.reading import book_chapters
from core.documents.document import Document
from core.documents.finding import Finder

WANTED_CHARS = 200
AROUND_CHARS = 70  # on each side of what was found
SHOWN_PLACES = 5  # of a book
SHOWN_FILES = 20


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text that was found, cut to what stands around the words. `kind`: question, answer, version, note or
    summary; `where`: of an answer its question, of a question its conversation's name, else the place in the
    book. The first three lead to the turn `number` of the conversation `talk`, the others to that place.
    """

    kind: str
    where: str
    before: str
    words: str
    after: str
    talk: str = ""
    number: int = 0
    version: int = 0
    offset: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """What was found: books by title or author, `files` of the person's folders likewise, and what was said,
    by the book it is about. `texts`: books whose text holds the words, in how many places, and the first of
    these. `withheld`: what lies behind its book's spoiler limit. `unread`: texts that are still to be looked
    through.
    """

    wanted: str = ""
    books: tuple[BookEntry, ...] = ()
    files: tuple[FoundFile, ...] = ()
    said: tuple[tuple[BookEntry, tuple[FoundText, ...]], ...] = ()
    withheld: int = 0
    texts: tuple[tuple[BookEntry, int, tuple[FoundText, ...]], ...] = ()
    unread: int = 0


class ShelfSearch:
    """Looks for words on the whole shelf; the state says for which."""

    def __init__(self, store: Store, library: Library, history: History, chapters: Chapters) -> None:
        self._store, self._library = store, library
        self._history, self._chapters = history, chapters

    def look_for(self, words: str) -> None:
        """Looks for the words in titles, authors and all that was said, and begins to look through the texts;
        none: the shelf is shown again.
        """
        wanted = words.strip()[:WANTED_CHARS]
        ids = tuple(entry.id for entry in self._library.entries()) if wanted else ()
        self._store.update(shelf_search=wanted, text_search=TextSearch(wanted, 0, len(ids)))
        if ids:
            look = partial(self._look_through, wanted, ids)
            threading.Thread(target=look, name="search", daemon=True).start()

    def results(self, wanted: str, texts: TextSearch | None = None) -> Results:
        """What holds these words now; nothing where none are wanted. `texts`: what was found in the books."""
        if not wanted:
            return Results()
        found = self._said(wanted)
        if texts is None or texts.wanted != wanted:
            return found
        held, behind = self._in_texts(texts)
        withheld = found.withheld + behind
        return replace(found, texts=held, withheld=withheld, unread=texts.total - texts.done)

    def _look_through(self, wanted: str, ids: Sequence[str]) -> None:
        """One book after another, until something else is looked for; a damaged one holds nothing."""
        for done, book_id in enumerate(ids, 1):
            book = self._library.find(book_id)
            places = Finder(book.text).find(wanted).places if book else ()
            more = (BookPlaces(book_id, places),) if places else ()

            def add(now: AppState, done: int = done, more: tuple[BookPlaces, ...] = more) -> AppState:
                if now.text_search.wanted != wanted or now.text_search.done != done - 1:
                    return now
                return replace(
                    now,
                    text_search=replace(now.text_search, done=done, found=(*now.text_search.found, *more)),
                )

            if self._store.update(add).text_search.done != done:
                return

    def _in_texts(
        self, texts: TextSearch
    ) -> tuple[tuple[tuple[BookEntry, int, tuple[FoundText, ...]], ...], int]:
        """The books that hold the words, and how many places lie behind their limits."""
        entries, held, withheld = {one.id: one for one in self._library.entries()}, [], 0
        for one in texts.found:
            whole = self._library.find(one.book_id)
            if whole is None or one.book_id not in entries:
                continue
            known = as_known(whole, self._limit(one.book_id))
            shown = [place for place in one.places if known.text[slice(*place)] == whole.text[slice(*place)]]
            withheld += len(one.places) - len(shown)
            if shown:
                first = tuple(_in_text(known, *place) for place in shown[:SHOWN_PLACES])
                held.append((entries[one.book_id], len(shown), first))
        return tuple(held), withheld

    def _said(self, wanted: str) -> Results:
        """Titles, authors, and all that was said."""
        entries, found, withheld = self._library.entries(), {}, 0
        books = tuple(one for one in entries if Finder(f"{one.title}\n{one.author}").find(wanted).count)
        turns = self._history.search(wanted)
        for entry in entries:
            limit = self._limit(entry.id)
            said = _once([one for one in turns if one.book_id == entry.id])
            shown = [
                one
                for one in said
                if limit is None or (one.spoiler_limit is not None and one.spoiler_limit <= limit)
            ]
            written, behind = self._written(entry.id, limit, wanted)
            found[entry] = (*(_heard(one, wanted) for one in shown), *written)
            withheld += len(said) - len(shown) + behind
        said = tuple((entry, heard) for entry, heard in found.items() if heard)
        return Results(wanted, books, self._files(wanted), said, withheld)

    def _files(self, wanted: str) -> tuple[FoundFile, ...]:
        """The first files of the folders whose title and author hold the words."""
        files = self._store.state.folder_books.files
        text = "\n".join(f"{one.title} {one.author}".replace("\n", " ") for one in files)
        ends = [match.start() for match in re.finditer("\n", text)]
        lines = (bisect_left(ends, start) for start, _end in Finder(text).find(wanted).places)
        return tuple(files[line] for line in list(dict.fromkeys(lines))[:SHOWN_FILES])

    def _limit(self, book_id: str) -> int | None:
        """How far the book may be read: as it is open, else as it would open."""
        state = self._store.state
        if book_id == state.book_id:
            return state.spoiler_limit
        return last_limit(self._history, self._library, book_id)

    def _written(self, book_id: str, limit: int | None, wanted: str) -> tuple[list[FoundText], int]:
        """Notes and kept summaries that hold the words, and how many lie behind the limit. The book's text is
        only needed where there are any.
        """
        noted = any(_holds(one.note, wanted) for one in self._library.notebook(book_id).bookmarks)
        told = any(_holds(text, wanted) for text in self._library.summaries(book_id).values())
        whole = self._library.find(book_id) if noted or told else None
        if whole is None:
            return [], 0  # or damaged: nothing can be shown in it
        book = as_known(whole, limit)
        every = [*self._notes(whole, wanted), *self._summaries(whole, wanted)]
        shown = [one for one in every if one.offset < len(book.text)]
        return shown, len(every) - len(shown)

    def _notes(self, book: Document, wanted: str) -> Iterator[FoundText]:
        for one in self._library.notebook(book.sha256).settled_in(book.text).bookmarks:
            if _holds(one.note, wanted):
                place = "" if one.lost else where(book, one.offset)
                around = _around(one.note, wanted)
                yield FoundText(
                    "note", place, *around, offset=one.offset, length=0 if one.lost else one.length
                )

    def _summaries(self, book: Document, wanted: str) -> Iterator[FoundText]:
        chapters = book_chapters(book)
        for number, text in sorted(self._chapters.summaries(book).items()):
            if _holds(text, wanted):
                one = chapters[number - 1]
                yield FoundText("summary", one.title, *_around(without_marks(text), wanted), offset=one.start)


def _in_text(book: Document, start: int, end: int) -> FoundText:
    """A place in the book's text, with the words around it in its section on one line."""
    section = book.section_at(start)
    left, right = max(section.start, start - AROUND_CHARS), min(section.end, end + AROUND_CHARS)
    parts = (book.text[left:start], book.text[start:end], book.text[end:right])
    before, words, after = (re.sub(r"\s+", " ", part) for part in parts)
    before = "…" + before.partition(" ")[2] if left > section.start else before.lstrip()
    after = after.rpartition(" ")[0] + "…" if right < section.end else after.rstrip()
    return FoundText("text", where(book, start), before, words, after, offset=start, length=end - start)


def _once(turns: Sequence[FoundTurn]) -> list[FoundTurn]:
    """Each text once, where it stands first: a fork holds its conversation's turns once more."""
    first: dict[tuple[str, str, int | None], FoundTurn] = {}
    for one in turns:
        first.setdefault((one.role, one.text, one.spoiler_limit), one)
    return list(first.values())


def _heard(one: FoundTurn, wanted: str) -> FoundText:
    kind = "question" if one.role == "user" else "version" if one.version else "answer"
    around = _around(one.text if kind == "question" else without_marks(one.text), wanted)
    return FoundText(
        kind, one.under, *around, talk=one.conversation_id, number=one.number, version=one.version
    )


def _holds(text: str, wanted: str) -> bool:
    """Whether all the words stand in it."""
    finder = Finder(text)
    return all(finder.find(word).count for word in wanted.split())


def _around(text: str, wanted: str) -> tuple[str, str, str]:
    """What stands before, the first of the words that stands in it, and what stands after."""
    text = " ".join(text.split())
    finder = Finder(text)
    places = (place for word in wanted.split() for place in finder.find(word).places[:1])
    start, end = next(places, (0, 0))
    left = 0 if start < AROUND_CHARS else text.find(" ", start - AROUND_CHARS, start) + 1
    right = text.rfind(" ", end, end + AROUND_CHARS) if len(text) > end + AROUND_CHARS else len(text)
    right = max(right, end)
    return "…" * (left > 0) + text[left:start], text[start:end], text[end:right] + "…" * (right < len(text))
