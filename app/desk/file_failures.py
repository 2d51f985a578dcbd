"""What is said of files that could not be opened: each by the name that the person knows it by, once."""

from __future__ import annotations

from core.text.words import Message, listed_texts

_NAMES = ("name", "path", "title")  # the values of a sentence that say a file


def of_file(name: str, why: str, *, stored_as: str = "") -> str:
    """Why the file called `name` was not opened. A sentence that names it, or the file that its upload was
    `stored_as`, names it so; any other has the name in front.
    """
    named = _named(why, stored_as or name, name)
    return named or listed_texts((name, why), ": ")


def _named(said: object, before: str, name: str) -> Message | None:
    """A sentence that says the file `before`, with `name` in its place; None for one that does not."""
    if not isinstance(said, Message) or said.values is None:
        return None
    found: dict[str, str] = {}
    for key, value in said.values.items():
        if key in _NAMES and str(value).startswith(before):
            found[key] = name + str(value).removeprefix(before)
        elif inner := _named(value, before, name):
            found[key] = inner
    if not found:
        return None
    return Message(said.template, {**said.values, **found}, many=said.many, count=said.count)
