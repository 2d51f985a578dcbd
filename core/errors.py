"""Errors whose message is meant for the person in front of the screen. Everything else is a bug and keeps its
traceback, and the log gets that without what somebody reads or asks.
"""

from __future__ import annotations

import copy
import logging
import sqlite3
import threading
import traceback
from types import TracebackType

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class UserError(Exception):
    """The user's input or machine stands in the way. The message names cause and remedy and is shown as it
    is. `ways`: how a book would have to be read (core.config.READING_MODES) for the question to be answered.
    """

    def __init__(self, message: str = "", *, ways: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ways = ways


class PlanError(UserError):
    """No plan fits this machine. The message says what is needed, what is there and the smallest change that
    would work.
    """


class DocumentError(UserError):
    """The file cannot be read as a book. The message names what the file is and what to do."""


class PasswordNeeded(DocumentError):
    """The document is encrypted and the given password (or none) does not open it."""


class ScannedPages(DocumentError):
    """The pages are pictures without a text layer; reading it again with `ocr=True` may find the text."""


class DeviceLost(RuntimeError):
    """The device has failed for good: nothing more is computed in this process."""


class RankLost(DeviceLost):
    """A process that computes a part of the model is gone, or no longer in step: the others are of no use."""


class DeviceFull(RuntimeError):
    """The device of another process, which computes a part of the model, has too little memory."""


class DiscreetFormatter(logging.Formatter):
    """Formats a record without the words of errors that may quote a book or a question: of an exception it
    writes the type and where it came from, and its words only where they are the system's or meant for the
    person.
    """

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """The record as text. An exception among its arguments is described like one that was raised."""
        record = copy.copy(record)  # others format it, too, and keep their text of the exception in it
        record.exc_text = None
        if isinstance(record.args, tuple):
            record.args = tuple(_described(arg) for arg in record.args)
        return super().format(record)

    def formatException(self, ei: tuple) -> str:  # noqa: N802 (the name that logging calls)
        """The frames, and the chain of causes."""
        return "\n".join(_traced(ei[1])) if ei and ei[1] else ""


def _described(value: object) -> object:
    if not isinstance(value, BaseException):
        return value
    kind = type(value).__name__
    told = isinstance(value, OSError | sqlite3.Error | UserError | ImportError)
    return f"{kind}: {value}" if told else kind


def _traced(error: BaseException) -> list[str]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = [*_traced(cause), "which led to:"] if cause else []
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return [*before, *([frames] if frames else []), str(_described(error))]


def log_what_nobody_caught() -> None:
    """Lets errors that end a thread be logged like all others, instead of printed with all their words."""

    def caught(given: threading.ExceptHookArgs) -> None:
        error: tuple[type, BaseException | None, TracebackType | None]
        error = (given.exc_type, given.exc_value, given.exc_traceback)
        logging.getLogger("core").critical("a thread ended", exc_info=error)

    threading.excepthook = caught
