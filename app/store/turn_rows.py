"""Conversations and their turns, read from the rows of the database. Knows nothing of what is not on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.store.turns import Conversation, StoredTurn
from core.text.packing import from_json, from_text
from core.text.renamed import renamed


class TurnRows(NamedTuple):
    """What the database has of one conversation: its turns, and of each answer the numbers, texts and limits
    of its other versions.
    """

    conversation_id: str
    turns: Sequence[tuple[int, str, str, str, str]]
    versions: Mapping[int, Sequence[tuple[int, str, int | None]]]

    def as_turns(self) -> list[StoredTurn]:
        """In order."""
        return [self._turn(*row) for row in self.turns]

    def _turn(self, number: int, role: str, text: str, state: str, extra: str) -> StoredTurn:
        others = self.versions.get(number, ())
        return StoredTurn(
            number,
            role,
            text,
            state,
            renamed(from_json(extra)),
            versions=tuple((version, other) for version, other, _limit in others),
            version_limits=tuple(limit for _version, _other, limit in others),
        )


def read_rows(db: sqlite3.Connection, conversation_id: str) -> TurnRows:
    """Those of one conversation. Raises sqlite3.Error."""
    query = "SELECT number, role, text, state, extra FROM turns WHERE conversation_id = ? ORDER BY number"
    turns = db.execute(query, (conversation_id,)).fetchall()
    query = "SELECT number, version, text, extra FROM versions WHERE conversation_id = ? ORDER BY version"
    versions: dict[int, list[tuple[int, str, int | None]]] = {}
    for number, version, text, extra in db.execute(query, (conversation_id,)):
        limit = renamed(from_json(extra)).get("spoiler_limit")
        versions.setdefault(number, []).append((version, text, limit))
    return TurnRows(conversation_id, turns, versions)


def read_talks(db: sqlite3.Connection, book_id: str) -> list[Conversation]:
    """The book's conversations that hold at least one turn, newest first, after the pinned ones."""
    query = """SELECT id, book_id, title, updated, until, pinned FROM conversations
               WHERE book_id = ? AND forgotten IS NULL
               AND EXISTS (SELECT 1 FROM turns WHERE conversation_id = id)
               ORDER BY pinned DESC, updated DESC, rowid DESC"""
    return [
        Conversation(one, book, from_text(title), *rest, pinned=bool(pinned))
        for one, book, title, *rest, pinned in db.execute(query, (book_id,))
    ]
