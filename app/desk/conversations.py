"""What can be done with the conversations about the open book: names, pins, forks at a turn, and earlier
versions of an answer. An answer that is being written stays where it is.
"""

from __future__ import annotations

from dataclasses import replace

from app.desk.books import OpenBooks
from app.desk.store import Store
from app.store.history import History

TITLE_CHARS = 120


class Conversations:
    """Changes conversations of the history."""

    def __init__(self, store: Store, history: History, books: OpenBooks) -> None:
        self._store, self._history, self._books = store, history, books

    def rename(self, conversation_id: str, title: str) -> None:
        """Gives a conversation another name; an empty one changes nothing."""
        if title := " ".join(title.split())[:TITLE_CHARS]:
            self._history.store_again()
            self._history.rename(conversation_id, title)
            self._store.tell()

    def pin(self, conversation_id: str) -> None:
        """Puts a conversation before the others, or back among them."""
        self._history.pin(conversation_id)
        self._store.tell()

    def fork(self, number: int) -> bool:
        """Opens a copy of the conversation up to and with its turn `number`. False when there is none."""
        there = any(turn.number == number and turn.state != "writing" for turn in self._books.turns)
        if self._store.refuse_while_moving() or not there:
            return False
        talk = self._store.state.conversation_id
        self._books.open_conversation(self._history.fork(talk, number))
        return True

    def ask_otherwise(self, number: int) -> None:
        """Lays out what stands before the question `number`, for another wording of it. It is a copy once
        that is asked.
        """
        talk = self._store.state.conversation_id
        self._books.begin_conversation()
        if number > 1 and not self._store.state.conversation_id:
            self._store.update(conversation_id=self._history.fork_later(talk, number - 1))

    def use_version(self, number: int, version: int) -> None:
        """Lets an earlier version of the answer `number` stand in its place; the one that stood is kept."""
        talk = self._store.state.conversation_id
        if not self._store.refuse_while_answered(talk):
            self._history.use_version(talk, number, version)
            self._store.update(lambda now: replace(now, answer=now.answer_beside(talk)))
