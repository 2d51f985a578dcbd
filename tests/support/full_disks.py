"""Disks that are full, and data folders that cannot be reached."""

from __future__ import annotations

import sqlite3


class Unreachable:
    """A database whose disk does not answer."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.total_changes, self.in_transaction = db.total_changes, False
        db.close()

    def execute(self, *_query) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def close(self) -> None:
        """There is nothing to be closed any more."""


def full(history) -> None:
    """From now on no page more fits on the disk of the conversations."""
    pages = history._db.execute("PRAGMA page_count").fetchone()[0]
    history._db.execute(f"PRAGMA max_page_count = {pages}")


def roomy(history) -> None:
    history._db.execute("PRAGMA max_page_count = 1000000")


class FullAtCommit:
    """A database whose disk takes, while it `is_full`, what a transaction writes, and not its end."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self.is_full = db, False
        self._depth, self._before = 0, 0  # savepoints that are open, and changes before the first

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)

    def execute(self, query: str, *values) -> sqlite3.Cursor:
        verb = query.split()[0]
        if self.is_full and (self._commits(verb) or self._writes_alone(verb)):
            raise sqlite3.OperationalError("database or disk is full")
        if verb == "SAVEPOINT" and self._depth == 0:
            self._before = self._db.total_changes
        self._depth += {"SAVEPOINT": 1, "RELEASE": -1}.get(verb, 0)
        self._depth = 0 if query == "ROLLBACK" else self._depth
        return self._db.execute(query, *values)

    def _commits(self, verb: str) -> bool:
        return verb == "RELEASE" and self._depth == 1 and self._db.total_changes > self._before

    def _writes_alone(self, verb: str) -> bool:
        return verb in ("INSERT", "UPDATE", "DELETE") and not self._db.in_transaction
