"""What the program says in a conversation's file, to be read in any language again. The file may come from
anybody: no message that fails in a language, or is long in one, is believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from string import Formatter
from typing import Any

from core.text.packing import VERSION, from_json, packed
from core.text.words import LANGUAGES, Message, in_language, localized

_MOST_CHARS, _MOST_FILLED, _MOST_PIECES = 2000, 20_000, 200
_NUMBER_CHARS, _MOST_NUMBER = 100, 1e15


def said_in(extra: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The messages among an answer's lines, packed, by the names of these; as "pieces" its text, if the
    program says some of it.
    """
    pieces = [text for text, _level in extra.get("level_pieces") or ()]
    joined = [
        one
        for said, found in groupby(pieces, lambda one: isinstance(one, Message))
        for one in (found if said else ["".join(found)])
    ]
    lines = {name: extra.get(name) for name in names} | {"pieces": joined}
    return {name: packed(value) for name, value in lines.items() if _speaks(value)}


def with_messages(plain: Any, said: Any) -> Any:
    """A text, or a list of them, with the messages that `said` has for it."""
    if isinstance(plain, list):
        given = said if isinstance(said, list) and len(said) == len(plain) else [None] * len(plain)
        return [with_messages(*one) for one in zip(plain, given, strict=True)]
    return message_of(said) or plain


def text_in_pieces(text: str, said: Any) -> list[list[str]]:
    """An answer's text in pieces, without levels; none where they are not that text."""
    if not isinstance(said, list) or len(said) > _MOST_PIECES:
        return []
    pieces = [one if isinstance(one, str) else message_of(one) for one in said]
    if None in pieces:
        return []
    with in_language("en"):  # as the engine's process says it
        same = "".join(map(localized, pieces)).strip() == text.strip()
    return [[one, ""] for one in pieces] if same else []


def message_of(given: Any) -> Message | None:
    """The message that this is as JSON; None where it is none, or cannot be said shortly in each language."""
    try:
        if not isinstance(given, dict) or _chars(given) > _MOST_FILLED:
            return None
        made = from_json(json.dumps(given))
        for code in LANGUAGES:
            with in_language(code):
                if not 0 < len(localized(made)) <= _MOST_CHARS:
                    return None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return None
    return made if isinstance(made, Message) else None


def _speaks(value: Any) -> bool:
    return isinstance(value, Message) or (isinstance(value, list) and any(map(_speaks, value)))


def _chars(given: Any) -> int:
    """The most characters that come of a value, or of a message with such in it. Raises ValueError, TypeError
    or LookupError for what is neither.
    """
    if isinstance(given, str):
        return len(given.encode())
    if isinstance(given, int | float) and abs(given) < _MOST_NUMBER:
        return _NUMBER_CHARS
    if given["said"] != VERSION:
        raise ValueError("no message")
    template = given["template"] + given.get("many", "")
    sizes = {name: _chars(value) for name, value in (given.get("values") or {}).items()}
    fields = [name for _text, name, *_form in Formatter().parse(template) if name is not None]
    own = _chars(template) + _chars(given.get("count", 0))
    return own + sum(sizes.get(name, 0) + _NUMBER_CHARS for name in fields)
