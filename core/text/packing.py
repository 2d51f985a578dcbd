"""Messages among plain values: how they travel in a pipe and are kept on disk, as JSON.

A message is {"said": 1, "template": "{title} was read.", "values": {"title": "Emma"}}, a counted one has
"many" and "count" beside them. What is read may come from a process that parsed a stranger's book: a template
that could do more than be filled is text.
"""

from __future__ import annotations

import contextlib
import json
import re
import string
from typing import Any

from core.text.words import Message

_BEGINS = '{"said": '
VERSION = 1  # of this form: 1 + the last that reads otherwise
_FORMAT = re.compile(r"[ <>^]?\d{0,2},?(\.\d)?[dfg%]?")


def packed(value: Any) -> Any:
    """Plain values with each message as a dict that JSON has."""
    if isinstance(value, Message):
        return _packed(value)
    if isinstance(value, dict):
        return {key: packed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [packed(one) for one in value]
    return value


def to_json_text(value: Any, **form: Any) -> str:
    """`json.dumps` of values with messages in them."""
    return json.dumps(packed(value), **form)


def from_json(text: str | bytes) -> Any:
    """What `to_json_text` wrote. Raises ValueError when it is no JSON."""
    return json.loads(text, object_hook=unpacked)


def to_text(text: str) -> str:
    """For a field that holds text: a message as its JSON, other text as it is."""
    return to_json_text(text, ensure_ascii=False) if isinstance(text, Message) else text


def from_text(text: str) -> str:
    """What `to_text` wrote."""
    if text.startswith(_BEGINS):
        with contextlib.suppress(ValueError):
            return str(from_json(text))
    return text


def unpacked(values: dict[str, Any]) -> Any:
    """An object of JSON: the message that it is, or itself."""
    if values.get("said") != VERSION or not isinstance(template := values.get("template"), str):
        return values
    filled, many, count = values.get("values"), values.get("many", ""), values.get("count", 0)
    try:
        if not (_is_plain(template) and _is_plain(many)):
            return template
        return Message(template, filled, many=many, count=count)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return template


def _packed(message: Message) -> dict[str, Any]:
    values: dict[str, Any] = {"said": VERSION, "template": message.template}
    if message.values is not None:
        values["values"] = packed(dict(message.values))
    if message.many:
        values |= {"many": message.many, "count": message.count}
    return values


def _is_plain(template: str) -> bool:
    """Whether its fields are names in simple formats: none reaches into a value, none is a million wide."""
    return all(
        field is None or (field.isidentifier() and _FORMAT.fullmatch(form or "") and convert in (None, "r"))
        for _text, field, form, convert in string.Formatter().parse(template)
    )
