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
