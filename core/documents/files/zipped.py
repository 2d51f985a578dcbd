"""A zip that holds one book and whatever came with it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from core.documents.files.archive import ArchiveLimits, SafeArchive
from core.errors import DocumentError
from core.text.words import translated as _

BOOKS = (".epub", ".pdf", ".fb2", ".docx", ".odt", ".rtf", ".txt", ".md", ".html", ".htm", ".xhtml", ".mhtml")
_BESIDES = ("readme", "license", "licence", "copying", "info", "about")
ARCHIVES = (".zip", ".rar", ".7z", ".gz", ".tar", ".cbz")
PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif")
_COMIC_PAGES = 3  # beside so many pictures a readme alone is no book
_LIMITS = ArchiveLimits(entry_bytes=256 << 20, read_bytes=256 << 20)


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


def only_book(data: bytes, path: Path) -> tuple[bytes, str]:
    """(bytes, name) of the one book in the archive. Raises DocumentError when there are several."""
    archive = SafeArchive(data, path.name, _LIMITS)
    books = book_entries(list(archive.names))
    if len(books) != 1:
        raise DocumentError(
            _("{name} is a zip archive with {count} books in it. Unpack it and choose one.").format(
                name=path.name, count=len(books)
            )
        )
    try:
        return archive.read(books[0]), books[0]
    except KeyError as error:
        raise DocumentError(
            _("{name} is a damaged or locked zip archive. Unpack it first.").format(name=path.name)
        ) from error
