"""Streaming detokenizer: token ids in, printable text out, in linear time and never with half a character."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

_BROKEN = "\ufffd"
# a character has at most 4 bytes, so at most 4 byte tokens: more is no text
_MAX_HELD = 8
# tokens decoded again before the new ones: decoders look at neighbours
_CONTEXT = 4


class Detokenizer:
    """Turns a stream of ids into text. `feed` returns only what is final; what it returned is never taken
    back.

    A token may hold a fraction of a UTF-8 character, so ids are held until they decode without a replacement
    character. Each call decodes a few tokens only, whatever the length of the answer.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._settled: list[int] = []  # the newest ids whose text was returned
        self._held: list[int] = []  # ids whose text is not complete yet

    def feed(self, token: int) -> str:
        """The text that `token` completes; empty while a character is incomplete."""
        self._held.append(token)
        text = self._pending()
        if text.endswith(_BROKEN) and len(self._held) < _MAX_HELD:
            return ""
        self._settle()
        return printable(text)

    def flush(self) -> str:
        """What is still held, without its broken end."""
        text = self._pending() if self._held else ""
        self._settle()
        return printable(text)

    def _pending(self) -> str:
        known = self._decode(self._settled) if self._settled else ""
        return self._decode(self._settled + self._held)[len(known) :]

    def _settle(self) -> None:
        self._settled = (self._settled + self._held)[-_CONTEXT:]
        self._held = []


def printable(text: str) -> str:
    """`text` without replacement characters and without control characters other than line break and tab."""
    return "".join(
        char
        for char in text
        if char in "\n\t" or (char != _BROKEN and unicodedata.category(char) not in _HIDDEN)
    )


_HIDDEN = frozenset({"Cc", "Cs", "Co", "Cn"})
