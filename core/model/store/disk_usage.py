"""What downloaded models take on disk, and the end of one. Knows nothing of where they come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from core.model.store.digests import POINTER
from core.model.store.manifest import finished, place_of
from core.paths import subdir


def kept_bytes(name: str) -> int:
    """What the model of this name takes below "models", an unfinished download included."""
    files = (path for folder in _folders(name) for path in folder.rglob("*"))
    return sum(path.stat().st_size for path in files if path.is_file())


def remove_model(name: str) -> int:
    """Deletes the model, what is unfinished of it, and what was made from it. Returns the bytes given back.
    Raises OSError.
    """
    freed = kept_bytes(name)
    for folder in _folders(name):
        _forget_folders_for(folder)
        shutil.rmtree(folder)
    return freed


def _folders(name: str) -> list[Path]:
    """Only folders that a download makes: the name may come from a page."""
    if not name or Path(name).name != name:
        return []
    models, place = subdir("models"), place_of(name)
    moved = [place] if place != models / name and finished(place) is not None else []
    rounded = (path / name for path in subdir("quantised").iterdir())  # core.model.store.quantize_checkpoint
    return [path for path in (*moved, models / name, models / f".{name}.part", *rounded) if path.is_dir()]


def _forget_folders_for(folder: Path) -> None:
    """Deletes the folders that stand for GGUFs inside `folder` (core.model.gguf.folder)."""
    for pointer in subdir("gguf").glob(f"*/{POINTER}"):
        try:
            file = Path(json.loads(pointer.read_text(encoding="utf-8"))["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if file.is_relative_to(folder.resolve()):
            shutil.rmtree(pointer.parent)
