"""The series of the open book, as the person puts it in order."""

from __future__ import annotations

from collections.abc import Callable

from app.desk.names import BookNames
from app.desk.store import Store
from app.store.book_entry import BookEntry
from app.store.library import Library
from app.store.series import SeriesFile


class BookSeries:
    """Puts the open book behind others, and moves volumes. Thread-safe."""

    def __init__(self, store: Store, library: Library, names: BookNames) -> None:
        self._store, self._library, self._names = store, library, names

    def follow(self, other_id: str) -> None:
        """Makes the open book the volume behind another one."""
        book_id = self._store.state.book_id
        self._change(lambda kept, shelf: kept.put_behind(shelf, book_id, other_id))

    def move(self, book_id: str, *, step: int) -> None:
        """Moves a volume on (1) or back (-1)."""
        self._change(lambda kept, shelf: kept.move(shelf, book_id, step))

    def leave(self) -> None:
        """Has the open book belong to no series."""
        book_id = self._store.state.book_id
        if book_id:
            self._change(lambda kept, _shelf: kept.take_out(book_id))

    def rejoin(self) -> None:
        """Has the open book belong to the series that its file names."""
        book_id = self._store.state.book_id
        if book_id:
            self._change(lambda kept, _shelf: kept.rejoin(book_id))

    def rename(self, name: str) -> None:
        """Names the series of the open book; "": as its files do."""
        book_id = self._store.state.book_id
        self._change(lambda kept, shelf: kept.rename(shelf, book_id, name))

    def _change(self, change: Callable[[SeriesFile, list[BookEntry]], None]) -> None:
        change(self._library.series, self._library.entries())
        self._store.tell()
        self._names.look_earlier()
