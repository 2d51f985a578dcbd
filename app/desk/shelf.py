"""The books on the shelf: put there, and what is kept of each on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.desk.books import OpenBooks
from app.desk.store import Store
from app.desk.trash import Trash
from app.errors import in_words
from app.store.library import Library
from app.store.making_room import with_room
from core import paths
from core.cache.disk import SnapshotFolder, StoredBook, folder_name
from core.documents.document import Document
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

PREFILLED = 0.9  # of a book's tokens on disk: the rest is read in seconds


class Shelf:
    """Puts books into the library."""

    def __init__(
        self, store: Store, library: Library, *, engine: Runtime, books: OpenBooks, trash: Trash
    ) -> None:
        self._store, self._library = store, library
        self._engine, self._books, self._trash = engine, books, trash

    def put(self, document: Document, *, cover: bytes, again: bool, several: bool = False) -> None:
        """Puts the book on the shelf, and on the desk unless an answer is being written there. `cover`: a
        JPEG, or empty. `again`: its text has changed, as it has too when an older reader had read it
        otherwise. `several`: its file came together with others, of which the last one's book stays open.
        """
        document = self._library.as_named(document)
        before, working = "" if again else self.title_of(document.sha256), self._store.state.working
        again = again or self._reads_otherwise(document)
        unstored = self.keep(document, cover=cover, again=again)
        if not working:
            self._books.select(document.sha256)
        if unstored:
            words = _("“{title}” is open, but it could not be put on the shelf. {reason}")
            said = unstored if working else words.format(title=document.title, reason=unstored)
            self._store.fail(document.title, said)
        elif working or before or several:
            self._store.arrive(document.sha256, _arrived(document.title, before, again=again))

    def name(self, *, title: str = "", author: str | None = None) -> None:
        """Gives the open book this title, if it is one, or this author; "": nobody who is known."""
        book, title = self._books.current, " ".join(title.split())
        said = {"title": title} if title else {}
        if author is not None:
            said["author"] = " ".join(author.split())
        if book is not None and said:
            with_room(lambda: self._library.name(book.sha256, **said))
            self._store.tell()

    def read_otherwise(self) -> None:
        """Puts all of the open web page in the place of its article, or the article back."""
        book = self._books.current
        if book is not None and book.other_reading and not self._store.refuse_while_busy():
            self.put(book.read_otherwise(), cover=b"", again=True)

    def keep(self, document: Document, *, cover: bytes, again: bool = False) -> str:
        """Puts the book on the shelf alone. Why it could not be stored; it can be read all the same."""
        unstored, again = "", again or self._reads_otherwise(document)
        try:
            with_room(lambda: self._library.add(document, cover))
            self._trash.withdraw(document.sha256)
        except OSError as error:
            unstored = in_words(error)
        if again:
            self._engine.forget_book(document.sha256)
        self._store.tell()
        return unstored

    def title_of(self, book_id: str) -> str:
        """As the shelf has it; "" for a book that is not on it."""
        return next((one.title for one in self._library.entries() if one.id == book_id), "")

    def _reads_otherwise(self, document: Document) -> bool:
        """The shelf has the same file with another text or other chapters."""
        stored = self._library.find(document.sha256)
        return stored is not None and (stored.text, stored.sections) != (document.text, document.sections)


def _arrived(title: str, before: str, *, again: bool) -> str:
    """What came of a book's file. `before`: its title on the shelf until now; "" where it was not there."""
    if before not in ("", title):
        words = _("“{title}” is the same file as “{before}”: that book has this title now.")
        return words.format(title=title, before=before)
    if before and not again:
        return _("“{title}” is on the shelf already.").format(title=title)
    return _("“{title}” was read and stands on the shelf.").format(title=title)


@dataclass(frozen=True, slots=True)
class StoredReading:
    """What is kept of a book on disk. `prefilled`: nearly all of it need not be read again by this model."""

    bytes: int = 0
    prefilled: bool = False


def kept_of_books(library: Library, stored_as: str) -> dict[str, StoredReading]:
    """What is kept on disk of each book. `stored_as`: whose snapshots count as read, see core.engine."""
    texts = library.kept()
    snapshots = SnapshotFolder(paths.subdir("snapshots")).stored(stored_as)
    found = {}
    for entry in library.entries():
        stored = snapshots.get(folder_name(entry.id), StoredBook())
        prefilled = bool(entry.tokens) and stored.tokens >= PREFILLED * entry.tokens
        found[entry.id] = StoredReading(texts.get(entry.id, 0) + stored.bytes, prefilled)
    return found
