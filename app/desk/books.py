"""Which book and which conversation lie open, and how far the book may be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.desk.names import BookNames
from app.desk.reader import Reader, as_known, last_limit
from app.desk.state import AppState
from app.desk.store import Store
from app.errors import is_away
from app.store.history import History
from app.store.library import Library
from app.store.turns import StoredTurn
from core import paths
from core.documents.document import Document
from core.text.words import translated as _


class OpenBooks:
    """Opens books of the library and conversations of the history, one at a time."""

    def __init__(
        self, store: Store, library: Library, history: History, *, reader: Reader, names: BookNames
    ) -> None:
        self._store, self._library, self._history = store, library, history
        self._reader, self._names = reader, names

    @property
    def current(self) -> Document | None:
        """The open book."""
        return self._library.find(self._store.state.book_id)

    @property
    def known(self) -> Document | None:
        """What may be read of the open book."""
        book = self.current
        return as_known(book, self._store.state.spoiler_limit) if book else None

    @property
    def turns(self) -> list[StoredTurn]:
        """The open conversation's turns, the one being written included."""
        return self.turns_of(self._store.state.conversation_id)

    def turns_of(self, conversation_id: str) -> list[StoredTurn]:
        """The turns of a conversation, open or not; none of one that has not begun."""
        return self._history.turns(conversation_id) if conversation_id else []

    def resume(self) -> None:
        """Puts the book that was opened last back on the desk."""
        if there := [one for one in self._library.entries() if not one.missing]:
            self.select(there[0].id)

    def select(self, book_id: str) -> None:
        """Opens a book of the shelf with its newest conversation. What is answered elsewhere goes on."""
        if self._store.refuse_while_moving():
            return
        book = self._library.find(book_id)
        if book is None and not self._title(book_id):
            self._store.say(_("It was too late: that is gone."), "info")
            return
        if book is not None:
            self._library.touch(book_id)
        talks = self._history.conversations(book_id)
        talk = talks[0].id if talks else ""
        spoiler_limit = last_limit(self._history, self._library, book_id)
        spoiler_limit = _limit(book, spoiler_limit) if book else spoiler_limit
        self._store.update(
            lambda now: _cleared(now, book_id, talk),
            book_id=book_id,
            conversation_id=talk,
            spoiler_limit=spoiler_limit,
            **self._reader.opened(book, spoiler_limit),
        )
        self.tell_lost()

    def tell_lost(self) -> bool:
        """Says that the text of the open book is gone, if it is. What was said about it can be read."""
        book_id = self._store.state.book_id
        lost = bool(book_id) and self.current is None
        if lost:
            self._library.lost()
            self._store.say(_lost(self._title(book_id)))
        return lost

    def _title(self, book_id: str) -> str:
        """As the shelf has it; "" for a book that is not on it."""
        return next((one.title for one in self._library.entries() if one.id == book_id), "")

    def put_away(self) -> None:
        """Leaves the desk empty."""
        closed = self._reader.opened(None, None)
        self._store.update(
            lambda now: replace(now, answer=now.answer_beside("")), book_id="", conversation_id="", **closed
        )

    def open_conversation(self, conversation_id: str, book_id: str = "") -> None:
        """Goes to a conversation about the open book, or about another one."""
        if conversation_id == self._store.state.conversation_id:  # what led there has done its work
            self._store.update(notice=None)
        if book_id and book_id != self._store.state.book_id:
            self.select(book_id)
        state = self._store.state
        if book_id not in ("", state.book_id) or book_id and conversation_id == state.conversation_id:
            return
        if self._store.refuse_while_moving():
            return
        for talk in self._history.conversations(state.book_id):
            if talk.id == conversation_id:
                self._lay(talk.id, talk.spoiler_limit)
                self.tell_lost()

    def begin_conversation(self) -> None:
        """Puts the conversation away and starts an empty one with the same limit, which is put to no other
        book; the book stays in the engine's memory.
        """
        if not self._store.refuse_while_moving():
            self._lay("", self._store.state.spoiler_limit)

    def open_place(self, book_id: str, offset: int, length: int) -> None:
        """Goes to a place in any book."""
        if book_id != self._store.state.book_id:
            self.select(book_id)
        if book_id == self._store.state.book_id:
            self._reader.look_up(offset, length)

    def limit(self, chapter: int) -> None:
        """Nothing behind `chapter` is read or shown in this conversation from now on; 0: all of the book
        may be.
        """
        book = self.current
        if self._store.refuse_while_answered(self._store.state.conversation_id) or book is None:
            return
        talk, spoiler_limit = self._store.state.conversation_id, _limit(book, chapter or None)
        if talk:
            self._history.limit(talk, spoiler_limit)
        self._store.update(spoiler_limit=spoiler_limit, **self._limited(spoiler_limit))
        self._reader.limit_chosen(spoiler_limit)
        self._names.look_earlier()

    def choose_chapters(self, first: int | None = None, last: int | None = None) -> None:
        """Which chapters a summary is to be about; 0: from the beginning, to the end; None: as it is. The
        later one is the last.
        """
        book = self.current
        count = len(book.chapters) if book else 0

        def chosen(now: AppState) -> AppState:
            span = (now.chapters[0] if first is None else first, now.chapters[1] if last is None else last)
            span = tuple(one if one <= count else 0 for one in span)
            return replace(now, chapters=tuple(sorted(span)) if all(span) else span)

        self._store.update(chosen)

    def _lay(self, conversation_id: str, spoiler_limit: int | None) -> None:
        """Puts a conversation about the open book on the desk, with its limit; "": an empty one."""
        book = self.current
        spoiler_limit = _limit(book, spoiler_limit) if book else spoiler_limit
        self._store.update(
            lambda now: _laid(now, conversation_id),
            spoiler_limit=spoiler_limit,
            **self._limited(spoiler_limit),
        )
        self._names.look_earlier()

    def _limited(self, spoiler_limit: int | None) -> dict[str, Any]:
        """The fields of the state that keep inside of a new limit."""
        return {**self._reader.limited(spoiler_limit), **self._names.limited(spoiler_limit)}


def _lost(title: str) -> str:
    """What became of a book's text, and what helps."""
    if is_away():
        words = _(
            "The data folder {folder} is not there, and the text of “{title}” is in it. Connect the drive "
            "that it is on, or put the folder back: the book and its conversations are here again then."
        )
        return words.format(folder=paths.data_dir(), title=title)
    words = _(
        "The text of “{title}” is gone or damaged. Drop its file again to read it: its conversations "
        "are kept."
    )
    return words.format(title=title)


def _limit(book: Document, spoiler_limit: int | None) -> int | None:
    """A limit as the book has it: read anew, it may have fewer chapters."""
    return min(spoiler_limit, len(book.chapters)) or None if spoiler_limit else None


def _laid(state: AppState, conversation_id: str) -> AppState:
    """With a conversation about the open book; an empty one is put to no other book."""
    alone = tuple(one for one in state.asked_too if one[0] != state.book_id)
    return replace(
        state,
        conversation_id=conversation_id,
        answer=state.answer_beside(conversation_id),
        notice=None,
        asked_too=state.asked_too if conversation_id else alone,
    )


def _cleared(state: AppState, book_id: str, conversation_id: str) -> AppState:
    """Without what belongs to the book that lay open before, for a conversation about another."""
    return replace(
        state,
        notice=None,
        arrivals=state.arrivals_but(book_id),
        answer=state.answer_beside(conversation_id),
        chapters=(0, 0),
        selected_chapters=(),
    )
