"""A zip that holds one book and whatever came with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from core.documents.files.archive import ArchiveLimits, SafeArchive
from core.errors import DocumentError
from core.text.words import translated as _

BOOKS = (".epub", ".pdf", ".fb2", ".docx", ".odt", ".rtf", ".txt", ".md", ".html", ".htm", ".xhtml", ".mhtml")
_BESIDES = ("readme", "license", "licence", "copying", "info", "about")
ARCHIVES = (".zip", ".rar", ".7z", ".gz", ".tar", ".cbz")
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif")
_COMIC_PAGES = 3  # beside so many pictures a readme alone is no book
_LIMITS = ArchiveLimits(entry_bytes=256 << 20, read_bytes=512 << 20)


def book_entries(names: list[str]) -> list[str]:
    """The entries that look like books, without the notes that lie beside them."""
    found = [
        name
        for name in names
        if name.lower().endswith(BOOKS) and not name.startswith("__MACOSX/") and "/." not in f"/{name}"
    ]
    books = [name for name in found if PurePosixPath(name).stem.lower() not in _BESIDES]
    comic = sum(name.lower().endswith(PICTURES) for name in names) >= _COMIC_PAGES
    return books if books or comic else found


def only_book(data: bytes, path: Path, kind_of: Callable[[bytes, Path], str]) -> tuple[bytes, str, str]:
    """(bytes, name, kind) of the one book in the archive; what `kind_of` refuses beside it is passed over.
    Raises DocumentError when there are several, and of none why the first is none.
    """
    archive = SafeArchive(data, path.name, _LIMITS)
    names = book_entries(list(archive.names))
    found: list[tuple[bytes, str, str]] = []
    refused: list[DocumentError] = []
    for name in names:
        content = _unpacked(archive, name, path)
        try:
            kind = kind_of(content, Path(member_name(path, name)))
        except DocumentError as error:
            refused.append(error)
            continue
        found.append((content, name, kind))
        if len(found) > 1:
            words = _("{name} is a zip archive with {count} books in it. Unpack it and choose one.")
            raise DocumentError(words.format(name=path.name, count=len(names) - len(refused)))
    if not found:
        raise refused[0]
    return found[0]


def member_name(path: Path, entry: str) -> str:
    """What an entry of the archive is called where it is told of."""
    return f"{path.name}: {PurePosixPath(entry).name}"


def _unpacked(archive: SafeArchive, name: str, path: Path) -> bytes:
    try:
        return archive.read(name)
    except KeyError as error:
        words = _("{name} is a damaged or locked zip archive. Unpack it first.")
        raise DocumentError(words.format(name=path.name)) from error
