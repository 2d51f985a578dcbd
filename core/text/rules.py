"""How values that a person writes are read: one rule says what is allowed, in words, and makes a value of it.
Knows no keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.text.words import listed_texts
from core.text.words import translated as _

_DECIMAL_COMMA = re.compile(r"[-+]?(?:\d+,\d{1,2}|0,\d+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """How a key's value is read: `parse` raises ValueError on what `words` do not allow."""

    words: Callable[[], str]
    parse: Callable[[Any], Any]
    auto: bool = False
    names: tuple[str, ...] = ()  # all that may be chosen from, where that is a short list

    @property
    def allowed(self) -> str:
        """What the user is told."""
        return _("auto or {values}").format(values=self.words()) if self.auto else self.words()


def choice(names: tuple[str, ...], *, auto: bool = False) -> Rule:
    """One of `names`, in any case of letters."""

    def parse(value: Any) -> str:
        name = str(value).strip().lower()
        if name not in names:
            raise ValueError(value)
        return name

    return Rule(lambda: one_of(names), parse, auto, names)


def bits(sizes: tuple[int, ...]) -> Rule:
    """One of these numbers of bits, or auto."""

    def parse(value: Any) -> int:
        if int(value) not in sizes:
            raise ValueError(value)
        return int(value)

    names = tuple(map(str, sizes))
    return Rule(lambda: one_of(names), parse, True, names)


def one_of(names: tuple[str, ...]) -> str:
    """ "one of a, b", as the user is told it."""
    return _("one of {names}").format(names=", ".join(names))


def _as_float(value: Any) -> float:
    """A number, also when written as text: YAML 1.1 reads 1e-3 as text, and 0,7 is one where it can be no
    thousands. Truth values are not numbers.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(value)
    if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value.strip()):
        value = value.replace(",", ".")
    return float(value)


def number(low: float, high: float, *, auto: bool = False, unit: str = "") -> Rule:
    """A number within the bounds, also written as text."""

    def parse(value: Any) -> float:
        number = _as_float(value)
        if not low <= number <= high:
            raise ValueError(value)
        return number

    def words() -> str:
        words = _("a number from {low:g} to {high:g}").format(low=low, high=high)
        return listed_texts((words, unit), "") if unit else words

    return Rule(words, parse, auto)


def whole(low: int, high: int, *, auto: bool = False, unit: str = "") -> Rule:
    """A whole number within the bounds; 8,000 and 8_000 are read as 8000."""

    def parse(value: Any) -> int:
        text = value.replace(",", "").replace("_", "") if isinstance(value, str) else value
        number = _as_float(text)
        if number != int(number) or not low <= number <= high:
            raise ValueError(value)
        return int(number)

    def words() -> str:
        words = _("a whole number from {low:,} to {high:,}").format(low=low, high=high)
        return listed_texts((words, unit), "") if unit else words

    return Rule(words, parse, auto)


def tokens(low: int, high: int, *, auto: bool = False) -> Rule:
    """`whole`, said in tokens."""

    def words() -> str:
        return _("a whole number from {low:,} to {high:,} tokens").format(low=low, high=high)

    return replace(whole(low, high, auto=auto), words=words)


def _flag(value: Any) -> bool:
    name = str(value).strip().lower()
    if name not in ("true", "yes", "on", "false", "no", "off"):
        raise ValueError(value)
    return name in ("true", "yes", "on")


def numbers(value: Any) -> tuple[int, ...]:
    """Different whole numbers from 0, in a list or written as one: "0, 1"."""
    given = value.strip("[] ").split(",") if isinstance(value, str) else value
    found = tuple(int(str(one)) for one in given)
    if not found or len(set(found)) < len(found) or min(found) < 0:
        raise ValueError(value)
    return found


def text(value: Any) -> str:
    """Text that is not empty. Raises ValueError otherwise, as all of these."""
    if not isinstance(value, (str, Path)) or not str(value).strip():
        raise ValueError(value)
    return str(value).strip()


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts, or one."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, str) and one for one in found):
        raise ValueError(value)
    return tuple(found)


def hosts(value: Any) -> tuple[str, ...]:
    """Names or addresses, each with its port or none."""
    found = tuple(host.lower() for host in texts(value))
    if not all(re.fullmatch(r"([\w.-]+|\[[\da-f:]+\])(:\d{1,5})?", host) for host in found):
        raise ValueError(value)
    return found


def folders(value: Any) -> tuple[str, ...]:
    """Folders by their whole path; ~ is the home folder."""
    found = tuple(str(Path(one).expanduser()) for one in texts(value))
    if not all(os.path.isabs(folder) for folder in found):
        raise ValueError(value)
    return found


FLAG = Rule(lambda: _("true or false"), _flag, names=("true", "false"))


def parsed(rule: Rule, value: Any, *, default: Any) -> Any:
    """The value by its rule. An empty value (`key:`) is the default."""
    if value is None:
        return default
    if rule.auto and isinstance(value, str) and value.strip().lower() == "auto":
        return None
    return rule.parse(value)
