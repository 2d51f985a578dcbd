"""Locks on files, which the operating system lets go of when their holder dies."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock at `path` in this block; `waiting` is called once where another holds it. The folder is
    made when missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if not _try(file):
            waiting()
            while not _try(file):
                time.sleep(0.5)
        yield


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock at `path`."""
    try:
        with path.open("r+b") as file:
            return not _try(file)
    except FileNotFoundError:
        return False
    except PermissionError:  # Windows: a locked file of another process
        return True


def _try(file) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
