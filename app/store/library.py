"""The shelf of books: what was read out of each file, kept as JSON under its sha256, and its cover. The files
themselves are not kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.store.book_entry import BookEntry
from app.store.notebook import Notebook
from app.store.series import SeriesFile
from core.documents.document import Document
from core.events import SourceSpan
from core.paths import write_whole
from core.text.packing import from_json, to_json_text

log = logging.getLogger(__name__)
BOOK_ID = re.compile(r"[0-9a-f]{64}")
_SUMMARIES, _PORTRAITS, _OUTLINES = "summaries.json", "portraits.json", "outlines.json"
_ORIGINS = "summary_origins.json"
_ENTRY, _COVER, _NOTEBOOK, _FORGOTTEN = "entry.json", "cover.jpg", "notebook.json", "forgotten"


@dataclass(frozen=True, slots=True)
class SummaryOrigin:
    """Of a kept summary of a chapter: the `model` that told it, and the places of its sentences, counted in
    the summary and from the chapter's beginning.
    """

    model: str = ""
    stands: tuple[SourceSpan, ...] = ()

    def stands_from(self, start: int) -> tuple[SourceSpan, ...]:
        """The places in a book where the chapter begins at `start`."""
        return tuple(
            replace(one, book_start=one.book_start + start, book_end=one.book_end + start)
            for one in self.stands
        )


class Library:
    """The books of one data folder: `<root>/<sha256>/book.json` and a small `entry.json` beside it.
    Thread-safe.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)  # and not again: where its drive is gone, no other is begun
        self._clock = clock
        self._lock = threading.RLock()
        # the newest few, so that switching books is instant
        self._open: dict[str, Document] = {}
        self._marked: dict[str, float] = {}  # when a book was taken off the shelf
        # what is known of each book, beside the folder of books: with that gone, the shelf still has them
        self._index = root.parent / f"{root.name}.json"
        self._known = _read_index(self._index)
        self.series = SeriesFile(root.parent / f"{root.name}-series.json")
        entries = self.entries()
        self._newest = max((entry.opened for entry in entries), default=0.0)
        if new := {entry.id: entry for entry in entries if entry.id not in self._known}:
            self._known |= new
            self._write_index()
        self._changes = 0  # of what the shelf shows
        self.summaries_version = 0  # rises with every change of a kept summary
        self.portraits_version = 0  # and of what is kept of who somebody is

    @property
    def shelf_version(self) -> tuple[int, int]:
        """Another one with every change of what the shelf shows, also when a book's folder is taken away."""
        try:
            return self._changes, self._root.stat().st_mtime_ns
        except OSError:
            return self._changes, 0

    def entries(self) -> list[BookEntry]:
        """All books, the one opened last first. A damaged entry is made anew from the book; where that is
        damaged too, the book is `missing`, as one whose files are gone is.
        """
        folders = [one for one in self._root.glob("*") if BOOK_ID.fullmatch(one.name)]
        gone = {one.name for one in folders if (one / _FORGOTTEN).exists()}
        found = {one.name: entry for one in folders if one.name not in gone and (entry := self._entry(one))}
        away = not self._root.parent.is_dir()
        for name in set(self._known) - set(found) - gone:
            found[name] = replace(self._known[name], missing=True, away=away)
        return sorted(found.values(), key=lambda entry: -entry.opened)

    def _entry(self, folder: Path) -> BookEntry | None:
        if stored := self._stored_entry(folder):
            there = folder.name in self._open or (folder / "book.json").is_file()
            return stored if there else replace(stored, missing=True)
        log.warning("unreadable library entry in %s", folder)
        try:
            entry = BookEntry.of(self.get(folder.name), opened=(folder / "book.json").stat().st_mtime)
        except (KeyError, OSError):
            return None
        with contextlib.suppress(OSError):
            _write(folder / _ENTRY, asdict(entry))
        return entry

    def _stored_entry(self, folder: Path) -> BookEntry | None:
        try:
            return BookEntry.from_stored(json.loads((folder / _ENTRY).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def count_tokens(self, book_id: str, tokens: int) -> None:
        """Notes how many tokens the book has. A disk that does not take it costs the note alone."""
        with self._lock, contextlib.suppress(OSError):
            entry = self._stored_entry(self._folder(book_id))
            if entry and entry.tokens != tokens:
                self._put(book_id, _ENTRY, asdict(replace(entry, tokens=tokens)))
                self._changes += 1

    def kept(self) -> dict[str, int]:
        """The bytes that lie here of each book, but its notebook's few, which change with every page."""
        sizes: dict[str, int] = {}
        for path in self._root.glob("*/*"):
            with contextlib.suppress(OSError):
                if path.name != _NOTEBOOK:
                    sizes[path.parent.name] = sizes.get(path.parent.name, 0) + path.stat().st_size
        return sizes

    def add(self, document: Document, cover: bytes = b"") -> BookEntry:
        """Stores the book (again) and puts it first on the shelf. `cover`: a JPEG, where it has one. Raises
        OSError where the disk does not take it; `get` gives it until then.
        """
        folder, document = self._folder(document.sha256), self.as_named(document)
        self.unmark_forgotten(document.sha256)
        with self._lock:
            self._remember(document)
        folder.mkdir(exist_ok=True)
        write_whole(folder / "book.json", document.packed)
        if cover:
            write_whole(folder / _COVER, cover)
        return self._write_entry(document)

    def as_named(self, document: Document) -> Document:
        """A book with the title and the author that the person gave it, if any."""
        entry = self._stored_entry(self._folder(document.sha256))
        return (
            replace(document, title=entry.title, author=entry.author) if entry and entry.named else document
        )

    def name(self, book_id: str, **said: str) -> None:
        """Gives a book this `title` or `author`, whatever its file says from then on. Raises KeyError for an
        unknown book, OSError where the disk does not take it.
        """
        with self._lock:
            document = replace(self.get(book_id), **said)
            write_whole(self._folder(book_id) / "book.json", document.packed)
            self._remember(document)
            self._write_entry(document, named=True)

    def get(self, book_id: str) -> Document:
        """The book's text and chapters. Raises KeyError for an unknown or damaged book."""
        with self._lock:
            if book_id in self._open:
                return self._open[book_id]
            if (self._folder(book_id) / _FORGOTTEN).exists():
                raise KeyError(book_id)
            try:
                document = Document.unpacked((self._folder(book_id) / "book.json").read_bytes())
            except (OSError, ValueError, TypeError) as error:
                raise KeyError(book_id) from error
            self._remember(document)
            return document

    def find(self, book_id: str) -> Document | None:
        """The book; None for an unknown or damaged one, and for ""."""
        try:
            return self.get(book_id)
        except KeyError:
            return None

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
        except OSError as error:
            log.warning("the shelf could not be written: %s", error)

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
        self._put(book_id, _NOTEBOOK, notebook.to_json())

    def summaries(self, book_id: str) -> dict[str, str]:
        """The summaries of chapters that were kept; none where they cannot be read: they can be told again.

        Raises KeyError for what is no book's name.
        """
        path = self._folder(book_id) / _SUMMARIES
        try:
            kept = from_json(path.read_text(encoding="utf-8"))
            return {key: kept[key] for key in kept if isinstance(kept[key], str)}
        except (OSError, ValueError, TypeError):
            return {}

    def write_summaries(self, book_id: str, kept: dict[str, str]) -> None:
        """Keeps them beside the book. Raises OSError where they cannot be written."""
        self._put(book_id, _SUMMARIES, kept)
        self.summaries_version += 1

    def origins(self, book_id: str) -> dict[str, SummaryOrigin]:
        """Where each kept summary comes from, under the same keys; none where it cannot be read.

        Raises KeyError for what is no book's name.
        """
        path = self._folder(book_id) / _ORIGINS
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return {key: _origin(one) for key, one in kept.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def write_origins(self, book_id: str, kept: dict[str, SummaryOrigin]) -> None:
        """Keeps them beside the book. Raises OSError where they cannot be written."""
        self._put(book_id, _ORIGINS, {key: asdict(one) for key, one in kept.items()})

    def outlines(self, book_id: str) -> dict[str, dict[str, list[str]]]:
        """Whom and which places the chapters name whose summaries are kept, under the same keys; none where
        it cannot be read.

        Raises KeyError for what is no book's name.
        """
        path = self._folder(book_id) / _OUTLINES
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return {key: one for key, one in kept.items() if _is_outline(one)}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write_outlines(self, book_id: str, kept: dict[str, dict[str, list[str]]]) -> None:
        """Keeps them beside the book. Raises OSError where they cannot be written."""
        self._put(book_id, _OUTLINES, kept)

    def portraits(self, book_id: str) -> list[dict[str, Any]]:
        """What was told of who somebody is, in the order of telling: name, end (of what it was told from, in
        characters), model, sentences [text, start, end]. None where it cannot be read: it can be told again.

        Raises KeyError for what is no book's name.
        """
        path = self._folder(book_id) / _PORTRAITS
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))["told"]
            return [one for one in kept if _is_portrait(one)]
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def add_portrait(self, book_id: str, told: dict[str, Any]) -> None:
        """Keeps one beside the book, in the place of one of the same name and end. Raises OSError where it
        cannot be written.
        """
        with self._lock:
            same = (told["name"], told["end"])
            kept = [one for one in self.portraits(book_id) if (one["name"], one["end"]) != same]
            self._put(book_id, _PORTRAITS, {"told": [*kept, told]})
            self.portraits_version += 1

    def mark_forgotten(self, book_id: str, now: float) -> None:
        """Takes a book off the shelf; `forget` deletes it. Raises OSError where that cannot be written."""
        with self._lock:
            self._folder(book_id).mkdir(exist_ok=True)
            write_whole(self._folder(book_id) / _FORGOTTEN, "")
            self._marked[book_id] = now
            self._open.pop(book_id, None)
            self._changes += 1

    def unmark_forgotten(self, book_id: str) -> bool:
        """Puts a book back on the shelf; False where there is none that was taken off."""
        with self._lock:
            try:
                (self._folder(book_id) / _FORGOTTEN).unlink()
            except (FileNotFoundError, KeyError):
                return False
            self._changes += 1
            return True

    def forgotten(self, before: float) -> list[str]:
        """The books that were marked before a time; those that an earlier run marked are in any case."""
        names = [path.parent.name for path in self._root.glob(f"*/{_FORGOTTEN}")]
        return [
            one for one in names if BOOK_ID.fullmatch(one) and self._marked.get(one, float("-inf")) <= before
        ]

    def mark_again(self, now: float) -> list[BookEntry]:
        """Marks from `now` on what an earlier run had marked, and returns these books; none whose deletion
        had begun.
        """
        found = []
        for mark in self._root.glob(f"*/{_FORGOTTEN}"):
            name = mark.parent.name
            entry = self._stored_entry(mark.parent) or self._known.get(name)
            if BOOK_ID.fullmatch(name) and entry and mark.stat().st_mtime:
                self._marked[name] = now
                found.append(entry)
        return found

    def begin_to_forget(self, book_id: str) -> None:
        """Notes at the mark that the book is not brought back from here on, whatever comes in between."""
        with contextlib.suppress(OSError):
            os.utime(self._folder(book_id) / _FORGOTTEN, (0, 0))

    def forget(self, book_id: str) -> None:
        """Deletes everything that was stored of the book. Unknown ids are fine."""
        with self._lock:
            self._open.pop(book_id, None)
            folder = self._folder(book_id)
            if folder.is_dir():  # with what a killed app left half-written
                shutil.rmtree(folder)
            if self._known.pop(book_id, None):
                self._write_index()
            with contextlib.suppress(OSError):  # a full disk keeps no book from being deleted
                self.series.forget(book_id)

    def _folder(self, book_id: str) -> Path:
        # the id comes from the browser: it must not name a path
        if not BOOK_ID.fullmatch(book_id):
            raise KeyError(book_id)
        return self._root / book_id

    def _put(self, book_id: str, name: str, data: dict) -> None:
        """Writes a file beside the book, and the book, too, where it lies open and its file was taken away: a
        folder without its book would be none. Raises OSError.
        """
        folder, open_book = self._folder(book_id), self._open.get(book_id)
        folder.mkdir(exist_ok=True)
        if open_book is not None and not (folder / "book.json").exists():
            write_whole(folder / "book.json", open_book.packed)
        _write(folder / name, data)

    def _write_entry(self, document: Document, *, named: bool = False) -> BookEntry:
        with self._lock:
            self._newest = max(self._clock(), self._newest + 0.001)  # a clock may be set back
            before = self._stored_entry(self._folder(document.sha256))
            tokens, named = (before.tokens, named or before.named) if before else (0, named)
            entry = BookEntry.of(document, opened=self._newest, tokens=tokens, named=named)
            self._put(document.sha256, _ENTRY, asdict(entry))
            self._known[entry.id] = entry
            self._write_index()
            self._changes += 1
            return entry

    def _write_index(self) -> None:
        """A disk that does not take it costs what it is for alone."""
        with self._lock, contextlib.suppress(OSError):
            _write(self._index, {name: asdict(entry) for name, entry in self._known.items()})

    def lost(self) -> None:
        """Notes that a book's files are gone, so that the shelf is looked at anew."""
        with self._lock:
            self._changes += 1

    def _remember(self, document: Document) -> None:
        self._open.pop(document.sha256, None)
        self._open[document.sha256] = document
        while len(self._open) > 3:
            self._open.pop(next(iter(self._open)))


def _read_index(path: Path) -> dict[str, BookEntry]:
    """The entries of all books by their ids; none where there is no file, or a damaged one."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {name: BookEntry.from_stored(one) for name, one in stored.items() if BOOK_ID.fullmatch(name)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _origin(stored: dict) -> SummaryOrigin:
    """Raises TypeError or KeyError for another form."""
    if not isinstance(stored["model"], str):
        raise TypeError("a model that is no name")
    stands = tuple(SourceSpan(**one) for one in stored["stands"])
    counted = [at for one in stands for at in (one.start, one.end, one.book_start, one.book_end)]
    if not all(isinstance(at, int) for at in counted):
        raise TypeError("a place that is none")
    return SummaryOrigin(stored["model"], stands)


def _is_outline(stored: Any) -> bool:
    """Whether it has the form of one."""
    if not isinstance(stored, dict):
        return False
    named = [stored.get("person"), stored.get("place")]
    return all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in named)


def _is_portrait(stored: Any) -> bool:
    """Whether it has the form of one."""
    kinds = {"name": str, "end": int, "model": str, "sentences": list}
    if not isinstance(stored, dict) or not all(isinstance(stored.get(key), kinds[key]) for key in kinds):
        return False
    return all([type(part) for part in one] == [str, int, int] for one in stored["sentences"])


def _write(path: Path, data: dict) -> None:
    write_whole(path, to_json_text(data, ensure_ascii=False))
