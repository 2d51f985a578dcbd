"""What a full disk refuses is written once more after snapshots have given way: these only save time."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from app.errors import is_full
from core import paths
from core.cache.disk import SnapshotFolder

ROOM_BYTES = 64_000_000  # an answer with its figures takes some 0.1 MB, a book with its cover a few
Result = TypeVar("Result")


def with_room(do: Callable[[], Result]) -> Result:
    """What `do` returns; where the disk is full, snapshots are deleted, and it is done once more. Raises what
    it raises where there is nothing to delete, or the disk is not what is wrong.
    """
    try:
        return do()
    except (OSError, sqlite3.Error) as error:
        if not is_full(error) or not SnapshotFolder(paths.subdir("snapshots")).give_way(ROOM_BYTES):
            raise
    return do()
