"""Which files the person has had before: read, or put away. They are known by name and size, so that a file
is known wherever it lies, and without opening it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from core import paths
from core.paths import write_whole

log = logging.getLogger(__name__)


class KnownFiles:
    """`known-files.json` in the data folder: for each file the id of its book, "" where it was put away
    unread. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock, self._path = threading.Lock(), paths.data_dir() / "known-files.json"
        self._books = self._read()

    @property
    def books(self) -> Mapping[str, str]:
        """By the files' keys. A new value after every change."""
        return self._books

    def note(self, key: str, book_id: str = "") -> None:
        """Remembers a file. Raises OSError where that cannot be written; it holds until the app ends."""
        if self._books.get(key) != book_id:
            self._become({**self._books, key: book_id})

    def note_import(self, name: str, path: Path, book_id: str) -> None:
        """Remembers a file that was read, from wherever. A disk that does not take it costs that alone."""
        with contextlib.suppress(OSError):
            self.note(key_of(name, path.stat().st_size), book_id)

    def forget(self, keys: Collection[str]) -> None:
        """Offers these files as if they were new. Raises as `note`."""
        self._become({key: book for key, book in self._books.items() if key not in keys})

    def _become(self, books: dict[str, str]) -> None:
        with self._lock:
            self._books = books
            write_whole(self._path, json.dumps(books, ensure_ascii=False))

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            return {key: book for key, book in kept.items() if isinstance(book, str)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError) as error:
            log.warning("%s is not used: %s", self._path, error)
            return {}


def key_of(name: str, size: int) -> str:
    """What a file is known by."""
    return f"{size} {name}"
