"""Remembers the summaries of parts, so that a long reading is never done twice: not after a stop, a crash or a restart."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


class NoteStore:
    """Part summaries by what they were made from. In memory, and as one small file each when a folder is given."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._notes: dict[str, str] = {}

    def get(self, *made_from: str) -> str | None:
        """The summary made from these texts (model, prompt, passage); None when there is none."""
        key = _key(made_from)
        if key not in self._notes and self._folder is not None:
            try:
                self._notes[key] = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))["note"]
            except FileNotFoundError:
                return None
            except (OSError, ValueError, KeyError, TypeError):
                log.warning("a stored part summary cannot be read; it is made again")
                return None
        return self._notes.get(key)

    def put(self, note: str, *made_from: str) -> None:
        """Keep `note`. A full disk costs the copy on disk, not the answer."""
        key = _key(made_from)
        self._notes[key] = note
        if self._folder is None:
            return
        partial = self._folder / f"{key}.{os.getpid()}.tmp"
        try:
            partial.write_text(json.dumps({"note": note}, ensure_ascii=False), encoding="utf-8")
            partial.replace(self._folder / f"{key}.json")
        except OSError as error:
            log.warning("a part summary cannot be stored: %s", error)


def _key(made_from: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(made_from).encode()).hexdigest()[:32]
