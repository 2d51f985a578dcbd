"""What was made last under each name, so that it is made again only where what it shows has changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from core.errors import UserError

OUT_OF_REACH = (OSError, sqlite3.Error, UserError)  # what is kept cannot be read, as when its drive is gone


class Remembered:
    """For one thread. `failed`: why something stays as it was though it should be made again."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, Any]] = {}
        self.failed: Exception | None = None

    def __call__(self, name: str, key: object, make: Callable[[], Any]) -> Any:
        """What `make` returned when the `key` became what it is, or before where it cannot be made now."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != key:
            try:
                kept = self._kept[name] = (key, make())
            except OUT_OF_REACH as error:
                if kept is None:
                    raise
                self.failed = error
        return kept[1]

    def last(self, name: str) -> tuple[object, Any] | None:
        """The key and what was made for it."""
        return self._kept.get(name)
