"""What is done with the books on the shelf: put there, taken away, looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.desk.search import Results, search
from app.errors import in_words
from core import paths
from core.cache.disk import SnapshotFolder, Stored, folder_name
from core.documents.document import Document
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk


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
            desk.removal.withdraw(document.sha256)
        except OSError as error:
            unstored = in_words(error)
        if again:
            desk.engine.forget_book(document.sha256)
            desk.cards.forget(document.sha256)
        desk.shelf_changed()
        return unstored

    def forget(self, book_id: str) -> None:
        """Takes a book off the page with all that belongs to it; see app.desk.trash."""
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
        return search(self._desk, self.wanted)

    def open_said(self, book_id: str, conversation_id: str) -> None:
        """Goes to a conversation about any book."""
        desk = self._desk
        if book_id != desk.book_id:
            desk.select_book(book_id)
        if book_id == desk.book_id and conversation_id != desk.conversation_id:
            desk.talks.select(conversation_id)

    def open_place(self, book_id: str, offset: int, length: int) -> None:
        """Goes to a place in any book."""
        desk = self._desk
        if book_id != desk.book_id:
            desk.select_book(book_id)
        if book_id == desk.book_id:
            desk.reading.show(offset, length)

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
