"""Looks through the person's folders for files that may be books, by name, size and time alone: none is
opened, so that a look costs little and fetches nothing from a cloud or a slow drive.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import paths

# which one is offered where calibre has a book in several, the best first
SUFFIXES = (
    ".epub",
    ".fb2",
    ".fb2.zip",
    ".docx",
    ".odt",
    ".rtf",
    ".html",
    ".htm",
    ".mhtml",
    ".pdf",
    ".txt",
    ".md",
)
_NOTES = (".txt", ".md", ".html", ".htm", ".mhtml")  # what may as well be a note or a page
LEAST_BYTES = 20_000  # of these
SETTLED_S = 10.0  # a file that changed so shortly before may still be written
MOST_FILES, MOST_FOLDERS, MOST_DEPTH = 20_000, 50_000, 12
_OTHERS = (".", "$", "@", "~", "__MACOSX")  # how folders and files of systems and programs begin
_CALIBRE = "metadata.opf"  # lies beside every book of its library
_CALIBRE_FOLDER = re.compile(r"(.+) \(\d+\)")
_UNSEEN = getattr(stat, "FILE_ATTRIBUTE_HIDDEN", 2) | getattr(stat, "FILE_ATTRIBUTE_SYSTEM", 4)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that may be a book. `changed`: when it, or where it lies, changed last."""

    path: str
    title: str
    author: str
    bytes: int
    changed: float

    @property
    def name(self) -> str:
        """Of the file."""
        return os.path.basename(self.path)

    @property
    def format(self) -> str:
        """As it is written: "EPUB"."""
        return (_suffix(self.name) or "").removesuffix(".zip")[1:].upper()


@dataclass(frozen=True, slots=True)
class FolderLook:
    """What was found, the newest first, each name and size once. `unreachable`: (folder, why) of those that
    could not be opened; `cut`: there is more than is looked through.
    """

    files: tuple[FoundFile, ...] = ()
    unreachable: tuple[tuple[str, str], ...] = ()
    cut: bool = False


def look_through(folders: Sequence[str], *, now: float | None = None) -> FolderLook:
    """The files in and below the folders that nobody is writing any more. Links to folders are not followed;
    what cannot be opened below one is passed over.
    """
    now = time.time() if now is None else now
    found: dict[tuple[str, int], FoundFile] = {}
    unreachable, visited, apart = [], 0, os.path.realpath(paths.data_dir())
    for folder in folders:
        waiting = [(folder, 0)]
        while waiting and visited < MOST_FOLDERS and len(found) < MOST_FILES:
            at, depth = waiting.pop()
            visited += 1
            try:
                files, below = _one_folder(at, now)
            except OSError as error:
                if depth == 0:
                    unreachable.append((folder, error.strerror or str(error)))
                continue
            if depth < MOST_DEPTH:
                waiting += [(one, depth + 1) for one in reversed(below) if not _is_same(one, apart)]
            for one in files:
                found.setdefault((one.name, one.bytes), one)
    newest_first = sorted(found.values(), key=lambda one: (-one.changed, one.path))
    cut = visited >= MOST_FOLDERS or len(found) >= MOST_FILES
    return FolderLook(tuple(newest_first[:MOST_FILES]), tuple(unreachable), cut)


def _one_folder(folder: str, now: float) -> tuple[list[FoundFile], list[str]]:
    """The books and the folders in one. Raises OSError."""
    with os.scandir(folder) as entries:
        seen = sorted((one for one in entries if _is_shown(one)), key=lambda one: one.name)
    below = [one.path for one in seen if _is_folder(one) and not one.name.endswith("_files")]
    is_calibres = any(one.name == _CALIBRE for one in seen)
    files = list(_files(seen, now, _title_of_calibre(folder) if is_calibres else None))
    if is_calibres and files:
        files = [min(files, key=lambda one: SUFFIXES.index(_suffix(one.name)))]
    return files, below


def _files(
    seen: Sequence[os.DirEntry[str]], now: float, known: tuple[str, str] | None
) -> Iterator[FoundFile]:
    """`known`: title and author, where the folder says them."""
    for one in seen:
        suffix = _suffix(one.name)
        if suffix is None:
            continue
        try:
            about = one.stat()
        except OSError:  # gone in the meantime, or a link to nowhere
            continue
        changed = max(about.st_mtime, about.st_ctime)
        least = LEAST_BYTES if suffix in _NOTES else 1
        if stat.S_ISREG(about.st_mode) and about.st_size >= least and abs(now - changed) > SETTLED_S:
            title, author = known or (one.name[: -len(suffix)], "")
            yield FoundFile(one.path, title, author, about.st_size, changed)


def _title_of_calibre(folder: str) -> tuple[str, str] | None:
    """Title and author by the names of calibre's folders: `Author/Title (12)`; None for others."""
    path = Path(folder)
    matched = _CALIBRE_FOLDER.fullmatch(path.name)
    return (matched[1], path.parent.name) if matched else None


def _suffix(name: str) -> str | None:
    """The longest that is a book's."""
    fitting = [one for one in SUFFIXES if name.lower().endswith(one) and len(name) > len(one)]
    return max(fitting, key=len, default=None)


def _is_shown(entry: os.DirEntry[str]) -> bool:
    """Neither hidden nor a system's own, and with a name that can be written."""
    if entry.name.startswith(_OTHERS):
        return False
    try:
        entry.name.encode()
        attributes = getattr(entry.stat(follow_symlinks=False), "st_file_attributes", 0)
    except (OSError, UnicodeError):
        return False
    return not attributes & _UNSEEN


def _is_same(folder: str, other: str) -> bool:
    """By name first: a look at a link costs as much as a file on a slow drive."""
    return os.path.basename(folder) == os.path.basename(other) and os.path.realpath(folder) == other


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and not entry.is_junction()
    except AttributeError:  # before Python 3.12 a junction is no link
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
