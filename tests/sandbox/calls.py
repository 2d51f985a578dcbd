"""Functions that tests/sandbox/test_process.py has called in a child process."""

from __future__ import annotations

import os
import time

from core.errors import PasswordNeeded, UserError
from core.events import Progress


class Unknown(UserError):
    """An error of a module that the parent need not have."""


def doubled(number: int, progress: Progress | None = None) -> dict[str, object]:
    """JSON values; halfway it says so, where somebody listens."""
    if progress:
        progress("doubling", 0.5)
    return {"number": 2 * number, "heard": progress is not None}


def repeated(text: str, times: int) -> bytes:
    """Bytes: what looks like a message, and line breaks."""
    return text.encode() * times


def fails(how: str) -> None:
    """Ends in one of the ways that a parser may."""
    if how == "memory":
        bytearray(1 << 40)
    if how == "crash":
        os.abort()
    if how == "time":
        time.sleep(60)
    if how == "bug":
        raise KeyError(how)
    raise PasswordNeeded("a password is needed") if how == "known" else Unknown("of a kind unknown here")


def address_space() -> int:
    """Bytes that the kernel lets this process map; -1 for no limit."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0]
