"""The answer that is being written, in blocks of HTML: what stands above its last one is rendered once."""

from __future__ import annotations

import re

from app.pacing import cut
from app.views import answer_html
from core.events import Piece

# an empty line before what begins neither a list nor a heading: nothing that comes changes what stands above
BORDER = re.compile(r"\n[ \t]*\n\s*(?=[^\s\d#*•-])")


class LiveText:
    """Renders a growing text at the cost of its last paragraph."""

    def __init__(self) -> None:
        self._text = ""  # of the blocks below
        self._blocks: list[str] = []

    def blocks(self, pieces: tuple[Piece, ...]) -> tuple[str, ...]:
        """The HTML of the pieces; all blocks but the last stay the same strings while the text grows."""
        text = "".join(piece.text for piece in pieces)
        if not text.startswith(self._text):
            self._text, self._blocks = "", []
        for border in BORDER.finditer(text, len(self._text)):
            self._blocks.append(_html(pieces, len(self._text), border.end()))
            self._text = text[: border.end()]
        return (*self._blocks, _html(pieces, len(self._text), len(text)))


def _html(pieces: tuple[Piece, ...], start: int, end: int) -> str:
    return answer_html(tuple((piece.text, piece.level) for piece in cut(pieces, end, start=start)))
