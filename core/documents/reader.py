"""`read_document`: any supported file to a Document, in this process. `read_safely` is for outside files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from core.documents.binding import bind
from core.documents.blocks import Manuscript
from core.documents.document import Document
from core.documents.sniff import sniff
from core.errors import DocumentError
from core.events import Progress
from core.text.words import size
from core.text.words import translated as _

MAX_FILE_BYTES = 500_000_000
MAX_CHARS = 30_000_000


def read_document(
    path: str | Path, *, password: str | None = None, progress: Progress | None = None, ocr: bool = False
) -> Document:
    """The book in `path`. The format is decided by content.

    `progress(stage, fraction)` is called while a long file is read. Raises PasswordNeeded for an encrypted
    PDF that `password` does not open, and DocumentError, which names cause and remedy, for everything else
    that cannot be read.
    """
    path = Path(path)
    data = _bytes(path)
    manuscript = _manuscript(data, path, password, progress or _silent, ocr)
    length = sum(len(block.text) for block in manuscript.blocks)
    if length == 0:
        raise DocumentError(_("{name} holds no readable text.").format(name=path.name))
    if length > MAX_CHARS:
        raise DocumentError(
            _(
                "{name} holds {length:,} characters of text, over the limit of {limit:,}. "
                "Split it into volumes first."
            ).format(name=path.name, length=length, limit=MAX_CHARS)
        )
    return bind(manuscript, sha256=hashlib.sha256(data).hexdigest(), fallback_title=path.stem)


def _manuscript(data: bytes, path: Path, password: str | None, progress: Progress, ocr: bool) -> Manuscript:
    """Readers are imported when needed: a text file should not load a PDF engine."""
    kind = sniff(data, path)
    if kind == "pdf":
        from core.documents.pdf import read_pdf

        return read_pdf(data, path.name, password=password, progress=progress, ocr=ocr)
    if kind == "epub":
        from core.documents.epub import read_epub

        return read_epub(data, path.name, progress=progress)
    if kind == "docx":
        from core.documents.docx import read_docx

        return read_docx(data, path.name)
    if kind == "html":
        from core.documents.html import read_html

        return read_html(data)
    if kind == "mhtml":
        from core.documents.web_archive import read_mhtml

        return read_mhtml(data, path.name)
    from core.documents.plain import read_markdown, read_text

    return read_markdown(data) if kind == "markdown" else read_text(data)


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise DocumentError(_("{name} is a folder, not a book. Choose a file.").format(name=path.name))
        amount = path.stat().st_size
        if amount > MAX_FILE_BYTES:
            raise DocumentError(
                _("{name} has {amount}, over the limit of {limit} for one book.").format(
                    name=path.name, amount=size(amount), limit=size(MAX_FILE_BYTES)
                )
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DocumentError(_("There is no file {path}.").format(path=path)) from error
    except OSError as error:
        raise DocumentError(
            _("{name} cannot be read: {reason}.").format(name=path.name, reason=error.strerror or error)
        ) from error


def _silent(stage: str, fraction: float | None) -> None:
    """For callers that do not ask for progress."""
