"""What the person takes away, books and conversations alike: off the page at once, a mark for UNDO_S in which
it can be brought back, then deleted for good. What is marked when the app is killed goes at the next start.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.values import Notice
from app.errors import guarded
from core.text.words import sentences
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

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
        names = (*(self.offer.undo if self.offer else ()), name)
        if len(names) > 1:
            more = _("Undo takes back the last {count} deletions.").format(count=len(names))
            words = sentences(words, more)
        self._desk.notice = Notice(words, "info", undo=names)
        if self._timer:
            self._timer.cancel()
        say = self._desk.say
        self._timer = threading.Timer(UNDO_S + 0.1, lambda: guarded(self.purge, say, None))
        self._timer.daemon = True
        self._timer.start()

    @property
    def offer(self) -> Notice | None:
        """The message that is shown, where it can undo a deletion: it stays, whatever is opened meanwhile."""
        notice = self._desk.notice
        return notice if notice and notice.undo else None

    def withdraw(self, name: str) -> None:
        """Offers no longer to bring back what is called `name`: it is gone, or back already."""
        if offer := self.offer:
            left = tuple(one for one in offer.undo if one != name)
            self._desk.notice = replace(offer, undo=left) if left else None

    def restore(self, names: str) -> None:
        """Brings back what is called by these names, with spaces between, and opens the last of them."""
        desk, offer = self._desk, self.offer
        if desk.refuse_while_busy():
            if offer:  # why not now, and the button for later
                desk.notice = replace(desk.notice or offer, undo=offer.undo)
                desk.change()
            return
        back = [open_it for name in names.split() if (open_it := self._unmark(name))]
        desk.notice = None if back else Notice(_("It was too late: that is gone."), "info")
        if back:
            back[-1]()
        desk.shelf_changed()

    def _unmark(self, name: str) -> Callable[[], None] | None:
        """Takes the mark away; what opens the book or conversation, None where it is gone."""
        desk = self._desk
        if desk.library.unmark_forgotten(name):
            return lambda: desk.select_book(name)
        if desk.history.unmark_forgotten(name):
            return lambda: desk.shelf.open_said(desk.history.book_of(name) or desk.book_id, name)
        return None

    def purge(self, *, all_of_them: bool = False) -> None:
        """Deletes for good what was taken away UNDO_S ago."""
        desk = self._desk
        before = float("inf") if all_of_them else self._clock() - UNDO_S
        for book_id in desk.library.forgotten(before):
            self._delete_book(book_id)
            self.withdraw(book_id)
        for conversation_id in desk.history.purge(before):
            desk.engine.forget(conversation_id)
            self.withdraw(conversation_id)
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
