"""What went wrong, in words: the boundary between the code and the person, for whatever a click set off."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from core import paths
from core.errors import UserError
from core.text.words import listed_texts
from core.text.words import translated as _

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def in_words(error: Exception) -> str:
    """The error as the person is told it: what it is, and what helps. One nobody foresaw is logged."""
    if isinstance(error, UserError):
        return str(error)
    if is_full(error):  # foreseen, and perhaps so for every second of an answer
        log.warning("%s", error)
        return full_disk()
    if isinstance(error, OSError | sqlite3.Error) and is_away():
        log.warning("%s", error)
        words = _(
            "The data folder {folder} is not there: that could not be stored. Connect the drive that it is "
            "on, or put the folder back; then try again."
        )
        return words.format(folder=paths.data_dir())
    log.error("something went wrong", exc_info=error)
    said = str(error).lower()
    if _number(error) in (errno.EROFS, errno.EACCES, errno.EPERM) or "readonly" in said:
        return _("The data folder cannot be written to: that could not be stored. Make it writable again.")
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return _(
            "The file of your conversations is damaged. Quit and start again: it is kept aside, and a new "
            "one is begun."
        )
    if isinstance(error, OSError | sqlite3.Error):
        words = _("That could not be stored or read: {error}. See that the data folder is there, then retry.")
        return words.format(error=_reason(error))
    return _("Something went wrong inside the app; the log has the details. Please try again.")


def full_disk() -> str:
    """Why something could not be stored, where the disk had no room; true also once there is some."""
    return _("The disk was full: that could not be stored. Make room on it, then try again.")


def is_full(error: Exception) -> bool:
    """Whether the disk, or what the person may use of it, has no room."""
    return _number(error) in (errno.ENOSPC, errno.EDQUOT) or "is full" in str(error).lower()


def is_away() -> bool:
    """Whether the data folder is gone, as where its drive was pulled out."""
    return not paths.data_dir().is_dir()


def _reason(error: Exception) -> str:
    """In the system's words, without its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return listed_texts([error.strerror, *filter(None, (error.filename,))], ": ")


def _number(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def guarded(do: Callable[[], Result], say: Callable[[str], object], otherwise: Result) -> Result:
    """What `do` returns. Where it raises, `say` is told why, and `otherwise` is returned."""
    try:
        return do()
    except Exception as error:  # the person's boundary: a click that fails must not be silent
        say(in_words(error))
        return otherwise
