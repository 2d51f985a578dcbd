"""The person's folders of books: looked through now and then, what is new in them offered, and read only when
they ask.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence

from app.desk.import_queue import ImportQueue
from app.desk.store import Store
from app.desk.values import FolderBooks
from app.store.allowed_folders import ticked
from app.store.folder_scan import FolderLook, FoundFile, look_through
from app.store.known_files import KnownFiles, key_of
from app.store.library import Library
from app.store.preferences import Preferences
from core.errors import UserError
from core.text.words import translated as _

EVERY_S = 60.0
SHARE = 50  # a look that took a second waits for fifty
KEY = "book_folders"


class BookFolders:
    """A thread of its own looks, from the first folder that is chosen on.

    `look`: see app.store.folder_scan.
    """

    def __init__(
        self,
        store: Store,
        library: Library,
        imports: ImportQueue,
        *,
        preferences: Preferences,
        known: KnownFiles,
        look: Callable[[Sequence[str]], FolderLook] = look_through,
    ) -> None:
        self._store, self._library, self._imports = store, library, imports
        self._preferences, self._known, self._look = preferences, known, look
        self._folders: tuple[str, ...] = ()
        self._noted, self._looked = known.books, FolderLook()
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._is_shown: Callable[[], object] = lambda: True

    def while_shown(self, is_shown: Callable[[], object]) -> None:
        """Folders are looked through while this is so."""
        self._is_shown = is_shown

    def follow(self) -> None:
        """Takes notice of other folders, and of files that were read."""
        folders, noted = self._preferences.settings.book_folders, self._known.books
        with self._lock:
            if (folders, noted) == (self._folders, self._noted) or self._ended:
                return
            self._folders, self._noted = folders, noted
            if folders and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="folders", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Looks no more. A look at a drive that does not answer is left behind."""
        self._ended = True
        self._wake.set()

    def tick(self, folder: str) -> None:
        """Looks into a folder, or no longer. Raises UserError where the setting is fixed."""
        self._preferences.choose(KEY, json.dumps(ticked(folder, self._preferences.settings.book_folders)))

    def add(self, folder: str) -> None:
        """Looks into the folder that was typed. Raises UserError for what is none."""
        path = os.path.expanduser(folder.strip().strip("\"'"))
        if not os.path.isabs(path) or not os.path.isdir(path):
            words = _("There is no folder {folder}. Type its whole path, as in {example}.")
            raise UserError(words.format(folder=folder.strip(), example=os.path.expanduser("~/Books")))
        path = os.path.normpath(path)
        if path not in self._preferences.settings.book_folders:
            self.tick(path)

    def open(self, path: str) -> None:
        """Reads a file that was found, where it lies."""
        if any(one.path == path for one in self._store.state.folder_books.files):
            self._imports.files([path])

    def put_away(self, path: str) -> None:
        """Offers a file no more."""
        for one in self._store.state.folder_books.files:
            if one.path == path:
                self._known.note(_key(one))
        self.follow()

    def offer_again(self) -> None:
        """Offers what was put away, or taken off the shelf, as if it were new."""
        self._known.forget([_key(one) for one in self._put_away()])
        self.follow()

    # --- inside

    def _run(self) -> None:
        due, looked_into = 0.0, None
        while not self._ended:
            folders = self._folders
            if folders != looked_into or (time.monotonic() >= due and self._is_shown()):
                began = time.monotonic()
                self._looked, looked_into = self._look(folders), folders
                due = time.monotonic() + max(EVERY_S, SHARE * (time.monotonic() - began))
            self._show()
            self._wake.wait(max(EVERY_S / 4, due - time.monotonic()) if folders else None)
            self._wake.clear()

    def _show(self) -> None:
        known, looked = self._known.books, self._looked
        files = tuple(one for one in looked.files if _key(one) not in known)
        shown = FolderBooks(files, len(self._put_away()), looked.unreachable, looked.cut)
        if shown != self._store.state.folder_books and not self._ended:
            self._store.update(folder_books=shown)

    def _put_away(self) -> list[FoundFile]:
        """What is in the folders, and neither offered nor on the shelf."""
        known, shelf = self._known.books, {one.id for one in self._library.entries()}
        return [one for one in self._looked.files if known.get(_key(one), "shelf") not in (shelf | {"shelf"})]


def _key(one: FoundFile) -> str:
    return key_of(one.name, one.bytes)
