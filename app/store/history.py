"""Conversations in SQLite, written as they happen. Knows books only by their id."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from app.errors import in_words
from app.store import fulltext, versions
from app.store.database import check_place, connect, file_at, reopened
from app.store.making_room import with_room
from app.store.turn_rows import TurnRows, read_rows, read_talks
from app.store.turns import (
    Conversation,
    StoredTurn,
    choices,
    displayed_text,
    fork_title,
    is_fork_title,
    new_id,
    numbered_title,
    question_title,
    wording,
)
from app.store.unwritten import UnwrittenAnswer, UnwrittenTurns
from core.request import Request
from core.text.packing import from_text, to_json_text, to_text
from core.text.words import joined_sentences
from core.text.words import translated as _

_WRITING = "SELECT conversation_id, number FROM turns WHERE state = 'writing'"


class History:
    """The conversations of one data folder. Thread-safe; every change is on disk when the call returns."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._lock = threading.RLock()
        self.path, self._clock = path, clock
        self._db, self.warning = connect(path)  # `warning`: what the person is to be told of the file
        self._file, self._indexed = file_at(path), fulltext.prepare_index(self._db)
        # what the disk had no room for: shown, and written with the next that can be
        self._failures, self._refusal = 0, ""
        self._held, self._holds = UnwrittenTurns(), False
        self._unwritten: dict[tuple[str, int], UnwrittenAnswer] = {}
        self._forks: dict[str, tuple[str, int]] = {}  # not made yet: of which conversation, up to which turn
        self._left_writing: frozenset[tuple[str, int]] = frozenset()  # by an earlier run: told as stopped
        self._last = TurnRows("", (), {})  # what `turns` read last: told while nothing can be

    def close(self) -> None:
        """Ends the connection; the object is of no use afterwards."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):
                self._write()
            self._db.close()

    def copy_to(self, path: Path) -> None:
        """Writes all of it to another file, as it is at this moment. Raises sqlite3.Error."""
        with self._lock, contextlib.closing(sqlite3.connect(path)) as other:
            self._db.backup(other)

    @property
    def version(self) -> int:
        """Rises with every change of a conversation."""
        return self._db.total_changes + self._failures

    @property
    def waits(self) -> bool:
        """Whether something could not be written yet: see `store_again`."""
        return bool(self._held.turns or self._unwritten)

    def create(self, book_id: str, spoiler_limit: int | None = None, name: str = "") -> Conversation:
        """A new, empty conversation about the book, or what of it may be read. `name`: a `new_id`, where it
        has one already.
        """
        with self.together():
            now = self._now()
            made = Conversation(name or new_id(), book_id, _("New conversation"), now, spoiler_limit)
            if self._holds:
                self._held.talks[made.id] = made
            else:
                self._db.execute(
                    "INSERT INTO conversations (id, book_id, title, created, updated, until) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (made.id, book_id, to_text(made.title), now, now, spoiler_limit),
                )
            if made.id in self._forks:
                self._fill(made)
        return made

    def limit(self, conversation_id: str, spoiler_limit: int | None) -> None:
        """Sets how far the book may be read in a conversation from now on."""
        with self._lock:
            self.store_again()
            self._set("until = ?", conversation_id, spoiler_limit)

    def conversations(self, book_id: str) -> list[Conversation]:
        """The book's conversations that hold at least one turn, newest first, after the pinned ones."""
        with self._lock:
            return self._held.about(book_id) + read_talks(self._db, book_id)

    def rename(self, conversation_id: str, title: str) -> None:
        """Gives a conversation another name."""
        self._set("title = ?", conversation_id, to_text(title))

    def pin(self, conversation_id: str) -> None:
        """Pins a conversation before the others, or no longer."""
        with self._lock:
            self.store_again()
            self._set("pinned = 1 - pinned", conversation_id)

    def turns(self, conversation_id: str) -> list[StoredTurn]:
        """The conversation's turns in order; empty for an unknown conversation. While its drive is away, the
        conversation that was read last is told as it was.
        """
        if conversation_id in self._forks and not self.title(conversation_id):
            return self._up_to(*self._forks[conversation_id])
        with self._lock:
            try:
                self._last = read_rows(self._db, conversation_id)
            except sqlite3.Error as error:
                if self._reached_again(error):
                    return self.turns(conversation_id)
                if self._last.conversation_id != conversation_id:
                    raise
            found, held = self._last.as_turns(), self._held.of(conversation_id)
            return [self._told(conversation_id, turn) for turn in (*found, *held)]

    def _told(self, conversation_id: str, turn: StoredTurn) -> StoredTurn:
        """The turn as it is to be shown, whatever the disk has of it."""
        key = (conversation_id, turn.number)
        if turn.state == "writing" and key in self._left_writing:
            turn = replace(turn, state="stopped")
        late = self._unwritten.get(key)
        return late.over(turn, self._refusal) if late else turn

    def use_version(self, conversation_id: str, number: int, version: int) -> None:
        """Lets an earlier version of an answer stand; the one that stood becomes one of the others."""
        self.store_again()
        with self.together():
            versions.let_stand(self._db, conversation_id, number, version)

    def stand_back(self, conversation_id: str, number: int) -> bool:
        """An answer that broke off gives way to the one before it, where that is complete or tells more;
        whether it does.
        """
        with self.together():
            return versions.stand_back(self._db, conversation_id, number)

    def fork(self, conversation_id: str, number: int) -> str:
        """The id of a copy up to and with turn `number`, named by the question there until one is asked."""
        self.store_again()
        made = self.fork_later(conversation_id, number)
        query = "SELECT book_id, until FROM conversations WHERE id = ?"
        with self._lock:
            row = self._db.execute(query, (self._forks[made][0],)).fetchone()
            return self.create(*row, made).id

    def fork_later(self, conversation_id: str, number: int) -> str:
        """The id of such a copy that is made when it is created, with a question; until then `turns` tells
        what will be in it, and nothing of it is on disk.
        """
        made, origin = new_id(), conversation_id
        if not self.title(origin) and origin in self._forks:
            origin, _last = self._forks[origin]
        self._forks[made] = (origin, number)
        return made

    def _up_to(self, conversation_id: str, last: int) -> list[StoredTurn]:
        said = self.turns(conversation_id)
        return [replace(turn, versions=()) for turn in said if turn.number <= last]

    def _fill(self, made: Conversation) -> None:
        """Copies what a fork goes on from; again, where the disk did not take it."""
        copied = self._up_to(*self._forks[made.id])
        if self._holds:
            del self._forks[made.id]
        for turn in copied:
            self.add(made.id, turn.role, turn.text, state=turn.state, extra=turn.extra)
        if not self._holds and (asked := [displayed_text(one) for one in copied if one.role == "user"]):
            self.rename(made.id, fork_title(asked[-1]))

    def add(
        self,
        conversation_id: str,
        role: str,
        text: str,
        *,
        state: str = "finished",
        extra: dict | None = None,
    ) -> int:
        """Appends a turn and returns its number. The first question names the conversation, or the fork."""
        with self._lock:
            (number,) = self._db.execute(
                "SELECT COALESCE(MAX(number), 0) + 1 FROM turns WHERE conversation_id = ?", (conversation_id,)
            ).fetchone()
            if self._holds:
                number += len(self._held.of(conversation_id))
                self._held.add(conversation_id, StoredTurn(number, role, text, state, extra or {}))
                return number
            self._db.execute(
                "INSERT INTO turns (conversation_id, number, role, text, state, extra) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (conversation_id, number, role, text, state, to_json_text(extra or {})),
            )
            self._set("updated = ?", conversation_id, self._now())
            if role == "user" and (number == 1 or is_fork_title(self.title(conversation_id))):
                self._name_apart(conversation_id, question_title(text))
        return number

    def _name_apart(self, conversation_id: str, title: str) -> None:
        talks = self.conversations(self.book_of(conversation_id))
        taken = {one.title for one in talks if one.id != conversation_id}
        self.rename(conversation_id, numbered_title(title, taken))

    def ask(self, conversation_id: str, ask: Request) -> int:
        """Appends a question with the choices around it, so that it can be asked again; see `asked_again`."""
        return self.add(conversation_id, "user", wording(ask), extra=choices(ask))

    def note(self, conversation_id: str, number: int, **values: object) -> None:
        """Changes these of a turn's `extra`: at a question since which turn what is said goes to the engine
        ("since") with what is "told" of those before, in which "reading_mode" it is asked again; with an
        answer what plain decoding said beside it ("compared").
        """
        with self._lock:
            if self._held.note(conversation_id, number, values):
                return
            self.store_again()
            key, where = (conversation_id, number), "WHERE conversation_id = ? AND number = ?"
            for extra in self._db.execute(f"SELECT extra FROM turns {where}", key).fetchall():
                changed = json.dumps({**json.loads(*extra), **json.loads(to_json_text(values))})
                self._db.execute(f"UPDATE turns SET extra = ? {where}", (changed, *key))

    def update(
        self,
        conversation_id: str,
        number: int,
        text: str,
        *,
        state: str,
        extra: dict | None = None,
        keeps_version: bool = False,
    ) -> None:
        """Replaces a turn's text and state, and `extra` when given; what stood there is kept as a version
        where it `keeps_version`. Raises sqlite3.Error where it cannot be written; `turns` tells it all the
        same, and the next change writes it, or `store_again`.
        """
        with self._lock:
            key = (conversation_id, number)
            late = UnwrittenAnswer(text, state, extra, keeps_version)
            self._unwritten[key] = late.behind(self._unwritten.pop(key, None))
            self.store_again()

    def store_again(self) -> None:
        """Writes what could not be written before. Raises sqlite3.Error where it still cannot be."""
        with self._lock:
            try:
                with_room(self._write)
            except sqlite3.Error as error:
                self._failures, self._refusal = self._failures + 1, in_words(error)
                raise

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """What this thread adds in the block is held in memory, and written with what the disk had no room
        for; nothing of it where the block raises.
        """
        with self._lock:
            before, self._holds = self._held.copy(), True
            try:
                yield
            except BaseException:
                self._held = before
                raise
            finally:
                self._holds, self._failures = False, self._failures + 1

    def _write(self) -> None:
        with self.together():
            pass  # reached again, or raised
        if self._held.turns:
            self._write_held()
        for key, late in list(self._unwritten.items()):
            with self.together():
                if late.keeps_version:
                    versions.keep(self._db, *key)
                self._db.execute(
                    "UPDATE turns SET text = ?, state = ? WHERE conversation_id = ? AND number = ?",
                    (late.text, late.state, *key),
                )
                if late.extra is not None:
                    self._db.execute(
                        "UPDATE turns SET extra = ? WHERE conversation_id = ? AND number = ?",
                        (to_json_text(late.extra), *key),
                    )
            del self._unwritten[key]

    def _write_held(self) -> None:
        with self.together():
            for talk in self._held.talks.values():
                self.create(talk.book_id, talk.spoiler_limit, talk.id)
            for conversation_id, turn in self._held.all():
                self.add(conversation_id, turn.role, turn.text, state=turn.state, extra=turn.extra)
        self._held = UnwrittenTurns()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """All that the block writes is written, or nothing of it."""
        with self._lock:
            outermost = not self._db.in_transaction
            try:
                if outermost and not self._holds:
                    check_place(self.path, self._file)
                self._db.execute("SAVEPOINT together")
            except sqlite3.Error as error:
                if not self._reached_again(error):
                    raise
                self._db.execute("SAVEPOINT together")
            try:
                yield
                # the outermost writes: what a full disk refuses would stay open, and all that follows in it,
                # told as written and never on disk
                self._db.execute("RELEASE together")
            except BaseException:
                # where the disk is full SQLite may have rolled all of it back by itself
                with contextlib.suppress(sqlite3.Error):
                    if outermost:
                        self._db.execute("ROLLBACK")
                    else:
                        self._db.execute("ROLLBACK TO together")
                        self._db.execute("RELEASE together")
                raise

    def _reached_again(self, error: sqlite3.Error) -> bool:
        """Whether the file can be used again, after its drive was away."""
        db = None if self._db.in_transaction else reopened(self.path, error)
        if db is not None:
            self._failures += self._db.total_changes + 1  # `version` goes on rising
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            self._db, self._file = db, file_at(self.path)
            self._indexed = fulltext.prepare_index(db)
        return db is not None

    def _now(self) -> float:
        """The time, or later: a clock that was set back must not shuffle the conversations."""
        (newest,) = self._db.execute("SELECT COALESCE(MAX(updated), 0) FROM conversations").fetchone()
        return max(self._clock(), newest + 0.001)

    def bring_in(self, book_id: str, title: str, turns: Sequence[tuple], spoiler_limit: int | None) -> str:
        """A conversation from elsewhere: (role, text, state, extra) of each turn. Returns its id."""
        with self.together():
            made = self.create(book_id, spoiler_limit)
            for role, text, state, extra in turns:
                self.add(made.id, role, text, state=state, extra=extra)
            self._name_apart(made.id, question_title(title) or made.title)
        return made.id

    def title(self, conversation_id: str) -> str:
        """Its name; empty for an unknown one."""
        return self._known(conversation_id)[0]

    def book_of(self, conversation_id: str) -> str:
        """The book that a conversation is about; "" where it is about none, or is gone."""
        return self._known(conversation_id)[1]

    def _known(self, conversation_id: str) -> tuple[str, str]:
        """Its name and its book's id."""
        query = "SELECT title, book_id FROM conversations WHERE id = ?"
        with self._lock:
            if held := self._held.talks.get(conversation_id):
                return held.title, held.book_id
            row = self._db.execute(query, (conversation_id,)).fetchone()
        return (from_text(row[0]), row[1]) if row else ("", "")

    def forget_book(self, book_id: str) -> list[str]:
        """Deletes all conversations about the book, for good, and returns their ids."""
        return self._delete("book_id = ?", book_id)

    def search(self, words: str) -> list[fulltext.FoundTurn]:
        """What was said in any conversation and holds all these words; what fits best first."""
        with self._lock:
            return fulltext.search(self._db, words) if self._indexed else []

    def mark_forgotten(self, conversation_id: str, now: float) -> None:
        """Takes a conversation out of sight; `purge` deletes it. One that is not on disk is gone at once."""
        with self._lock:
            self._held.forget(conversation_id)
            self._set("forgotten = ?", conversation_id, now)

    def mark_again(self, now: float) -> list[str]:
        """Marks from `now` on what an earlier run had marked, and returns the ids."""
        with self._lock:
            self._db.execute("UPDATE conversations SET forgotten = ? WHERE forgotten IS NOT NULL", (now,))
            return self._ids("forgotten = ?", now)

    def unmark_forgotten(self, conversation_id: str) -> bool:
        """Brings a conversation back into sight; False when it is gone."""
        return self._set("forgotten = NULL", conversation_id) > 0

    def _set(self, what: str, conversation_id: str, *values: object) -> int:
        query = f"UPDATE conversations SET {what} WHERE id = ?"
        with self._lock:
            return self._db.execute(query, (*values, conversation_id)).rowcount

    def purge(self, before: float) -> list[str]:
        """Deletes for good what was marked before a time, and returns the ids."""
        return self._delete("forgotten <= ?", before)

    def _delete(self, which: str, value: str | float) -> list[str]:
        with self._lock:
            ids = self._ids(which, value)
            self._db.execute(f"DELETE FROM conversations WHERE {which}", (value,))
            self._unwritten = {key: late for key, late in self._unwritten.items() if key[0] not in ids}
            if ids and self._indexed:
                fulltext.purge(self._db)
            # the write-ahead log still holds what was deleted
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return ids

    def _ids(self, which: str, value: str | float) -> list[str]:
        query = f"SELECT id FROM conversations WHERE {which} ORDER BY updated"
        return [row[0] for row in self._db.execute(query, (value,))]

    def settle(self) -> int:
        """Answers still marked as being written (the app was killed) become `stopped`, or give way. How many;
        why that cannot be written, as on a full disk, is the `warning`, and they are told so all the same.
        """
        with self._lock:
            try:
                return len(with_room(self._stop))
            except sqlite3.Error as error:
                self.warning = joined_sentences(*filter(None, (self.warning, in_words(error))))
                with contextlib.suppress(sqlite3.Error):
                    self._left_writing = frozenset(self._db.execute(_WRITING).fetchall())
                return 0

    def _stop(self) -> list[tuple[str, int]]:
        with self.together():
            left = self._db.execute(_WRITING).fetchall()
            self._db.execute("UPDATE turns SET state = 'stopped' WHERE state = 'writing'")
            for key in left:
                self.stand_back(*key)
        return left
