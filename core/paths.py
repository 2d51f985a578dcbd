"""Where the user's data lives. One root, moved by the environment variable TRIFORCE_HOME."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs

APP_NAME = "TriForce Chat"


def data_dir() -> Path:
    """The root of everything the app stores; created when missing."""
    override = os.environ.get("TRIFORCE_HOME")
    root = (
        Path(override).expanduser()
        if override
        else Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))
    )
    root.mkdir(mode=0o700, parents=True, exist_ok=True)  # books and conversations are private
    return root


def subdir(name: str) -> Path:
    """A folder below the root, such as "models", "books" or "snapshots"; created when missing."""
    path = data_dir() / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_whole(path: Path, data: str | bytes) -> None:
    """Put `data` in the file at `path` whole or not at all: see `whole_file`. Text is written as UTF-8."""
    with whole_file(path) as part:
        part.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The name under which to write what gets to `path` when the block ends. A killed program leaves the old
    file.

    The folder is made when missing. What the block raises leaves nothing behind. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
