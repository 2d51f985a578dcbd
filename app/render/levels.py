"""Which level proposed what, for a text that is put together of sentences that were decoded before."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.events import Piece

SENTENCE = re.compile(r"[^.!?\n]+[.!?]*[\"”’)]*\s*|\s+|[.!?]+")
LEAST_CHARS = 12  # shorter sentences stand anywhere


class Heard:
    """All that was decoded for an answer, whatever of it stands in the end."""

    def __init__(self) -> None:
        self._text = ""
        self._levels: list[str] = []  # of each character

    def hear(self, pieces: Sequence[Piece]) -> None:
        """Takes notice of decoded text; runs of white space count as one space."""
        for piece in pieces:
            for char in piece.text:
                char = " " if char.isspace() else char
                if char != " " or not self._text.endswith(" "):
                    self._text += char
                    self._levels.append(piece.level)

    def coloured(self, text: str) -> tuple[Piece, ...]:
        """The text with the levels of those of its sentences that were decoded; the rest has none."""
        pieces: list[Piece] = []
        for sentence in SENTENCE.findall(text):
            words = " ".join(sentence.split())
            at = self._text.find(words) if len(words) >= LEAST_CHARS else -1
            if at < 0 or words != sentence.rstrip():
                pieces.append(Piece(sentence, ""))
                continue
            levels = self._levels[at : at + len(words)]
            pieces += [Piece(char, level) for char, level in zip(sentence, levels, strict=False)]
            pieces.append(Piece(sentence[len(words) :], ""))
        return tuple(pieces)
