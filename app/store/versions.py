"""The other versions of an answer, in the database: kept beside the one that stands, changing places with it.
Whoever calls holds the lock, and a transaction.
"""

from __future__ import annotations

import json
import sqlite3

from app.store.turns import told_chars

_TURN = "WHERE conversation_id = ? AND number = ?"
_NEWEST = f"SELECT MAX(version) FROM versions {_TURN}"


def keep(db: sqlite3.Connection, talk: str, number: int) -> None:
    """Keeps the answer as it is now beside the one that is going to take its place."""
    db.execute(
        f"""INSERT INTO versions (conversation_id, number, version, text, state, extra)
            SELECT conversation_id, number, COALESCE(({_NEWEST}), 0) + 1, text, state, extra
            FROM turns {_TURN}""",
        (talk, number, talk, number),
    )


def let_stand(db: sqlite3.Connection, talk: str, number: int, version: int) -> None:
    """Lets an earlier version stand; the one that stood becomes one of the others."""
    key = (talk, number, version)
    where = f"{_TURN} AND version = ?"
    chosen = db.execute(f"SELECT text, state, extra FROM versions {where}", key).fetchone()
    if chosen is None:
        return
    db.execute(f"DELETE FROM versions {where}", key)
    keep(db, talk, number)
    db.execute(f"UPDATE turns SET text = ?, state = ?, extra = ? {_TURN}", (*chosen, talk, number))


def stand_back(db: sqlite3.Connection, talk: str, number: int) -> bool:
    """An answer that broke off gives way to the one in whose place it was written, the newest version, where
    that is complete or tells more; whether it does.
    """
    query = f"SELECT text, state, extra FROM turns {_TURN}"
    answer = db.execute(query, (talk, number)).fetchone()
    query = f"SELECT version, text, state, extra FROM versions {_TURN} ORDER BY version DESC LIMIT 1"
    newest = db.execute(query, (talk, number)).fetchone()
    if answer is None or newest is None:
        return False
    version, *earlier = newest
    better = earlier[1] == "finished" or _told(*earlier) > _told(*answer)
    if better:
        let_stand(db, talk, number, version)
    return better


def _told(text: str, _state: str, extra: str) -> int:
    return told_chars(text, json.loads(extra).get("stands", ()))
