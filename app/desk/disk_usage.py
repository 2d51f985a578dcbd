"""How much is kept on the disk of books that were read, as the settings show it."""

from __future__ import annotations

from app.desk.store import Store
from app.desk.values import ReadingsUsage
from app.store.library import Library
from app.store.preferences import Preferences
from core import paths
from core.cache.disk import SnapshotFolder, folder_name, quota_bytes


class DiskUsage:
    """Counts what is kept of books that were read, and deletes it."""

    def __init__(self, store: Store, library: Library, preferences: Preferences) -> None:
        self._store, self._library, self._preferences = store, library, preferences

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
