"""Which files an assistant may have opened: those below the folders that the person ticked, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.errors import UserError
from core.text.words import translated as _

USUAL = ("Documents", "Downloads", "Books", "Desktop", "Calibre Library", "Zotero/storage")


def allowed(path: str, folders: Sequence[str]) -> Path:
    """The file itself, all links followed. Raises UserError for whatever lies elsewhere, exists or not: what
    is said of it must not tell which.
    """
    refused = UserError(
        _(
            "An assistant may open files only below folders that are ticked under Settings, Other programs. "
            "{path} is not there. Tick its folder, or open the file in the app: then it stands on the shelf."
        ).format(path=path)
    )
    try:
        real = Path(path).expanduser().resolve(strict=True)
        whole = Path(path).expanduser().is_absolute() and real.is_file()
    except (OSError, RuntimeError, ValueError):
        raise refused from None
    if not whole or not any(real.is_relative_to(Path(folder).resolve()) for folder in folders):
        raise refused
    return real


def offered(chosen: Sequence[str], home: Path | None = None) -> list[tuple[str, bool]]:
    """The folders that the person can tick, and whether they are: the usual, and others chosen."""
    home = home or Path.home()
    usual = (home / name for name in USUAL)
    folders = dict.fromkeys([*(str(one) for one in usual if one.is_dir()), *chosen])
    return [(one, one in chosen) for one in folders]


def ticked(folder: str, chosen: Sequence[str]) -> list[str]:
    """The chosen ones with the folder, or without it where it was among them."""
    return [one for one in chosen if one != folder] if folder in chosen else [*chosen, folder]
