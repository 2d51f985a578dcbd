"""The one place that replaces the state of the desk, and tells who watches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from app.desk.file_failures import of_file
from app.desk.state import AppState
from app.desk.values import Arrival, Notice, Remedy
from core.text.words import translated as _


class Store:
    """Holds the state. Thread-safe: a state is replaced whole, and whoever holds an older one keeps that."""

    def __init__(self) -> None:
        self._lock, self._state = threading.Lock(), AppState()
        self._watchers: tuple[Callable[[], None], ...] = ()

    @property
    def state(self) -> AppState:
        """The newest."""
        return self._state

    def update(self, change: Callable[[AppState], AppState] | None = None, **fields: object) -> AppState:
        """Replaces the state by what `change` makes of it, with these `fields`, and tells who watches; the
        new state. `change` runs under the lock: it may call nothing but what values have.
        """
        with self._lock:
            state = self._state if change is None else change(self._state)
            self._state = state = replace(state, **fields) if fields else state
        self.tell()
        return state

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called after every change, from any thread, also with locks of others held: it must only
        take notice.
        """
        self._watchers = (*self._watchers, told)

    def tell(self) -> None:
        """What is shown beside the state has changed: books, turns, the engine."""
        for told in self._watchers:
            told()

    def say(self, text: str, kind: str = "error", *remedies: Remedy) -> None:
        """Puts a message above the conversation, with the buttons that help."""
        self.update(notice=Notice(text, kind, remedies=remedies))

    def fail(self, name: str, why: str, *, stored_as: str = "") -> None:
        """Puts why the file called `name` was not opened beside the message, until the person closes it or
        goes on; `stored_as`: see app.desk.file_failures.
        """
        said = of_file(name, why, stored_as=stored_as)
        self.update(lambda now: replace(now, failures=tuple(dict.fromkeys((*now.failures, said)))))

    def arrive(self, book_id: str, words: str) -> None:
        """Puts what came of a book's file beside the message, until the person closes it or goes on."""
        said = Arrival(book_id, words)
        self.update(lambda now: replace(now, arrivals=(*now.arrivals_but(book_id), said)))

    def refuse_while_busy(self) -> bool:
        """Says that an answer is being written or the data being moved, if that is so."""
        if self._state.busy:
            self.say(_("An answer is being written. Stop it first."), "info")
        return self._state.busy or self.refuse_while_moving()

    def refuse_while_answered(self, name: str) -> bool:
        """Says that the book or the conversation of this id gets an answer now, or that the data is being
        moved, if that is so.
        """
        answered = self._state.is_answered(name)
        if answered:
            self.say(_("An answer is being written here. Stop it first."), "info")
        return answered or self.refuse_while_moving()

    def refuse_while_moving(self) -> bool:
        """Says that the data is being moved, if it is."""
        if self._state.is_moving:
            self.say(_("Your data is being moved. Wait for its end, or cancel it."), "info")
        return self._state.is_moving
