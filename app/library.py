"""The shelf of books: what was read out of each file, kept as JSON under its sha256, and its cover. The files
themselves are not kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from app.notebook import Notebook
from core.documents.document import Document
from core.paths import write_whole

log = logging.getLogger(__name__)
BOOK_ID = re.compile(r"[0-9a-f]{64}")
_COVER, _NOTEBOOK = "cover.jpg", "notebook.json"


@dataclass(frozen=True, slots=True)
class BookEntry:
    """What the shelf shows of a book without opening it."""

    id: str
    title: str
    author: str
    format: str
    words: int
    chapters: int
    opened: float


class Library:
    """The books of one data folder: `<root>/<sha256>/book.json` and a small `entry.json` beside it.
    Thread-safe.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.RLock()
        # the newest few, so that switching books is instant
        self._open: dict[str, Document] = {}
        self._newest = max((entry.opened for entry in self.entries()), default=0.0)

    def entries(self) -> list[BookEntry]:
        """All books, the one opened last first. A damaged entry is made anew from the book; where that is
        damaged too, the book is skipped and logged.
        """
        found = [self._entry(folder) for folder in self._root.glob("*") if BOOK_ID.fullmatch(folder.name)]
        return sorted(filter(None, found), key=lambda entry: -entry.opened)

    def _entry(self, folder: Path) -> BookEntry | None:
        path = folder / "entry.json"
        try:
            return _checked(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, AttributeError):
            log.warning("unreadable library entry %s", path)
        try:
            entry = _entry_of(self.get(folder.name), opened=(folder / "book.json").stat().st_mtime)
        except (KeyError, OSError):
            return None
        with contextlib.suppress(OSError):
            _write(path, asdict(entry))
        return entry

    def add(self, document: Document, cover: bytes = b"") -> BookEntry:
        """Stores the book (again) and puts it first on the shelf. `cover`: a JPEG, where it has one. Raises
        OSError where the disk does not take it; `get` gives it until then.
        """
        folder = self._folder(document.sha256)
        with self._lock:
            self._remember(document)
        _write(folder / "book.json", document.to_json())
        if cover:
            write_whole(folder / _COVER, cover)
        return self._write_entry(document)

    def get(self, book_id: str) -> Document:
        """The book's text and chapters. Raises KeyError for an unknown or damaged book."""
        with self._lock:
            if book_id in self._open:
                return self._open[book_id]
            try:
                document = Document.from_json(
                    json.loads((self._folder(book_id) / "book.json").read_text(encoding="utf-8"))
                )
            except (OSError, ValueError, TypeError) as error:
                raise KeyError(book_id) from error
            self._remember(document)
            return document

    def cover(self, book_id: str) -> Path | None:
        """The JPEG of the book's own cover, if there is one. Raises KeyError for what is no book's name."""
        path = self._folder(book_id) / _COVER
        return path if path.is_file() else None

    def covered(self) -> frozenset[str]:
        """The books that have a cover of their own."""
        return frozenset(path.parent.name for path in self._root.glob(f"*/{_COVER}"))

    def touch(self, book_id: str) -> None:
        """Marks the book as opened now. A disk that does not take the mark keeps no book from being read."""
        document = self.get(book_id)
        try:
            self._write_entry(document)
        except OSError:
            log.exception("the shelf could not be written")

    def notebook(self, book_id: str) -> Notebook:
        """What the person left in the book. A damaged one is put aside, so that nothing writes over it.

        Raises KeyError for what is no book's name.
        """
        path = self._folder(book_id) / _NOTEBOOK
        try:
            return Notebook.from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Notebook()
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("unreadable notebook %s: %s", path, error)
            with contextlib.suppress(OSError):
                path.replace(path.with_suffix(".damaged.json"))
            return Notebook()

    def write_notebook(self, book_id: str, notebook: Notebook) -> None:
        """Keeps it beside the book. Raises OSError where it cannot be written."""
        _write(self._folder(book_id) / _NOTEBOOK, notebook.to_json())

    def forget(self, book_id: str) -> None:
        """Deletes everything that was stored of the book. Unknown ids are fine."""
        with self._lock:
            self._open.pop(book_id, None)
            folder = self._folder(book_id)
            if folder.is_dir():  # with what a killed app left half-written
                shutil.rmtree(folder)

    def _folder(self, book_id: str) -> Path:
        # the id comes from the browser: it must not name a path
        if not BOOK_ID.fullmatch(book_id):
            raise KeyError(book_id)
        return self._root / book_id

    def _write_entry(self, document: Document) -> BookEntry:
        self._newest = max(self._clock(), self._newest + 0.001)  # a clock may be set back
        entry = _entry_of(document, opened=self._newest)
        _write(self._folder(document.sha256) / "entry.json", asdict(entry))
        return entry

    def _remember(self, document: Document) -> None:
        self._open.pop(document.sha256, None)
        self._open[document.sha256] = document
        while len(self._open) > 3:
            self._open.pop(next(iter(self._open)))


def _entry_of(document: Document, *, opened: float) -> BookEntry:
    return BookEntry(
        id=document.sha256,
        title=document.title,
        author=document.author,
        format=document.format,
        words=document.words,
        chapters=len(document.chapters),
        opened=opened,
    )


def _checked(stored: dict) -> BookEntry:
    """The entry as it was stored, without what a newer version added. Raises TypeError for another form."""
    entry = BookEntry(**{one.name: stored[one.name] for one in fields(BookEntry) if one.name in stored})
    for one in fields(BookEntry):
        value = getattr(entry, one.name)
        if not isinstance(value, {"str": str, "int": int, "float": int | float}[one.type]):
            raise TypeError(f"{one.name} is {value!r}")
    return entry


def _write(path: Path, data: dict) -> None:
    write_whole(path, json.dumps(data, ensure_ascii=False))
