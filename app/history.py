"""Conversations in SQLite, written as they happen. Knows books only by their id."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.ask import Ask, Exchange
from core.text.words import translated as _

SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, book_id TEXT NOT NULL, title TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, until INTEGER);
CREATE TABLE IF NOT EXISTS turns (
    conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    number INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, extra TEXT NOT NULL,
    PRIMARY KEY (conversation_id, number));
CREATE INDEX IF NOT EXISTS by_book ON conversations(book_id, updated);
"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation about one book (`book_id` is empty without a book). `until`: see core.ask.Ask."""

    id: str
    book_id: str
    title: str
    updated: float
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `state` of an answer: writing | finished | stopped | failed. `extra` is plain JSON (ids,
    pieces, stats).
    """

    number: int
    role: str  # "user" | "assistant"
    text: str
    state: str
    extra: dict


class History:
    """The conversations of one data folder. Thread-safe; every change is on disk when the call returns."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA journal_mode = WAL")
        # deleted text must not stay readable in free pages
        self._db.execute("PRAGMA secure_delete = ON")
        self._db.executescript(SCHEMA)
        if "until" not in [column[1] for column in self._db.execute("PRAGMA table_info(conversations)")]:
            self._db.execute("ALTER TABLE conversations ADD COLUMN until INTEGER")  # of an earlier version

    def close(self) -> None:
        """Ends the connection; the object is of no use afterwards."""
        with self._lock:
            self._db.close()

    @property
    def version(self) -> int:
        """Rises with every change of a conversation."""
        return self._db.total_changes

    def create(self, book_id: str, until: int | None = None) -> Conversation:
        """A new, empty conversation about the book, or what of it may be read."""
        now = self._clock()
        made = Conversation(uuid.uuid4().hex, book_id, _("New conversation"), now, until)
        with self._lock:
            self._db.execute(
                "INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?)",
                (made.id, book_id, made.title, now, now, until),
            )
        return made

    def limit(self, conversation_id: str, until: int | None) -> None:
        """Sets how far the book may be read in a conversation from now on."""
        with self._lock:
            self._db.execute("UPDATE conversations SET until = ? WHERE id = ?", (until, conversation_id))

    def conversations(self, book_id: str) -> list[Conversation]:
        """The book's conversations that hold at least one turn, newest first."""
        query = """SELECT id, book_id, title, updated, until FROM conversations
                   WHERE book_id = ? AND EXISTS (SELECT 1 FROM turns WHERE conversation_id = id)
                   ORDER BY updated DESC, rowid DESC"""
        with self._lock:
            return [Conversation(*row) for row in self._db.execute(query, (book_id,))]

    def turns(self, conversation_id: str) -> list[Turn]:
        """The conversation's turns in order; empty for an unknown conversation."""
        query = "SELECT number, role, text, state, extra FROM turns WHERE conversation_id = ? ORDER BY number"
        with self._lock:
            rows = self._db.execute(query, (conversation_id,)).fetchall()
        return [
            Turn(number, role, text, state, json.loads(extra)) for number, role, text, state, extra in rows
        ]

    def add(
        self,
        conversation_id: str,
        role: str,
        text: str,
        *,
        state: str = "finished",
        extra: dict | None = None,
    ) -> int:
        """Appends a turn and returns its number. The first question names the conversation."""
        with self._lock:
            (number,) = self._db.execute(
                "SELECT COALESCE(MAX(number), 0) + 1 FROM turns WHERE conversation_id = ?", (conversation_id,)
            ).fetchone()
            self._db.execute(
                "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?)",
                (conversation_id, number, role, text, state, json.dumps(extra or {})),
            )
            self._db.execute(
                "UPDATE conversations SET updated = ? WHERE id = ?", (self._clock(), conversation_id)
            )
            if role == "user" and number == 1:
                self._db.execute(
                    "UPDATE conversations SET title = ? WHERE id = ?", (_title(text), conversation_id)
                )
        return number

    def ask(self, conversation_id: str, ask: Ask) -> int:
        """Appends a question with the choices around it, so that it can be asked again; see `asked_again`."""
        choices = {
            "summary": ask.question is None,
            "chapters": ask.chapters,
            "fit": ask.fit,
            "until": ask.until,
            "summary_length": ask.summary_length,
        }
        return self.add(conversation_id, "user", wording(ask), extra=choices)

    def update(
        self, conversation_id: str, number: int, text: str, *, state: str, extra: dict | None = None
    ) -> None:
        """Replaces a turn's text and state, and `extra` when given."""
        with self._lock:
            if extra is None:
                self._db.execute(
                    "UPDATE turns SET text = ?, state = ? WHERE conversation_id = ? AND number = ?",
                    (text, state, conversation_id, number),
                )
            else:
                self._db.execute(
                    "UPDATE turns SET text = ?, state = ?, extra = ? WHERE conversation_id = ? AND number = "
                    "?",
                    (text, state, json.dumps(extra), conversation_id, number),
                )

    def forget_book(self, book_id: str) -> list[str]:
        """Deletes all conversations about the book, for good, and returns their ids."""
        with self._lock:
            ids = [
                row[0]
                for row in self._db.execute("SELECT id FROM conversations WHERE book_id = ?", (book_id,))
            ]
            self._db.execute("DELETE FROM conversations WHERE book_id = ?", (book_id,))
            self._checkpoint()
        return ids

    def forget(self, conversation_id: str) -> None:
        """Deletes one conversation."""
        with self._lock:
            self._db.execute("DELETE FROM conversations WHERE id = ?", (conversation_id,))
            self._checkpoint()

    def _checkpoint(self) -> None:
        # the write-ahead log still holds what was deleted
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def settle(self) -> int:
        """Answers still marked as being written (the app was killed) become `stopped`. Returns how many."""
        with self._lock:
            return self._db.execute("UPDATE turns SET state = 'stopped' WHERE state = 'writing'").rowcount

    def markdown(self, conversation_id: str, *, book: str = "") -> str:
        """The conversation as a Markdown page."""
        lines = [f"# {_title(book) or _('Conversation')}", ""]
        for turn in self.turns(conversation_id):
            lines += [f"## {turn.text}" if turn.role == "user" else turn.text, ""]
            if turn.extra.get("sources"):
                read = _("Read for this answer: {sources}").format(sources="; ".join(turn.extra["sources"]))
                lines += [f"*{read}*", ""]
        return "\n".join(lines)


