"""A model folder that was finished: the marker written last, and what it promises. Knows nothing of where
models come from.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from core.paths import subdir, write_whole

MARKER = "complete.json"
MOVED = "moved.json"  # in the folder of a model that was moved: where it is


def write_manifest(folder: Path, **facts: Any) -> None:
    """Write the marker: the facts given and every file with its size. Nothing may be added to the folder
    after this.
    """
    files = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    files.pop(MARKER, None)
    write_whole(folder / MARKER, json.dumps({**facts, "files": files}, indent=1))


def finished(folder: Path) -> dict[str, Any] | None:
    """The marker's facts when every file it lists is there with its size, else None. Reads no other file."""
    try:
        facts = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        whole = all((folder / name).stat().st_size == size for name, size in facts["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return facts if whole else None


def place_of(name: str) -> Path:
    """The folder of a downloaded model, whether or not it is there: below "models", or where it was moved
    (core.model.store.relocate).
    """
    home = subdir("models") / name
    try:
        return Path(json.loads((home / MOVED).read_text(encoding="utf-8"))["to"])
    except (OSError, ValueError, KeyError, TypeError):
        return home


def fingerprint(folder: Path) -> str:
    """Changes when the model's configuration or a file of weights does. Files count by name, size and time:
    reading them takes seconds.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]
