"""`read_safely`, `cover_safely`: a file from outside is read in a process of its own, with limits on memory
and time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from core.documents.document import Document
from core.documents.reader import read_document, refused_by_kind
from core.errors import DocumentError
from core.events import Progress
from core.sandbox.process import (
    CallCancelled,
    Limits,
    MemoryExceeded,
    SandboxError,
    TimeExceeded,
    run_isolated,
)
from core.text.words import duration, size
from core.text.words import translated as _

log = logging.getLogger(__name__)

_OF_A_BOOK = Limits()
# OCR takes seconds per page, and its engines map far more memory than they use
_OF_A_SCAN = Limits(time_s=4 * 3600.0, enforced=False)
_OF_A_COVER = Limits(memory_bytes=1 << 30, time_s=15.0)


class ReadingCancelled(DocumentError):
    """`should_stop` said so."""


def read_safely(
    path: str | Path,
    *,
    password: str | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    ocr: bool = False,
    limits: Limits | None = None,
) -> Document:
    """`read_document` in a child process.

    `progress(stage, fraction)` and `should_stop()` are called from this thread, about ten times a second.
    Raises what `read_document` raises, ReadingCancelled, and DocumentError when the file breaks a limit or
    the parser.
    """
    path = refused_by_kind(path).absolute()
    limits = limits or (_OF_A_SCAN if ocr else _OF_A_BOOK)
    arguments = {"path": str(path), "password": password, "ocr": ocr}
    try:
        found = run_isolated(
            f"{__name__}:packed_document",
            arguments,
            limits=limits,
            progress=progress,
            should_stop=should_stop,
        )
    except SandboxError as error:
        raise _refusal(error, path.name, limits) from error
    return Document.unpacked(found)


def cover_safely(
    path: str | Path, *, password: str | None = None, should_stop: Callable[[], bool] | None = None
) -> bytes:
    """`cover_of` in a child process of its own, so that a picture costs nobody the book. Empty for whatever
    goes wrong.
    """
    try:
        arguments = {"path": str(refused_by_kind(path).absolute()), "password": password}
        return run_isolated(f"{__name__}:cover", arguments, limits=_OF_A_COVER, should_stop=should_stop)
    except (DocumentError, SandboxError) as error:
        log.info("no cover of %s: %r", path, error)
        return b""


def packed_document(path: str, password: str | None, ocr: bool, progress: Progress | None = None) -> bytes:
    """The document as it is stored and sent from here on. Runs in the child."""
    return read_document(path, password=password, ocr=ocr, progress=progress).packed


def cover(path: str, password: str | None) -> bytes:
    """The cover. Runs in the child."""
    from core.documents.cover import cover_of

    return cover_of(path, password=password)


def _refusal(error: SandboxError, name: str, limits: Limits) -> DocumentError:
    """What the end of the child means for a book, and what to do."""
    if isinstance(error, CallCancelled):
        return ReadingCancelled(_("Reading {name} was cancelled.").format(name=name))
    if isinstance(error, TimeExceeded):
        said = _(
            "{name} took over {time} to read and was given up: it is damaged or built to be slow. "
            "Try to save it anew from the program it comes from."
        )
        return DocumentError(said.format(name=name, time=duration(limits.time_s)))
    if isinstance(error, MemoryExceeded):
        said = _(
            "{name} needs more than {limit} of memory to read, over the limit for one book. "
            "It is damaged or far too large; try to split it."
        )
        return DocumentError(said.format(name=name, limit=size(limits.memory_bytes)))
    said = _("{name} is damaged: its parser failed on it. Try to save it anew, or convert it to EPUB.")
    return DocumentError(said.format(name=name))
