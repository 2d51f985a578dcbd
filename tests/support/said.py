"""What a person is told, without the English of it: the figures in a text, the values of a message, which
function words it, the text of one element of a page. The words themselves are asserted where words are tested
(tests/test_words.py).
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from core.text.words import Message


def figures(text: str) -> list[str]:
    """The numbers in it, as they are written there."""
    return re.findall(r"\d+(?:[.,]\d+)*", text)


def values(said: str) -> dict[str, Any]:
    """What fills this message, and whatever messages are in it. Raises AssertionError where it is text, which
    has no other language.
    """
    assert isinstance(said, Message), f"no message: {said!r}"
    found = dict(said.values or {})
    for one in list(found.values()):
        if isinstance(one, Message):
            found = {**values(one), **found}
    return found


def worded_by(code: Any, *said: str) -> list[Message]:
    """Of these messages, and of those that fill them, the ones whose entry of the catalogues stands in the
    source of `code`: a function, a class or a module. Other text is passed over.
    """
    calls = [one for one in ast.walk(_parsed(code)) if isinstance(one, ast.Call) and one.args]
    named = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id in ("_", "_n", "N_")]
    entries = {one.args[0].value for one in named if isinstance(one.args[0], ast.Constant)}
    return [one for one in _with_their_parts(said) if one.template in entries]


def _parsed(code: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(code)))


def _with_their_parts(said: Iterable[Any]) -> Iterator[Message]:
    for one in said:
        if isinstance(one, Message):
            yield one
            yield from _with_their_parts((one.values or {}).values())


def text_in(html: str, mark: str) -> str:
    """The text of the element whose tag holds `mark`, as in 'id="stat-speed"'. Raises AssertionError where
    none does.
    """
    found = re.search(rf"<(\w+)\b[^>]*{re.escape(mark)}[^>]*>(.*?)</\1>", html, re.DOTALL)
    assert found, f"nothing with {mark}"
    return " ".join(re.sub("<[^>]+>", " ", found.group(2)).split())