def wording(ask: Ask) -> str:
    """What stands in a conversation as the question."""
    if ask.question is not None:
        return ask.question
    if ask.chapters is None:
        return _("Summarize this book")
    first, last = ask.chapters
    if first == last:
        return _("Summarize chapter {number}").format(number=first)
    return _("Summarize chapters {first} to {last}").format(first=first, last=last)


def asked_again(question: Turn) -> Ask:
    """A question as it was asked, without book and history."""
    chapters = question.extra.get("chapters")
    return Ask(
        question=None if question.extra.get("summary") else question.text,
        chapters=tuple(chapters) if chapters else None,
        fit=question.extra.get("fit", "auto"),
        summary_length=question.extra.get("summary_length", "page"),
    )


def exchanges(turns: Sequence[Turn], until: int | None = None) -> tuple[Exchange, ...]:
    """What was said, for the engine: a question whose answer failed or never began would confuse the next,
    and one answered from what lies behind the limit would tell it.
    """
    return tuple(
        Exchange(question.text, answer.text, tuple(answer.extra.get("ids", ())))
        for question, answer in zip(turns[::2], turns[1::2], strict=False)
        if answer.state != "failed" and answer.text and _within(answered_until(question, answer), until)
    )


def answered_until(question: Turn | None, answer: Turn) -> int | None:
    """The limit under which an answer was given. One made anew may have another than its question had."""
    extra = answer.extra if question is None or "until" in answer.extra else question.extra
    return extra.get("until")


def _within(answered: int | None, until: int | None) -> bool:
    return until is None or (answered is not None and answered <= until)


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57].rstrip() + "…"
