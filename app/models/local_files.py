"""Model files of the person's own: which were used, and a look into folders to choose one. No HTML here.

Nothing is copied or changed: a path is remembered, and forgotten when the person says so.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from core import paths
from core.model.gguf.shards import is_later_part, parts_of, stem_of
from core.model.store.discovery import FoundModel
from core.paths import write_whole
from core.text.words import translated as _

log = logging.getLogger(__name__)
_MOST_SHOWN = 300  # folders, and files, of one folder


@dataclass(frozen=True, slots=True)
class FolderChoice:
    """A folder that is looked into, or what was found. `files`: (name, path, bytes). `named`: folders that
    are searched below. `moving`: the model that a folder is chosen for. `dropped`: name and bytes of a file
    that the browser has, and nobody knows where. `free_bytes`: for a copy of it.
    """

    folder: str = ""
    above: str = ""
    folders: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str, int], ...] = ()
    found: tuple[FoundModel, ...] | None = None
    error: str = ""
    named: tuple[str, ...] = ()
    moving: str = ""
    dropped: tuple[str, int] | None = None
    free_bytes: int = 0
    dialog: bool = False  # the system's can be opened
    searching_s: float = 0.0  # a search is under way, and ends after so many seconds


@dataclass(frozen=True, slots=True)
class FileInspection:
    """A model file that is looked at, which is given up after `most_s` seconds."""

    file: str
    most_s: float


def own_files() -> list[Path]:
    """The files that were used, as long as the person keeps them in the list."""
    return _paths_in(_file())


def add_file(path: Path) -> None:
    """Puts a file into the list. Raises OSError."""
    _write([*(one for one in own_files() if one != path), path])


def drop(path: Path) -> bool:
    """Takes a file out of the list, not off the disk; whether it was there. Raises OSError."""
    files = own_files()
    _write([one for one in files if one != path])
    return path in files


def named_folders() -> list[Path]:
    """The folders that are searched below, as long as the person keeps them."""
    return _paths_in(_folders())


def name_folder(folder: Path) -> None:
    """Remembers a folder to search below. Raises OSError."""
    _write([*(one for one in named_folders() if one != folder), folder], _folders())


def forget_folder(folder: Path) -> None:
    """Searches below it no more. Raises OSError."""
    _write([one for one in named_folders() if one != folder], _folders())


def _file() -> Path:
    return paths.data_dir() / "own-models.json"


def _folders() -> Path:
    return paths.data_dir() / "model-folders.json"


def _paths_in(file: Path) -> list[Path]:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return [Path(one) for one in kept if isinstance(one, str)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s is not used: %s", file, error)
        return []


def _write(these: list[Path], file: Path | None = None) -> None:
    write_whole(file or _file(), json.dumps([str(one) for one in these], indent=1))


def look_into(folder: Path) -> FolderChoice:
    """The folders and GGUF files in a folder, hidden ones left out."""
    folder = Path(os.path.abspath(folder.expanduser()))
    folders, files, error = [], [], ""
    try:
        for entry in sorted(os.scandir(folder), key=lambda one: one.name.lower()):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                folders.append((entry.name, entry.path))
            elif _is_model(Path(entry.path)):
                files.append((_shown(Path(entry.path)), entry.path, _bytes(Path(entry.path))))
    except OSError as problem:
        error = _("{folder} cannot be opened ({reason}).")
        error = error.format(folder=folder, reason=problem.strerror or problem)
    above = "" if folder.parent == folder else str(folder.parent)
    if not above:
        folders = [(one, one) for one in _drives() if one != str(folder)] + folders
    shown = {"folders": tuple(folders[:_MOST_SHOWN]), "files": tuple(files[:_MOST_SHOWN])}
    return FolderChoice(str(folder), above, **shown, error=error)


def _is_model(file: Path) -> bool:
    name = file.name.lower()
    return name.endswith(".gguf") and "mmproj" not in name and not is_later_part(file)


def _shown(file: Path) -> str:
    return file.name if len(parts_of(file)) == 1 else f"{stem_of(file)}{file.suffix}"


def _bytes(file: Path) -> int:
    """Of all its parts; of those that are there, where one is missing."""
    return sum(one.stat().st_size for one in parts_of(file) if one.is_file())


def _drives() -> list[str]:
    """Windows has a root for each."""
    return [one.mountpoint for one in psutil.disk_partitions()] if sys.platform == "win32" else []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
