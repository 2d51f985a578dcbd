"""What was made last under each name, so that it is made again only where what it shows has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Remembered:
    """For one thread."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, Any]] = {}

    def __call__(self, name: str, key: object, make: Callable[[], Any]) -> Any:
        """What `make` returned when the `key` became what it is."""
        kept = self._kept.get(name)
        if kept is None or kept[0] != key:
            kept = self._kept[name] = (key, make())
        return kept[1]

    def last(self, name: str) -> tuple[object, Any] | None:
        """The key and what was made for it."""
        return self._kept.get(name)
