"""A text that knows which level proposed each of its characters, and still does when it is cut and joined.

A summary is put together of sentences that were decoded: so their colours are those of their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from core.events import Piece


@dataclass(frozen=True, slots=True)
class LevelledText:
    """`levels`: one for each character of `text` (see Piece); "" where no token was decoded for it."""

    text: str = ""
    levels: tuple[str, ...] = ()

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> LevelledText:
        """Pieces in a row."""
        pieces = tuple(pieces)
        levels = tuple(piece.level for piece in pieces for _ in piece.text)
        return cls("".join(piece.text for piece in pieces), levels)

    @classmethod
    def plain(cls, text: str) -> LevelledText:
        """What nobody decoded."""
        return cls(text, ("",) * len(text))

    @classmethod
    def joined(cls, parts: Iterable[LevelledText], separator: str = "") -> LevelledText:
        """Parts in a row, with something plain between them."""
        parts, levels = tuple(parts), list[str]()
        for number, part in enumerate(parts):
            levels += ("",) * (len(separator) if number else 0) + part.levels
        return cls(separator.join(part.text for part in parts), tuple(levels))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """One for each run of the same level."""
        found, at = [], 0
        for level, run in groupby(self.levels):
            end = at + len(tuple(run))
            found.append(Piece(self.text[at:end], level))
            at = end
        return tuple(found)

    def __getitem__(self, part: slice) -> LevelledText:
        return LevelledText(self.text[part], self.levels[part])

    def __add__(self, other: LevelledText) -> LevelledText:
        return LevelledText(self.text + other.text, self.levels + other.levels)

    def strip(self) -> LevelledText:
        """Without the white space around it."""
        left, end = len(self.text) - len(self.text.lstrip()), len(self.text.rstrip())
        return self[left : max(left, end)]

    def without(self, pattern: str, flags: int = 0) -> LevelledText:
        """Without what a regular expression matches."""
        kept, at = [], 0
        for match in re.finditer(pattern, self.text, flags):
            kept.append(self[at : match.start()])
            at = match.end()
        return LevelledText.joined([*kept, self[at:]])

    def on_one_line(self) -> LevelledText:
        """Its words with one space between them."""
        words = [self[match.start() : match.end()] for match in re.finditer(r"\S+", self.text)]
        return LevelledText.joined(words, " ")


def stripped(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Pieces without the white space around them; one that nothing is cut from stays what it is (a Message
    among them).
    """
    text, at, kept = "".join(piece.text for piece in pieces), 0, []
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    for piece in pieces:
        inside = piece.text[max(0, start - at) : max(0, end - at)]
        at += len(piece.text)
        if inside:
            kept.append(piece if inside == piece.text else Piece(inside, piece.level))
    return tuple(kept)
