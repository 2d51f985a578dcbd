"""`read_document`: any supported file to a Document, in this process. Use `read_safely` for files from
outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from core.documents.binding import bind
from core.documents.blocks import Manuscript
from core.documents.document import Document
from core.documents.sniff import sniff
from core.errors import DocumentError

MAX_FILE_BYTES = 500 << 20
MAX_CHARS = 30_000_000
Progress = Callable[[str, float | None], None]


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
        raise DocumentError(f"{path.name} holds no readable text.")
    if length > MAX_CHARS:
        raise DocumentError(
            f"{path.name} holds {length:,} characters of text, over the limit of {MAX_CHARS:,}. "
            "Split it into volumes first."
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
    from core.documents.plain import read_markdown, read_text

    return read_markdown(data) if kind == "markdown" else read_text(data)


def _bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise DocumentError(f"{path.name} is a folder, not a book. Choose a file.")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise DocumentError(
                f"{path.name} has {size >> 20:,} MB, over the limit of {MAX_FILE_BYTES >> 20} MB for one "
                "book."
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise DocumentError(f"There is no file {path}.") from error
    except OSError as error:
        raise DocumentError(f"{path.name} cannot be read: {error.strerror or error}.") from error


def _silent(stage: str, fraction: float | None) -> None:
    """For callers that do not ask for progress."""
