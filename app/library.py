"""The shelf of books: what was read out of each file, kept as JSON under its sha256, and its cover. The files
themselves are not kept.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from core.documents.document import Document
from core.paths import write_whole

log = logging.getLogger(__name__)
BOOK_ID = re.compile(r"[0-9a-f]{64}")
_COVER = "cover.jpg"


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

    def entries(self) -> list[BookEntry]:
        """All books, the one opened last first. A damaged entry is skipped and logged."""
        found = []
        for path in self._root.glob("*/entry.json"):
            try:
                found.append(BookEntry(**json.loads(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError, TypeError):
                log.warning("unreadable library entry %s", path)
        return sorted(found, key=lambda entry: -entry.opened)

    def add(self, document: Document, cover: bytes = b"") -> BookEntry:
        """Stores the book (again) and puts it first on the shelf. `cover`: a JPEG, where it has one."""
        folder = self._folder(document.sha256)
        _write(folder / "book.json", document.to_json())
        if cover:
            write_whole(folder / _COVER, cover)
        with self._lock:
            self._remember(document)
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
        """Marks the book as opened now."""
        self._write_entry(self.get(book_id))

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
        entry = BookEntry(
            id=document.sha256,
            title=document.title,
            author=document.author,
            format=document.format,
            words=document.words,
            chapters=len(document.chapters),
            opened=self._clock(),
        )
        _write(self._folder(document.sha256) / "entry.json", asdict(entry))
        return entry

    def _remember(self, document: Document) -> None:
        self._open.pop(document.sha256, None)
        self._open[document.sha256] = document
        while len(self._open) > 3:
            self._open.pop(next(iter(self._open)))


def _write(path: Path, data: dict) -> None:
    write_whole(path, json.dumps(data, ensure_ascii=False))
