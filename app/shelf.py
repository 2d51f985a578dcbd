"""What is done with the books on the shelf: put there, taken away, looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.faults import in_words
from app.library import BookEntry
from app.said import Said
from core import paths
from core.cache.disk import SnapshotFolder, Stored, folder_name
from core.documents.document import Document
from core.documents.finding import Finder
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.handlers import Desk


AROUND_CHARS = 70  # of a turn on each side of what was found
WANTED_CHARS = 200
PREFILLED = 0.9  # of a book's tokens on disk: the rest is read in seconds


class Shelf:
    """Acts on a desk. `wanted`: what is looked for on the whole shelf."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.wanted = ""

    def put(self, document: Document, *, cover: bytes, again: bool) -> None:
        """Puts the book on the shelf, and on the desk unless an answer is being written there. `cover`: a
        JPEG, or empty. `again`: its text has changed, as it has too when an older reader had read it
        otherwise.
        """
        desk = self._desk
        unstored = self.keep(document, cover=cover, again=again)
        if desk.busy:
            words = _("“{title}” was read and stands on the shelf.")
            desk.say(words.format(title=document.title), "info")
        else:
            desk.select_book(document.sha256)
        if unstored:
            words = _("“{title}” is open, but it could not be put on the shelf. {reason}")
            desk.say(words.format(title=document.title, reason=unstored))

    def keep(self, document: Document, *, cover: bytes, again: bool = False) -> str:
        """Puts the book on the shelf alone. Why it could not be stored; it can be read all the same."""
        desk, unstored = self._desk, ""
        again = again or self._reads_otherwise(document)
        try:
            desk.library.add(document, cover)
        except OSError as error:
            unstored = in_words(error)
        if again:
            desk.engine.forget_book(document.sha256)
            desk.cards.forget(document.sha256)
        desk.shelf_changed()
        return unstored

    def forget(self, book_id: str) -> None:
        """Takes a book off the page with all that belongs to it; see app.removal."""
        desk = self._desk
        if desk.refuse_while_busy():
            return
        entry = next((one for one in desk.library.entries() if one.id == book_id), None)
        if entry is None:
            return
        words = _("“{title}” is deleted, with its conversations and notes.").format(title=entry.title)
        desk.removal.mark(book_id, desk.library.mark_forgotten, words)
        desk.cards.forget(book_id)
        if desk.book_id == book_id:
            desk.put_away()
        desk.shelf_changed()

    def look_for(self, words: str) -> None:
        """Looks for the words in titles, authors and all that was said; none: the shelf is shown again."""
        self.wanted = words.strip()[:WANTED_CHARS]
        self._desk.change()

    def found(self) -> Results:
        """What `look_for` finds now. Nothing that lies behind a book's limit is among it."""
        desk, wanted = self._desk, self.wanted
        if not wanted:
            return Results()
        entries = desk.library.entries()
        books = tuple(one for one in entries if Finder(f"{one.title}\n{one.author}").find(wanted).count)
        said: dict[str, list[Heard]] = {}
        withheld, limits = 0, {one.id: self._limit(one.id) for one in entries}
        for one in desk.history.search(wanted):
            if one.book_id not in limits:  # taken off the shelf
                continue
            limit = limits[one.book_id]
            if limit is None or (one.until is not None and one.until <= limit):
                said.setdefault(one.book_id, []).append(_around(one, wanted))
            else:
                withheld += 1
        turns = tuple((one, tuple(said[one.id])) for one in entries if one.id in said)
        return Results(wanted, books, turns, withheld)

    def open_said(self, book_id: str, conversation_id: str) -> None:
        """Goes to a conversation about any book."""
        desk = self._desk
        if book_id != desk.book_id:
            desk.select_book(book_id)
        if book_id == desk.book_id and conversation_id != desk.conversation_id:
            desk.select_conversation(conversation_id)

    def kept(self) -> dict[str, Kept]:
        """What is kept on disk of each book."""
        desk = self._desk
        texts = desk.library.kept()
        snapshots = SnapshotFolder(paths.subdir("snapshots")).stored(desk.engine.stored_as)
        found = {}
        for entry in desk.library.entries():
            stored = snapshots.get(folder_name(entry.id), Stored())
            prefilled = bool(entry.tokens) and stored.tokens >= PREFILLED * entry.tokens
            found[entry.id] = Kept(texts.get(entry.id, 0) + stored.bytes, prefilled)
        return found

    def _limit(self, book_id: str) -> int | None:
        """How far the book may be read: as it is open, else as it would open."""
        if book_id == self._desk.book_id:
            return self._desk.until
        talks = self._desk.history.conversations(book_id)
        return talks[0].until if talks else None

    def _reads_otherwise(self, document: Document) -> bool:
        """The shelf has the same file with another text or other chapters."""
        try:
            stored = self._desk.library.get(document.sha256)
        except KeyError:
            return False
        return (stored.text, stored.sections) != (document.text, document.sections)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a book on disk. `prefilled`: nearly all of it need not be read again by this model."""

    bytes: int = 0
    prefilled: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """A turn that was found, cut to what stands around the words."""

    said: Said
    before: str
    words: str
    after: str


@dataclass(frozen=True, slots=True)
class Results:
    """What was found: books by title or author, and turns by the book they are about. `withheld`: turns that
    lie behind their book's spoiler limit.
    """

    wanted: str = ""
    books: tuple[BookEntry, ...] = ()
    turns: tuple[tuple[BookEntry, tuple[Heard, ...]], ...] = ()
    withheld: int = 0


def _around(said: Said, wanted: str) -> Heard:
    """With the words around the first that stands in it."""
    text = " ".join(said.text.split())
    finder = Finder(text)
    places = (place for word in wanted.split() for place in finder.find(word).places[:1])
    start, end = next(places, (0, 0))
    left = 0 if start < AROUND_CHARS else text.find(" ", start - AROUND_CHARS, start) + 1
    right = text.rfind(" ", end, end + AROUND_CHARS) if len(text) > end + AROUND_CHARS else len(text)
    right = max(right, end)
    before = "…" * (left > 0) + text[left:start]
    return Heard(said, before, text[start:end], text[end:right] + "…" * (right < len(text)))
