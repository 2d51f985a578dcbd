"""What commands share: writing to the terminal and opening a book with progress."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UserError
from core.text.words import translated as _

if TYPE_CHECKING:
    from core.documents.document import Document

_shown = ""  # the status line as it stands, so that it can be wiped


def say(text: str) -> None:
    """One block of output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """A remark beside the output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def status(stage: str, fraction: float | None = None) -> None:
    """What is going on, on one line of stderr that the next one replaces; "" wipes it. Nothing where no
    person looks.
    """
    global _shown
    line = f"{stage} {100 * fraction:.0f}%" if stage and fraction is not None else stage
    if line != _shown and sys.stderr.isatty():
        width = max(20, os.get_terminal_size(sys.stderr.fileno()).columns - 1) if os.isatty(2) else 79
        sys.stderr.write("\r\x1b[K" + line[:width])
        sys.stderr.flush()
    _shown = line


def read_book(name: str, password: str | None, *, ocr: bool, whole_page: bool) -> Document:
    """The book of a file, read in a process of its own. `whole_page`: of a web page all, not the article
    alone. Raises UserError when it cannot be read.
    """
    from core.documents import read_safely

    try:
        book = read_safely(
            Path(name).expanduser(),
            password=password,
            ocr=ocr,
            progress=lambda stage, fraction=None: status(stage, fraction),
        )
    finally:
        status("")
    return book.read_otherwise() if whole_page and book.article else book


def chapter_range(text: str) -> tuple[int, int]:
    """First and last chapter of a text such as "4" or "1-3". Raises UserError."""
    first, __, last = text.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise UserError(_("{text!r} is no range of chapters; write 4 or 1-3.").format(text=text))
    return int(first), int(last or first)
