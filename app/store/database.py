"""The file that conversations are kept in: opened and brought up to date, or kept aside where it cannot be
used. Knows nothing of what stands in it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

from core.errors import UserError
from core.text.words import translated as _

# what brings a file from version N to N + 1; the number of these is today's version (PRAGMA user_version)
STEPS = (
    """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, book_id TEXT NOT NULL, title TEXT NOT NULL,
    created REAL NOT NULL, updated REAL NOT NULL, until INTEGER);
CREATE TABLE IF NOT EXISTS turns (
    conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    number INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, extra TEXT NOT NULL,
    PRIMARY KEY (conversation_id, number));
CREATE INDEX IF NOT EXISTS by_book ON conversations(book_id, updated);
""",
    """
ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN forgotten REAL;
CREATE TABLE versions (
    conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
    number INTEGER NOT NULL, version INTEGER NOT NULL,
    text TEXT NOT NULL, state TEXT NOT NULL, extra TEXT NOT NULL,
    PRIMARY KEY (conversation_id, number, version));
""",
    """
-- titles and what `extra` holds may be messages from here on (core.text.packing)
""",
)
USED = (
    "SELECT id, book_id, title, created, updated, until, pinned, forgotten FROM conversations LIMIT 1",
    "SELECT conversation_id, number, role, text, state, extra FROM turns LIMIT 1",
    "SELECT conversation_id, number, version, text, state, extra FROM versions LIMIT 1",
)
# SQLite's words where the file is sound and its folder, the disk or another program stands in the way
OUTSIDE = ("unable to open", "readonly", "locked", "disk i/o", "disk is full")
OUT_OF_REACH = ("unable to open", "disk i/o")


class _Unusable(Exception):
    """The file is damaged, or a newer version's."""


def connect(path: Path) -> tuple[sqlite3.Connection, str]:
    """The database at `path`, and what the person is to be told: a file that is damaged or a newer version's
    is kept beside it under another name, and an empty one begun. Raises UserError where the file system
    stands in the way.
    """
    try:
        return _opened(path), ""
    except _Unusable as error:
        aside = _put_aside(path)
        words = _("{reason} It is kept as {aside}; new conversations are written to a new file.")
        return _opened(path), words.format(reason=error, aside=aside)


def reopened(path: Path, error: sqlite3.Error) -> sqlite3.Connection | None:
    """The database anew where its drive was away and is back: what was opened before stays out of reach.
    None where the `error` says nothing of that kind, or it is still away.
    """
    if not any(words in str(error).lower() for words in OUT_OF_REACH) or not path.is_file():
        return None
    try:
        db = _opened(path)
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
        return db
    except (sqlite3.Error, _Unusable, UserError):
        return None


def file_at(path: Path) -> tuple[int, int] | None:
    """Which file lies there; None where none does."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def check_place(path: Path, opened: tuple[int, int] | None) -> None:
    """Raises sqlite3.OperationalError where the file that was `opened` lies at `path` no more: it would go on
    being written where it is now, or nowhere.
    """
    if file_at(path) != opened:
        raise sqlite3.OperationalError(OUT_OF_REACH[0])


def _opened(path: Path) -> sqlite3.Connection:
    db = None
    try:
        db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        _check(db, path)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA journal_mode = WAL")
        # deleted text must not stay readable in free pages
        db.execute("PRAGMA secure_delete = ON")
        _bring_up_to_date(db)
    except (sqlite3.DatabaseError, _Unusable) as error:
        if db is not None:
            db.close()
        if isinstance(error, _Unusable):
            raise
        if any(words in str(error).lower() for words in OUTSIDE):
            words = _(
                "The conversations in {path} cannot be opened: {error}. See that the folder can be written "
                "to and has room, then start again."
            )
            raise UserError(words.format(path=path, error=error)) from error
        raise _Unusable(_("The file of your conversations is damaged.")) from error
    return db


def _check(db: sqlite3.Connection, path: Path) -> None:
    if _version(db) > len(STEPS):
        raise _Unusable(_("The file of your conversations was written by a newer version."))
    (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise sqlite3.DatabaseError(f"{path}: {state}")


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    for number in range(_version(db), len(STEPS)):
        db.executescript(f"BEGIN IMMEDIATE; {STEPS[number]} PRAGMA user_version = {number + 1}; COMMIT;")
        if number == 0 and "until" not in _columns(db, "conversations"):
            db.execute("ALTER TABLE conversations ADD COLUMN until INTEGER")  # before files had a version
    for query in USED:
        db.execute(query)


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [column[1] for column in db.execute(f"PRAGMA table_info({table})")]


def _put_aside(path: Path) -> str:
    """Renames the file, with the log that belongs to it; returns its new name."""
    number = time.strftime("%Y%m%d-%H%M%S")
    free = next(
        name
        for count in range(1000)
        if not path.with_name(name := f"{path.stem}.aside-{number}{f'-{count}' if count else ''}.db").exists()
    )
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(free + suffix))
    return free
