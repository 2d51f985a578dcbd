"""One question to several books: to the open one as ever, then to each that was ticked, one after another,
each in a conversation of its own. No book's text stands in another one's question, and no answer is made of
others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from app.desk.answers import AnswerQueue
from app.desk.reader import last_limit
from app.desk.requests import Requests
from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import BookAnswer
from app.errors import is_away
from app.render.markdown import Citation
from app.store.book_entry import BookEntry
from app.store.history import History
from app.store.library import Library
from app.store.turns import StoredTurn, level_pieces, new_id
from core.documents.document import Document
from core.text.words import translated as _

MOST_BOOKS = 8
SHOWN_PLACES = 8
Cite = Callable[[StoredTurn, StoredTurn | None, Document], Sequence[Citation]]


class SeveralBooks:
    """Knows which books are asked too, and asks them while nothing else is answered. Thread-safe."""

    def __init__(
        self, store: Store, library: Library, history: History, *, requests: Requests, answers: AnswerQueue
    ) -> None:
        self._store, self._library, self._history = store, library, history
        self._requests, self._answers = requests, answers
        self._lock = threading.Lock()
        self._cite: Cite = lambda *_answer: ()

    def cite_with(self, cite: Cite) -> None:
        """The marks of an answer to a question, by which its places are named."""
        self._cite = cite

    def tick(self, book_id: str) -> None:
        """Has a book asked too beside the open one, or no longer."""
        shelf, beside = {one.id for one in self._library.entries()}, self._store.state.book_id
        before = tuple(one for one in self._store.state.asked_too if shelf.issuperset(one))
        if (beside, book_id) in before:
            self._store.update(asked_too=tuple(one for one in before if one != (beside, book_id)))
        elif sum(one[0] == beside for one in before) >= MOST_BOOKS:
            words = _("A question is put to up to {count} more books. Untick one first.")
            self._store.say(words.format(count=MOST_BOOKS), "info")
        elif book_id in shelf:
            self._store.update(asked_too=(*before, (beside, book_id)))

    @property
    def chosen(self) -> list[BookEntry]:
        """The books that are asked too beside the open one, in the order they were ticked; never itself."""
        state, shelf = self._store.state, {one.id: one for one in self._library.entries() if not one.missing}
        return [
            shelf[one]
            for beside, one in state.asked_too
            if beside == state.book_id and one in shelf and one != beside
        ]

    def ask(self, question: str) -> None:
        """Puts the question to each of them, once the open book's is answered, and behind those that wait
        with an earlier one.
        """
        if books := self.chosen:
            here = self._store.state.conversation_id
            asked = tuple(BookAnswer(one.id, one.title, new_id(), question, asked_in=here) for one in books)
            self._store.update(lambda now: replace(now, book_answers=(*_unfinished(now), *asked)))
            self.advance()

    def advance(self) -> None:
        """Takes in the answer that has ended, and asks the next book if nothing else is answered."""
        with self._lock:
            for one in self._store.state.book_answers:
                if one.state == "writing" and not self._store.state.is_answered(one.conversation_id):
                    self._put(self._ended(one))
            for one in self._store.state.book_answers:
                if one.state == "waiting" and not self._store.state.busy:
                    self._begin(one)

    def drop(self, question: str | None = None) -> None:
        """Asks no more of them, or not this question; what is answered stays."""
        self._store.update(lambda now: replace(now, book_answers=_asked(now, question)))

    def put_away(self) -> None:
        """Shows the answers beside the open conversation no more; each stays in its book's own."""

        def without(now: AppState) -> AppState:
            here = now.shown_book_answers
            return replace(now, book_answers=tuple(one for one in now.book_answers if one not in here))

        self._store.update(without)

    def _begin(self, one: BookAnswer) -> None:
        book = self._library.find(one.book_id)
        if book is None:
            why = _("The data folder is not there: with it back, the book is, too.")
            why = why if is_away() else _("Its text is gone or damaged.")
            self._put(replace(one, state="failed", pieces=((why, ""),)))
            return
        limit = last_limit(self._history, self._library, one.book_id)
        ask = self._requests.about(book, one.question, one.conversation_id, spoiler_limit=limit)
        self._put(replace(one, state="writing"))  # before: its end may come at once
        if not self._answers.begin(ask):
            self._put(one)

    def _ended(self, one: BookAnswer) -> BookAnswer:
        turns, book = self._history.turns(one.conversation_id), self._library.find(one.book_id)
        if len(turns) < 2 or book is None:
            return replace(one, state="failed")
        question, answer = turns[-2:]
        failed = answer.state == "failed"
        said = ((answer.extra.get("error", ""), ""),) if failed else level_pieces(answer)
        marks = self._cite(answer, question, book)
        leading, unsure = (
            [mark for mark in marks if _leads(mark)],
            any(one.kind == "nothing" for one in marks),
        )
        places: dict[str, tuple[int, int, str]] = {}  # of each place that it names, the first
        for mark in leading:
            places.setdefault(mark.where, (mark.offset, mark.length, mark.where))
        state = "failed" if failed else "finished"
        shown = tuple(places.values())[:SHOWN_PLACES]
        return replace(one, state=state, pieces=tuple(said), places=shown, unsure=unsure)

    def _put(self, changed: BookAnswer) -> None:
        def put(now: AppState) -> AppState:
            same = changed.conversation_id
            return replace(
                now,
                book_answers=tuple(
                    changed if one.conversation_id == same else one for one in now.book_answers
                ),
            )

        self._store.update(put)


def _asked(now: AppState, dropped: str | None) -> tuple[BookAnswer, ...]:
    return tuple(
        one
        for one in now.book_answers
        if one.state != "waiting" or dropped is not None and one.question != dropped
    )


def _unfinished(now: AppState) -> tuple[BookAnswer, ...]:
    return tuple(one for one in now.book_answers if one.state in ("waiting", "writing"))


def _leads(mark: Citation) -> bool:
    return mark.offset is not None and mark.kind != "nothing" and bool(mark.where)
