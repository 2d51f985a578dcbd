"""Whether anybody is at work: this process, or one that it started. It is asked by whoever waits and would
give up: on a busy machine what computes is slow, and what waits for nothing looks the same as ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


def at_work() -> bool:
    """Whether a thread runs, is ready to, or waits for a disk, the one that asks left out. False where the
    system does not say.
    """
    asking = str(threading.get_native_id())
    return any(task.name != asking and _state(task) in "RD" for task in _tasks(os.getpid()))


def _tasks(pid: int) -> Iterator[Path]:
    """The threads of a process and of all that it started."""
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
    except OSError:  # it has ended
        return
    yield from tasks
    for task in tasks:
        for child in _read(task / "children").split():
            yield from _tasks(int(child))


def _state(task: Path) -> str:
    """R: runs or is ready to; D: waits for a disk; S: sleeps; others: see proc(5)."""
    return _read(task / "stat").rpartition(") ")[2][:1] or "S"


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""
