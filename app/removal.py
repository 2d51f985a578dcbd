"""What the person takes away, books and conversations alike: off the page at once, a mark for UNDO_S in which
it can be brought back, then deleted for good. What is marked when the app is killed goes at the next start.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.faults import guarded
from app.values import Notice
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.handlers import Desk

log = logging.getLogger(__name__)
UNDO_S = 10.0


class Removal:
    """Acts on a desk. The marks stand in the history and in the library; this decides when they count.
    `clock`: of this process alone, since no mark outlives it.
    """

    def __init__(self, desk: Desk, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._desk, self._clock = desk, clock
        self._timer: threading.Timer | None = None

    def mark(self, name: str, set_mark: Callable[[str, float], object], words: str) -> None:
        """Marks what is called `name` with `set_mark(name, now)`, offers to undo it, and has it purged."""
        set_mark(name, self._clock())
        self._desk.notice = Notice(words, "info", undo=name)
        if self._timer:
            self._timer.cancel()
        say = self._desk.say
        self._timer = threading.Timer(UNDO_S + 0.1, lambda: guarded(self.purge, say, None))
        self._timer.daemon = True
        self._timer.start()

    def restore(self, name: str) -> None:
        """Brings back what is called `name`, and opens it."""
        desk = self._desk
        if desk.refuse_while_busy():
            return
        if desk.library.unmark_forgotten(name):
            desk.notice = None
            desk.select_book(name)
        elif desk.history.unmark_forgotten(name):
            desk.notice = None
            desk.talks.select(name)
        else:
            desk.notice = Notice(_("It was too late: that is gone."), "info")
        desk.shelf_changed()

    def purge(self, *, all_of_them: bool = False) -> None:
        """Deletes for good what was taken away UNDO_S ago."""
        desk = self._desk
        before = float("inf") if all_of_them else self._clock() - UNDO_S
        for book_id in desk.library.forgotten(before):
            self._delete_book(book_id)
            self._gone(book_id)
        for conversation_id in desk.history.purge(before):
            desk.engine.forget(conversation_id)
            self._gone(conversation_id)
        desk.change()

    def settle(self) -> None:
        """Deletes what an earlier run had marked. What cannot be is logged, and stays off the page."""
        try:
            self.purge(all_of_them=True)
        except (OSError, sqlite3.Error):
            log.exception("what was taken away could not be deleted yet")

    def close(self) -> None:
        """Deletes at once what waits."""
        if self._timer:
            self._timer.cancel()
            self.settle()

    def _delete_book(self, book_id: str) -> None:
        """The library last: the mark lies there, and whatever was interrupted is done again."""
        desk = self._desk
        for conversation_id in desk.history.forget_book(book_id):
            desk.engine.forget(conversation_id)
        desk.engine.forget_book(book_id)
        desk.library.forget(book_id)

    def _gone(self, name: str) -> None:
        if self._desk.notice and self._desk.notice.undo == name:
            self._desk.notice = None
