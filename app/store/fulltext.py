"""The full-text index of what was said in all conversations, earlier versions of answers with it: kept up to
date by the database itself, searched, and emptied of what was deleted.

The index stands beside turns and versions and holds words and places, no text; a version's place is its row's
number below zero. What is being written is not in it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass

from app.store.turns import StoredTurn, displayed_text, question_title
from core.text.packing import from_json, from_text
from core.text.renamed import renamed

MOST_FOUND = 100
# scripts that write no spaces: each letter is a word, and words are looked for in a row
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_SECURE = (3, 42)  # SQLite from here on takes words out of the index for good when their row is deleted
_TABLE = """CREATE VIRTUAL TABLE IF NOT EXISTS said
            USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"""
_TRIGGERS = """
CREATE TEMP TRIGGER said_in AFTER INSERT ON main.turns WHEN new.state <> 'writing' BEGIN
    INSERT INTO said(rowid, text) VALUES (new.rowid, searchable(new.text)); END;
CREATE TEMP TRIGGER said_out AFTER DELETE ON main.turns WHEN old.state <> 'writing' BEGIN
    INSERT INTO said(said, rowid, text) VALUES ('delete', old.rowid, searchable(old.text)); END;
CREATE TEMP TRIGGER said_before AFTER UPDATE OF text, state ON main.turns WHEN old.state <> 'writing' BEGIN
    INSERT INTO said(said, rowid, text) VALUES ('delete', old.rowid, searchable(old.text)); END;
CREATE TEMP TRIGGER said_now AFTER UPDATE OF text, state ON main.turns WHEN new.state <> 'writing' BEGIN
    INSERT INTO said(rowid, text) VALUES (new.rowid, searchable(new.text)); END;
CREATE TEMP TRIGGER version_in AFTER INSERT ON main.versions BEGIN
    INSERT INTO said(rowid, text) VALUES (-new.rowid, searchable(new.text)); END;
CREATE TEMP TRIGGER version_out AFTER DELETE ON main.versions BEGIN
    INSERT INTO said(said, rowid, text) VALUES ('delete', -old.rowid, searchable(old.text)); END;
"""
_ALL = """
SELECT rowid, searchable(text) FROM turns WHERE state <> 'writing'
UNION ALL SELECT -rowid, searchable(text) FROM versions
"""
_FIND = """
SELECT talk.id, talk.book_id, talk.title, COALESCE(turns.number, versions.number),
    COALESCE(turns.role, 'assistant'), COALESCE(turns.text, versions.text), COALESCE(version, 0),
    COALESCE(turns.extra, versions.extra), asked.text, asked.extra
FROM said LEFT JOIN turns ON turns.rowid = said.rowid LEFT JOIN versions ON versions.rowid = -said.rowid
JOIN conversations AS talk ON talk.id = COALESCE(turns.conversation_id, versions.conversation_id)
LEFT JOIN turns AS asked ON asked.conversation_id = talk.id
    AND asked.number = COALESCE(turns.number, versions.number) - 1
WHERE said MATCH ? AND forgotten IS NULL ORDER BY rank LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn that holds what was looked for. `version`: of an answer that another has taken the place of; 0:
    it stands. `spoiler_limit`: the limit under which it was said. `under`: of an answer its question, of a
    question its conversation's name.
    """

    conversation_id: str
    book_id: str
    under: str
    number: int
    role: str
    text: str
    version: int
    spoiler_limit: int | None


def prepare_index(db: sqlite3.Connection) -> bool:
    """Makes the index, or what of it is missing, and keeps it up to date on this connection. False where this
    SQLite has none.
    """
    db.create_function("searchable", 1, searchable, deterministic=True)
    try:
        db.execute(_TABLE)
    except sqlite3.OperationalError as error:
        if "no such module" in str(error):
            return False
        raise
    if sqlite3.sqlite_version_info >= _SECURE:
        db.execute("INSERT INTO said(said, rank) VALUES ('secure-delete', 1)")
    db.executescript(_TRIGGERS)
    count = f"SELECT (SELECT COUNT(*) FROM ({_ALL})), (SELECT COUNT(*) FROM said_docsize)"
    turns, indexed = db.execute(count).fetchone()
    if turns != indexed:
        _anew(db)
    return True


def search(db: sqlite3.Connection, words: str) -> list[FoundTurn]:
    """The turns and versions that hold all the words, the last of which may go on; what fits best first."""
    wanted = [searchable(word).replace('"', " ") for word in words.split() if re.search(r"\w", word)]
    if not wanted:
        return []
    query = " ".join(f'"{word}"' for word in wanted) + "*"
    rows = db.execute(_FIND, (query, MOST_FOUND)).fetchall()
    return [
        FoundTurn(
            talk,
            book,
            from_text(title) if said[1] == "user" else _short_question(asked, asked_with),
            *said,
            spoiler_limit=renamed(json.loads(extra)).get("spoiler_limit"),
        )
        for talk, book, title, *said, extra, asked, asked_with in rows
    ]


def _short_question(text: str, extra: str) -> str:
    return question_title(displayed_text(StoredTurn(0, "user", text, "finished", renamed(from_json(extra)))))


def purge(db: sqlite3.Connection) -> None:
    """Leaves no word of deleted turns in the index; an older SQLite keeps them until it is made anew."""
    if sqlite3.sqlite_version_info < _SECURE:
        _anew(db)


def searchable(text: str) -> str:
    """The text as it is indexed and looked for."""
    return _UNSPACED.sub(r" \g<0> ", text)


def _anew(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO said(said) VALUES ('delete-all')")
    db.execute(f"INSERT INTO said(rowid, text) {_ALL}")
