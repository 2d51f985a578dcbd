"""How much is kept on the disk of books that were read, as the settings show it; and what can go where the
disk has no room.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

from app.desk.store import Store
from app.desk.values import DiskShortage, Notice, ReadingsUsage
from app.errors import is_away
from app.models.catalogue import Models
from app.store.history import History
from app.store.library import Library
from app.store.preferences import Preferences
from core import paths
from core.cache.disk import SnapshotFolder, folder_name, quota_bytes

RETRY_S = 5.0  # between two tries to store what could not be stored
SHORT_BYTES = 16_000_000  # with less, neither a book nor a long conversation is sure to be stored


def is_short(folder: Path) -> bool:
    """Whether the folder's disk has next to no room; no where that cannot be said."""
    try:
        return shutil.disk_usage(folder).free < SHORT_BYTES
    except OSError:
        return False


class DiskUsage:
    """Counts what is kept of books that were read, and deletes it."""

    def __init__(
        self, store: Store, library: Library, history: History, *, preferences: Preferences, models: Models
    ) -> None:
        self._store, self._library, self._history = store, library, history
        self._preferences, self._models = preferences, models
        # the errors that were said last
        self._seen: tuple[Notice | None, tuple[str, ...]] = (None, ())
        self._retries = threading.Lock()

    def look(self) -> None:
        """Counts it."""
        folder = SnapshotFolder(paths.subdir("snapshots"))
        entries = self._library.entries()
        stored = folder.stored("")
        found = [(entry.title, stored.get(folder_name(entry.id))) for entry in entries]
        books = tuple((title, of.bytes) for title, of in found if of)
        quota = quota_bytes(self._preferences.settings.snapshot_quota_gb, folder.root)
        self._store.update(kept=ReadingsUsage(folder.usage().bytes, quota, books))

    def empty(self) -> None:
        """Deletes it. Books, conversations and summaries stay; the next question reads again."""
        if not self._store.refuse_while_busy():
            SnapshotFolder(paths.subdir("snapshots")).clear()
            self.look()
            self.check()

    def follow(self) -> None:
        """Looks whether the disk is full where an error is said: what can go is shown beside it then. What
        could not be stored is tried again until it is, as when a drive is back.
        """
        now, seen = self._store.state, self._seen
        notice = now.notice if now.notice and now.notice.kind == "error" else seen[0]
        self._seen = notice, now.failures
        if notice is not seen[0] or now.failures and now.failures is not seen[1]:
            threading.Thread(target=self._mend, name="disk", daemon=True).start()

    def _mend(self) -> None:
        """Tries to store what waits until it is stored, and the data folder is there; where that was refused
        first, the message that said so is true no more then.
        """
        self.warn()
        if not self._retries.acquire(blocking=False):
            return
        try:
            refused = False
            while is_away() or self._waits():
                try:
                    self._store_waiting()
                except (sqlite3.Error, OSError):
                    refused = True
                    time.sleep(RETRY_S)
            if refused:
                self.check()
        finally:
            self._retries.release()

    def _store_waiting(self) -> None:
        """Raises sqlite3.Error or OSError where it cannot be done, and while the data folder is gone."""
        if is_away():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(paths.data_dir()))
        self._history.store_again()
        if self._notes_wait():
            self._library.write_notebook(self._store.state.book_id, self._store.state.notebook)

    def _waits(self) -> bool:
        return self._history.waits or self._notes_wait()

    def _notes_wait(self) -> bool:
        """Whether bookmarks and notes of the open book are not on disk as they are shown."""
        book_id, notebook = self._store.state.book_id, self._store.state.notebook
        try:
            return bool(book_id) and notebook != self._library.notebook(book_id)
        except OSError:
            return True

    def warn(self) -> None:
        """Says what can go where the disk has no room, and no more where it has some again."""
        short = is_short(paths.data_dir())
        if short or self._store.state.shortage:
            self._store.update(shortage=self._shortage() if short else None)

    def check(self) -> None:
        """Likewise, and stores the answers that wait for room, and what the person left in the open book.
        Raises sqlite3.Error or OSError where it cannot.
        """
        self.warn()
        self._store_waiting()
        if self._store.state.shortage is None:
            self._store.update(notice=None)  # that the disk is full is true no more

    def _shortage(self) -> DiskShortage:
        models = tuple((one.name, one.disk_bytes) for one in self._models.list if one.disk_bytes)
        readings = SnapshotFolder(paths.subdir("snapshots")).usage().bytes
        folder = paths.data_dir()
        return DiskShortage(folder, shutil.disk_usage(folder).free, readings, models)
