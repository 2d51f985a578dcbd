"""What the page's buttons ask for, as a typed table. What a browser sends is not trusted: it is read by the
table alone, and an action comes to pass only with values of its kinds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.desk.state import AppState
from app.desk.store import Store

log = logging.getLogger(__name__)
_DIGITS = 11  # of the largest place in a book
SIZE_DIGITS = 15  # of the largest file, in bytes
_TEXT_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Field:
    """One value of an action: what the page calls it, its type, and how it is read from the text that is sent
    ("" where nothing is). `read` raises ValueError for what it cannot be.
    """

    name: str
    type: type
    read: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Action:
    """Calls `do` with these fields by name. `while_moving`: also while the data folder is on its way.
    `goes_on`: to something else, so that what was said of files is seen.
    """

    do: Callable[..., object]
    fields: Mapping[str, Field]
    while_moving: bool = False
    goes_on: bool = False


def action(
    do: Callable[..., object], *, while_moving: bool = False, goes_on: bool = False, **fields: Field
) -> Action:
    """An action of the table."""
    return Action(do, fields, while_moving, goes_on)


def text_field(name: str, most: int = _TEXT_CHARS, *, default: str = "") -> Field:
    """A text, cut behind `most` characters."""
    return Field(name, str, lambda sent: (sent or default)[:most])


def number_field(name: str, digits: int = _DIGITS) -> Field:
    """A number from 0 on, of so many digits at most; 0 where nothing is sent."""
    return Field(name, int, lambda sent: _number(sent, digits))


def flag(name: str) -> Field:
    """Whether anything is sent."""
    return Field(name, bool, bool)


def choice_field(name: str, **values: int) -> Field:
    """One of these words as its number."""
    return Field(name, int, lambda sent: _chosen(values, sent))


class Dispatcher:
    """Has actions done that a browser sends."""

    def __init__(self, store: Store, table: Mapping[str, Action]) -> None:
        self._store, self._table = store, table

    def dispatch(self, sent: object) -> None:
        """One action with its fields; unknown ones and wrong values are ignored. Raises UserError."""
        items = sent.items() if isinstance(sent, dict) else ()
        given = {key: value for key, value in items if isinstance(value, str)}
        wanted = self._table.get(given.get("act", ""))
        if wanted is None:
            return
        try:
            values = {name: field.read(given.get(field.name, "")) for name, field in wanted.fields.items()}
        except ValueError:
            log.warning("%s was sent with values that it cannot have", given["act"])
            return
        if wanted.while_moving or not self._store.refuse_while_moving():
            if wanted.goes_on:
                self._store.update(AppState.gone_on)
            wanted.do(**values)


def _number(sent: str, digits: int) -> int:
    if not sent:
        return 0
    if not (sent.isascii() and sent.isdigit() and len(sent) <= digits):
        raise ValueError(sent[:digits])
    return int(sent)


def _chosen(values: Mapping[str, int], sent: str) -> int:
    if sent not in values:
        raise ValueError(sent[:_DIGITS])
    return values[sent]
