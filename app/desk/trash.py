"""What the person takes away, books and conversations alike: off the page at once, a mark for UNDO_S in which
it can be brought back, then deleted for good. What is marked when the app is killed has UNDO_S from the start
after that.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.books import OpenBooks
from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import Deletion
from app.desk.waiting import WaitingQuestions
from app.errors import guarded
from app.store.book_entry import BookEntry
from app.store.history import History
from app.store.library import Library
from core.text.words import listed_texts
from core.text.words import translated as _
from core.text.words import translated_count as _n

if TYPE_CHECKING:
    from app.engine.client import Runtime

log = logging.getLogger(__name__)
UNDO_S = 60.0


class Trash:
    """The marks stand in the history and in the library; this decides when they count. `clock`: of this
    process alone; marks of an earlier one begin anew.
    """

    def __init__(
        self,
        store: Store,
        library: Library,
        history: History,
        *,
        engine: Runtime,
        books: OpenBooks,
        waiting: WaitingQuestions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._library, self._history = store, library, history
        self._engine, self._books, self._waiting, self._clock = engine, books, waiting, clock
        self._timer: threading.Timer | None = None

    def throw_book(self, book_id: str) -> None:
        """Takes a book off the page with all that belongs to it."""
        entry = next((one for one in self._library.entries() if one.id == book_id), None)
        if self._store.refuse_while_answered(book_id) or entry is None:
            return
        self._library.mark_forgotten(book_id, self._clock())
        self._offer_undo(book_id, self._deleted(entry))
        self._store.update(lambda now: _without(now, book_id))
        self._waiting.keep()
        if self._store.state.book_id == book_id:
            self._books.put_away()

    def throw_conversation(self, conversation_id: str) -> None:
        """Takes a conversation off the page."""
        if not conversation_id or self._store.refuse_while_answered(conversation_id):
            return
        self._history.mark_forgotten(conversation_id, self._clock())
        self._offer_undo(conversation_id, _("The conversation is deleted."))
        self._store.update(lambda now: _without(now, conversation_id))
        self._waiting.keep()
        if self._store.state.conversation_id == conversation_id:
            self._store.update(conversation_id="")

    def throw_open_conversation(self) -> None:
        """Takes the open conversation off the page."""
        self.throw_conversation(self._store.state.conversation_id)

    def withdraw(self, name: str) -> None:
        """Offers no longer to bring back what is called `name`: it is gone, or back already."""

        self._store.update(
            lambda now: replace(now, deleted=tuple(one for one in now.deleted if one.id != name))
        )

    def restore(self, names: str) -> None:
        """Brings back what is called by these names, with spaces between, and opens the last of them."""
        if self._store.refuse_while_moving():
            return
        back = [open_it for name in names.split() if (open_it := self._unmark(name))]
        self._store.update(deleted=())
        if back:
            back[-1]()
        else:
            self._store.say(_("It was too late: that is gone."), "info")

    def purge(self, *, all_of_them: bool = False) -> None:
        """Deletes for good what was taken away UNDO_S ago."""
        before = float("inf") if all_of_them else self._clock() - UNDO_S
        for book_id in self._library.forgotten(before):
            self._delete_book(book_id)
            self.withdraw(book_id)
        for conversation_id in self._history.purge(before):
            self._engine.forget(conversation_id)
            self.withdraw(conversation_id)
        self._store.tell()

    def settle(self) -> None:
        """Offers to bring back what an earlier run had marked: a slip, then a crash, had no minute. Whose
        deletion had begun is deleted.
        """
        with _logged():
            for entry in self._library.mark_again(self._clock()):
                self._offer_undo(entry.id, self._deleted(entry))
            for conversation_id in self._history.mark_again(self._clock()):
                self._offer_undo(conversation_id, _("The conversation is deleted."))
            self.purge()

    def close(self) -> None:
        """Deletes at once what waits."""
        if self._timer:
            self._timer.cancel()
            with _logged():
                self.purge(all_of_them=True)

    def _deleted(self, entry: BookEntry) -> str:
        """That a book is, and what of the person's own goes with it."""
        talks = len(self._history.conversations(entry.id))
        marks = len(self._library.notebook(entry.id).bookmarks)
        counted = (
            (talks, _n("{count} conversation", "{count} conversations", talks)),
            (marks, _n("{count} bookmark", "{count} bookmarks", marks)),
        )
        lost = [words.format(count=count) for count, words in counted if count]
        if not lost:
            return _("“{title}” is deleted.").format(title=entry.title)
        words = _("“{title}” is deleted, and with it: {lost}.")
        return words.format(title=entry.title, lost=listed_texts(lost))

    def _offer_undo(self, name: str, words: str) -> None:
        """Says what was marked, offers to undo it, and has it purged."""
        self.withdraw(name)  # pressed twice, it is deleted once
        said = Deletion(name, words)
        self._store.update(lambda now: replace(now, deleted=(*now.deleted, said)), notice=None)
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(UNDO_S + 0.1, lambda: guarded(self.purge, self._store.say, None))
        self._timer.daemon = True
        self._timer.start()

    def _unmark(self, name: str) -> Callable[[], None] | None:
        """Takes the mark away; what opens the book or conversation, None where it is gone."""
        if self._library.unmark_forgotten(name):
            return lambda: self._books.select(name)
        if self._history.unmark_forgotten(name):
            book_id = self._history.book_of(name) or self._store.state.book_id
            return lambda: self._books.open_conversation(name, book_id)
        return None

    def _delete_book(self, book_id: str) -> None:
        """The library last: the mark lies there, and whatever was interrupted is done again."""
        self._library.begin_to_forget(book_id)
        for conversation_id in self._history.forget_book(book_id):
            self._engine.forget(conversation_id)
        self._engine.forget_book(book_id)
        self._library.forget(book_id)


@contextmanager
def _logged() -> Iterator[None]:
    """What cannot be deleted is logged, and stays off the page."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        log.warning("what was taken away could not be deleted yet: %s", error)


def _without(state: AppState, name: str) -> AppState:
    """Without the questions that wait in the conversation of this id, or about the book, and without the
    answers that were made there and what is said of the book's file.
    """
    asked, crowded, place = state.queued, state.overflow, state.answer_place
    waits = asked is not None and name not in (asked.book_id, asked.conversation_id)
    is_crowded = crowded is not None and name not in (crowded.ask.book_id, crowded.ask.conversation_id)
    stands = place is not None and name not in (place.book_id, place.conversation_id)
    return replace(
        state,
        queued=asked if waits else None,
        overflow=crowded if is_crowded else None,
        answer=state.answer if stands else None,
        arrivals=state.arrivals_but(name),
        book_answers=tuple(
            one for one in state.book_answers if name not in (one.book_id, one.conversation_id, one.asked_in)
        ),
    )
