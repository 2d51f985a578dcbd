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
        self._pieces: tuple[Piece, ...] = ()
        self._text = ""
        self._begin()

    @property
    def hidden(self) -> bool:
        """Whether some of the text is not to be seen yet."""
        return self._visible < len(self._text)

    def blocks(self, pieces: tuple[Piece, ...], visible: int) -> tuple[str, ...]:
        """The HTML of the first `visible` characters; all blocks but the last stay while it grows."""
        if pieces is not self._pieces:
            self._take(pieces)
        if visible < self._done:
            self._begin()
        self._visible = min(visible, len(self._text))
        for border in BORDER.finditer(self._text, self._done, self._visible):
            self._settle(border.end())
        return (*self._blocks, self._html(self._visible))

    def _begin(self) -> None:
        self._blocks: list[str] = []
        self._done = 0  # characters of these blocks
        self._next = self._before = (
            0  # the first piece that reaches beyond them, and the characters before it
        )
        self._visible = 0

    def _take(self, pieces: tuple[Piece, ...]) -> None:
        if self._standing(pieces) != self._standing(self._pieces):
            self._begin()
        self._pieces, self._text = pieces, "".join(piece.text for piece in pieces)

    def _standing(self, pieces: tuple[Piece, ...]) -> tuple:
        """What the blocks were made of, when it is in these pieces."""
        return pieces[: self._next], cut(pieces[self._next :], self._done - self._before)

    def _settle(self, end: int) -> None:
        """Adds a block: the text up to `end`."""
        self._blocks.append(self._html(end))
        self._done = end
        while (beyond := self._before + len(self._pieces[self._next].text)) <= end:
            self._next, self._before = self._next + 1, beyond

    def _html(self, end: int) -> str:
        pieces = cut(self._pieces[self._next :], end - self._before, start=self._done - self._before)
        return answer_html([(piece.text, piece.level) for piece in pieces])
