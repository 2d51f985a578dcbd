"""What a person is told, without the English of it: the figures in a text, the values of a message, the text
of one element of a page. The words themselves are asserted where words are tested (tests/test_words.py).
"""

from __future__ import annotations

import re
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


def text_in(html: str, mark: str) -> str:
    """The text of the element whose tag holds `mark`, as in 'id="stat-speed"'. Raises AssertionError where
    none does.
    """
    found = re.search(rf"<(\w+)\b[^>]*{re.escape(mark)}[^>]*>(.*?)</\1>", html, re.DOTALL)
    assert found, f"nothing with {mark}"
    return " ".join(re.sub("<[^>]+>", " ", found.group(2)).split())
