"""`read_document`: any supported file to a Document, in this process. `read_safely` is for outside files."""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from core.documents.document import Document
from core.documents.files.sniff import sniff
from core.documents.files.zipped import member_name, only_book
from core.documents.structure.binding import bind
from core.documents.structure.blocks import Manuscript
from core.errors import DocumentError
from core.events import Progress
from core.text.words import size
from core.text.words import translated as _

MAX_FILE_BYTES = 500_000_000
MAX_CHARS = 30_000_000
MAX_TEXT_BYTES = 4 * MAX_CHARS
_BY_NAME = {
    "docx": ("docx", "read_docx"),
    "odt": ("odt", "read_odt"),
    "fb2": ("fb2", "read_fb2"),
    "rtf": ("rtf", "read_rtf"),
    "mhtml": ("web_archive", "read_mhtml"),
}


def read_document(
    path: str | Path, *, password: str | None = None, progress: Progress | None = None, ocr: bool = False
) -> Document:
    """The book in `path`. The format is decided by content.

    `progress(stage, fraction)` is called while a long file is read. Raises PasswordNeeded for an encrypted
    PDF that `password` does not open, and DocumentError, which names cause and remedy, for everything else
    that cannot be read.
    """
    path = refused_by_kind(path)
    book = open_book(path)
    manuscript = _manuscript(book.content, book.kind, book.told_as, password, progress or _silent, ocr)
    length = sum(len(block.text) for block in manuscript.blocks)
    if not any(char.isalnum() for block in manuscript.blocks for char in block.text):
        raise DocumentError(_("{name} holds no readable text.").format(name=book.told_as))
    if length > MAX_CHARS:
        raise DocumentError(
            _(
                "{name} holds {length:,} characters of text, over the limit of {limit:,}. "
                "Split it into volumes first."
            ).format(name=book.told_as, length=length, limit=MAX_CHARS)
        )
    document = bind(manuscript, sha256=book.sha256, fallback_title=book.name.stem)
    if manuscript.whole is None:
        return document
    whole = bind(manuscript.whole, sha256=book.sha256, fallback_title=book.name.stem)
    return replace(document, article=True, other_reading=whole.packed.decode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class BookFile:
    """The bytes of a book, taken out of the zip they may have come in. `kind`: by its content."""

    content: bytes
    kind: str
    name: Path
    told_as: str  # its name, behind that of the zip
    sha256: str  # of the file as it came


def open_book(path: Path) -> BookFile:
    """Raises DocumentError for what cannot be read or is no book, and for a zip of several."""
    data = _bytes(path)
    sha256 = hashlib.sha256(data).hexdigest()
    kind = sniff(data, path)
    if kind != "zip":
        return BookFile(data, kind, path, path.name, sha256)
    content, entry, kind = only_book(data, path, _kind_in_zip)
    return BookFile(content, kind, Path(entry), member_name(path, entry), sha256)


def _kind_in_zip(content: bytes, path: Path) -> str:
    kind = sniff(content, path)
    if kind == "zip":
        said = _("{name} is an archive with another archive in it. Unpack it first.")
        raise DocumentError(said.format(name=path.name))
    if kind in ("txt", "markdown") and not content.strip():
        raise DocumentError(_("{name} holds no readable text.").format(name=path.name))
    return kind


def refused_by_kind(path: str | Path) -> Path:
    """The path, if it may be a file. Raises DocumentError for what is none, without waiting for its bytes: an
    address, a folder, a pipe, a device.
    """
    said = str(path).strip()
    if not said:
        raise DocumentError(_("No file was named. Choose a book."))
    if re.match(r"(?:https?|ftp)://?", said, re.I):
        raise DocumentError(
            _("{name} is an address on the web, not a file. Download the book and open the file.").format(
                name=said[:200]
            )
        )
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise DocumentError(_("There is no file {path}.").format(path=path)) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        raise DocumentError(
            _("{name} is a folder, not a book. Choose a file.").format(name=path.name or path)
        )
    if not stat.S_ISREG(mode):
        raise DocumentError(
            _("{name} is a pipe or a device, not a file. Save the book in a file and open that.").format(
                name=path.name
            )
        )
    return path


def _manuscript(
    data: bytes, kind: str, name: str, password: str | None, progress: Progress, ocr: bool
) -> Manuscript:
    """Readers are imported when needed: a text file should not load a PDF engine."""
    if kind == "pdf":
        from core.documents.pdf.reader import read_pdf

        return read_pdf(data, name, password=password, progress=progress, ocr=ocr)
    if kind == "epub":
        from core.documents.formats.epub import read_epub

        return read_epub(data, name, progress=progress)
    if kind in _BY_NAME:
        module, function = _BY_NAME[kind]
        return getattr(import_module(f"core.documents.formats.{module}"), function)(data, name)
    if len(data) > MAX_TEXT_BYTES:
        raise DocumentError(
            _(
                "{name} has {amount}, over the limit of {limit} for a text. Split it into volumes first."
            ).format(name=name, amount=size(len(data)), limit=size(MAX_TEXT_BYTES))
        )
    if kind == "html":
        from core.documents.formats.web_page import read_html

        return read_html(data)
    from core.documents.formats.plain import read_markdown, read_text

    return read_markdown(data) if kind == "markdown" else read_text(data)


def _bytes(path: Path) -> bytes:
    try:
        amount = path.stat().st_size
        if amount > MAX_FILE_BYTES:
            raise DocumentError(
                _("{name} has {amount}, over the limit of {limit} for one book.").format(
                    name=path.name, amount=size(amount), limit=size(MAX_FILE_BYTES)
                )
            )
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError | ValueError) -> DocumentError:
    reason = getattr(error, "strerror", None) or error
    return DocumentError(_("{name} cannot be read: {reason}.").format(name=path.name, reason=reason))


def _silent(stage: str, fraction: float | None) -> None:
    """For callers that do not ask for progress."""
