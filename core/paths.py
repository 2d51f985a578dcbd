"""Where the user's data lives. One root: what TRIFORCE_HOME names, else the system's place; or where the app
has moved it from there.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from core.errors import UserError
from core.text.words import translated as _

APP_NAME = "TriForce Chat"
ROOT = (
    Path(__file__).resolve().parent.parent
)  # the folder of the program: assets, config.yaml and the launcher lie in it
PROJECT = ROOT / "pyproject.toml"
_calls = itertools.count()


def program_version() -> str:
    """The version of this copy of the program; empty where the file that says it is missing."""
    try:
        found = re.search(r'^version = "(.+)"$', PROJECT.read_text(encoding="utf-8"), re.M)
    except OSError:
        return ""
    return found[1] if found else ""


def default_dir() -> Path:
    """The system's place for application data; need not exist."""
    return Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))


def named_dir() -> Path:
    """The folder that the data is to lie in, before it is moved in the app; need not exist."""
    named = os.environ.get("TRIFORCE_HOME")
    return Path(named).expanduser() if named else default_dir()


def pointer() -> Path:
    """The file in the folder that is named that says where the data lies instead, while it does."""
    return named_dir() / "moved.json"


def moved_to() -> Path | None:
    """The folder that the data was moved to in the app. Raises UserError where it is not there and this
    process has not seen it.
    """
    if not os.path.exists(pointer()):  # nor where its folder cannot be looked into
        return None
    try:
        folder = Path(json.loads(pointer().read_text(encoding="utf-8"))["to"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        words = _("{file} should say where the data folder is, and cannot be read. Delete it to begin anew.")
        raise UserError(words.format(file=pointer())) from error
    return _seen(folder)


@functools.cache
def _seen(folder: Path) -> Path:
    if not folder.is_dir():
        words = _(
            "The data folder {folder} is not there. Connect the drive that it is on, then start again; or "
            "delete {file} to begin with an empty one."
        )
        raise UserError(words.format(folder=folder, file=pointer()))
    return folder


def data_dir() -> Path:
    """The root of everything the app stores; made when a process asks first, and not again: where its drive
    is gone, nothing is begun in its place. Raises UserError as `moved_to`.
    """
    return _begun(moved_to() or named_dir())


@functools.cache
def _begun(root: Path) -> Path:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)  # books and conversations are private
    return root


def subdir(name: str) -> Path:
    """A folder below the root, such as "models", "books" or "snapshots"; made when missing, if the root is
    there.
    """
    path = data_dir() / name
    if path.parent.is_dir():
        path.mkdir(exist_ok=True)
    return path


def write_whole(path: Path, data: str | bytes) -> None:
    """Put `data` in the file at `path` whole or not at all: see `whole_file`. Text is written as UTF-8."""
    with whole_file(path) as part:
        part.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The name under which to write what gets to `path` when the block ends. A killed program leaves the old
    file.

    What the block raises leaves nothing behind. Raises OSError, also where the folder is missing.
    """
    # of its own for each call: two threads may write the same file at once
    part = path.with_name(f".{path.name}.{os.getpid()}-{next(_calls)}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
