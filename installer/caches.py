"""Where what was downloaded is kept to go on from: for this program alone, and by pip, uv and the hub for all
programs of a user. Makes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from installer import places

MOVED = "moved.json"  # as core.paths.pointer and core.model.store.manifest name it


def of_pip(environment: Path) -> list[Path]:
    """pip's cache in the environment, while it is being set up, and what it unpacks."""
    return [environment / "cache", environment / "tmp"]


def of_uv(fetched: list[Path]) -> list[Path]:
    """What a start that was broken off left of uv in the folders of the Python that it was to bring."""
    return [found for folder in fetched for found in sorted(folder.glob("uv-*"))]


def of_the_hub(data: Path) -> list[Path]:
    """Downloads of models that were broken off."""
    return sorted((data / "models").glob(".*.part"))


def moved_models(data: Path) -> list[Path]:
    """Models that were moved out of the data folder, each in a folder of its own."""
    found = (_leads_to(pointer) for pointer in sorted((data / "models").glob(f"*/{MOVED}")))
    return [place for place in found if place is not None and (place / "complete.json").is_file()]


def old_place(data: Path) -> Path | None:
    """The folder that the data was moved from, where something in it says that it went to `data`."""
    return next((old for old in _named() if old != data and _leads_to(old / MOVED) == data), None)


def place_away() -> Path | None:
    """Where the data was moved to, where that is not there now."""
    found = filter(None, (_leads_to(old / MOVED) for old in _named()))
    return next((place for place in found if not place.is_dir()), None)


def _named() -> list[Path]:
    """Where the data is to lie, before the app moves it."""
    given = os.environ.get("TRIFORCE_HOME")
    return [*([Path(given)] if given else []), places.usual_data_folder()]


def _leads_to(pointer: Path) -> Path | None:
    try:
        return Path(json.loads(pointer.read_text(encoding="utf-8"))["to"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def shared() -> dict[str, Path]:
    """The caches that a user's other programs share, each under its name; none has to be there. Nothing of
    this program's is in them, unless a variable told pip or uv to use them.
    """
    home, environ = Path.home(), os.environ
    local = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    plain = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    pip, uv = plain / "pip", plain / "uv"
    if os.name == "nt":
        pip, uv = local / "pip" / "Cache", local / "uv" / "cache"
    elif sys.platform == "darwin":
        pip = home / "Library" / "Caches" / "pip"
    hub = Path(environ.get("HF_HOME") or plain / "huggingface") / "hub"
    return {
        "pip's cache": Path(environ.get("PIP_CACHE_DIR") or pip),
        "uv's cache": Path(environ.get("UV_CACHE_DIR") or uv),
        "the hub's cache": Path(environ.get("HF_HUB_CACHE") or hub),
    }
