"""Named values, and what is made of them: made again only where a value that it names has changed.

A function names the values that it needs by its parameters, and gets no others: what is drawn again follows
from that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from functools import lru_cache
from inspect import signature
from typing import Any

from core.errors import UserError

OUT_OF_REACH = (OSError, sqlite3.Error, UserError)  # what is kept cannot be read, as when its drive is gone


class RegionMemo:
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

    def again(self) -> None:
        """Forgets why something stayed as it was: it is tried again."""
        self.failed = None


@lru_cache(maxsize=256)
def names_of(make: Callable[..., Any]) -> tuple[str, ...]:
    """The values that a function names."""
    return tuple(signature(make).parameters)


class RegionValues:
    """The values of one moment, by name, for one thread: what `sources` give, read once a moment; what lies
    in the state; and what `values` make of those.
    """

    def __init__(
        self,
        state: Callable[[], object],
        sources: Mapping[str, Callable[[], Any]],
        values: Mapping[str, Callable[..., Any]],
        keep: RegionMemo,
    ) -> None:
        self._state_now, self._sources, self._keep = state, sources, keep
        self._values = {name: (make, names_of(make)) for name, make in values.items()}
        self._state, self._seen = state(), {}

    def refresh(self) -> None:
        """Goes on to what is there now."""
        self._state, self._seen = self._state_now(), {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._seen:
            self._seen[name] = self._found(name)
        return self._seen[name]

    def of(self, make: Callable[..., Any]) -> tuple[Any, ...]:
        """The values that a function names."""
        return tuple(self[name] for name in names_of(make))

    def _found(self, name: str) -> Any:
        if name in self._values:
            make, names = self._values[name]
            given = tuple(self[one] for one in names)
            return self._keep(f"value {name}", given, lambda: make(*given))
        return self._sources[name]() if name in self._sources else getattr(self._state, name)
