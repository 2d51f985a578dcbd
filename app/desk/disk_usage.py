"""What the app keeps on the disk as the settings show it: how much of books that were read, and the data
folder, which can be moved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.errors import in_words
from app.store import relocation
from core import paths
from core.cache.disk import SnapshotFolder, folder_name, quota_bytes
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

log = logging.getLogger(__name__)
_SHOWN_S = 0.2


@dataclass(frozen=True, slots=True)
class KeptReadings:
    """Of books that were read: bytes in all, the most there may be, and (title, bytes) of those on the
    shelf.
    """

    bytes: int
    quota_bytes: int
    books: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Moving:
    """A move that waits for a yes (`done` None), or is under way."""

    move: relocation.Move
    done: int | None = None
    left_s: float | None = None


class Storage:
    """What there is, and what can be done about it. Thread-safe."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stop = threading.Event()
        self.kept: KeptReadings | None = None
        self.moving: Moving | None = None
        # lets the app begin again in the new place
        self.moved: Callable[[], None] = lambda: None

    # --- what is kept of books that were read

    def look(self) -> None:
        """Counts it."""
        folder = SnapshotFolder(paths.subdir("snapshots"))
        entries = self._desk.library.entries()
        stored = folder.stored("")
        found = [(entry.title, stored.get(folder_name(entry.id))) for entry in entries]
        books = tuple((title, of.bytes) for title, of in found if of)
        quota = quota_bytes(self._desk.preferences.settings.snapshot_quota_gb, folder.root)
        self.kept = KeptReadings(folder.usage().bytes, quota, books)
        self._desk.change()

    def empty(self) -> None:
        """Deletes it. Books, conversations and summaries stay; the next question reads again."""
        if not self._desk.refuse_while_busy():
            SnapshotFolder(paths.subdir("snapshots")).clear()
            self.look()

    # --- the data folder

    @property
    def under_way(self) -> bool:
        """Whether the data is being moved."""
        return self.moving is not None and self.moving.done is not None

    def refuse_while_moving(self) -> bool:
        """Says that the data is being moved, if it is."""
        if self.under_way:
            self._desk.say(_("Your data is being moved. Wait for its end, or cancel it."), "info")
        return self.under_way

    def propose(self, folder: str) -> None:
        """Asks for a yes to a move. Raises UserError for a place that will not do."""
        if not self._desk.refuse_while_busy():
            self.moving = Moving(relocation.prepared(folder))
            self._desk.change()

    def decline(self) -> None:
        """No move; one under way is broken off, and everything is as it was."""
        if self.under_way:
            self._stop.set()
        else:
            self.moving = None
            self._desk.change()

    def begin(self) -> None:
        """Moves, as was proposed, in the background."""
        if self.moving is None or self._desk.refuse_while_busy():
            return
        self._stop.clear()
        self._set(replace(self.moving, done=0))
        threading.Thread(target=self._run, args=(self.moving.move,), name="move", daemon=True).start()

    def _run(self, move: relocation.Move) -> None:
        self._desk.engine.rest()
        try:
            whole = relocation.copied(
                move,
                copy_database=self._desk.history.copy_to,
                progress=self._pace(move.bytes),
                should_stop=self._stop.is_set,
            )
            if whole:
                relocation.switch(move)
        except Exception as error:  # the thread's boundary: the old folder is whole, and in use
            words = _("The data was not moved, and nothing is lost. {reason}")
            self._desk.say(words.format(reason=in_words(error)))
            whole = False
        if whole:
            log.info("the data folder was moved")
            self.moved()
        else:
            self._set(None)
            self._desk.engine.start()

    def _pace(self, total: int) -> Callable[[int], None]:
        began, shown = time.monotonic(), 0.0

        def progress(done: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown >= _SHOWN_S and self.moving is not None:
                shown = now
                left_s = (now - began) * (total - done) / max(1, done)
                self._set(replace(self.moving, done=done, left_s=left_s))

        return progress

    def _set(self, moving_now: Moving | None) -> None:
        self.moving = moving_now
        self._desk.change()
