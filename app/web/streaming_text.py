"""The answer that is being written, in blocks of HTML: what stands above its last one is rendered once, and
of a text that changes in its middle what does not change.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from app.desk.pacing import cut
from app.render.markdown import Citation, answer_html
from core.events import Piece

# an empty line before what begins neither a list nor a heading: nothing that comes changes what stands above
BORDER = re.compile(r"\n[ \t]*\n\s*(?=[^\s\d#*•-])")


class LiveText:
    """Renders a growing text at the cost of its last paragraph."""

    def __init__(self) -> None:
        self._pieces: tuple[Piece, ...] = ()
        self._text = ""
        self._signs: tuple[Citation, ...] = ()
        self._begin()

    @property
    def hidden(self) -> bool:
        """Whether some of the text is not to be seen yet."""
        return self._visible < len(self._text)

    def blocks(
        self, pieces: tuple[Piece, ...], visible: int, signs: tuple[Citation, ...] = ()
    ) -> tuple[str, ...]:
        """The HTML of the first `visible` characters with the `signs` of their sentences; all blocks but the
        last stay while it grows, unless a sign in them changes.
        """
        if pieces is not self._pieces:
            self._take(pieces)
        if self._above(signs) != self._above(self._signs):
            self._begin()
        self._signs = signs
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

    def _above(self, signs: tuple[Citation, ...]) -> tuple[Citation, ...]:
        """Those that stand in the blocks that stay."""
        return tuple(one for one in signs if one.shown_from < self._done)

    def _settle(self, end: int) -> None:
        """Adds a block: the text up to `end`."""
        self._blocks.append(self._html(end))
        self._done = end
        while (beyond := self._before + len(self._pieces[self._next].text)) <= end:
            self._next, self._before = self._next + 1, beyond

    def _html(self, end: int) -> str:
        pieces = cut(self._pieces[self._next :], end - self._before, start=self._done - self._before)
        here = (
            replace(one, start=one.start - self._done, end=one.end - self._done)
            for one in self._signs
            if self._done <= one.shown_from and one.end <= end
        )
        return answer_html([(piece.text, piece.level) for piece in pieces], tuple(here))


class StandingText:
    """Renders a summary that is told in the place of what stands there, at the cost of what has changed."""

    def __init__(self) -> None:
        self._kept: dict[tuple, str] = {}  # the paragraphs of the last time

    def blocks(
        self, pieces: tuple[Piece, ...], signs: tuple[Citation, ...], telling: tuple[int, int]
    ) -> tuple[str, ...]:
        """The HTML of every paragraph with the `signs` of its sentences; `telling`: what is not settled."""
        text = "".join(piece.text for piece in pieces)
        borders = [0, *(border.end() for border in BORDER.finditer(text)), len(text)]
        shown = [self._shown(pieces, signs, telling, start, end) for start, end in pairwise(borders)]
        self._kept = dict(shown)
        return tuple(html for _key, html in shown)

    def _shown(
        self,
        pieces: tuple[Piece, ...],
        signs: tuple[Citation, ...],
        telling: tuple[int, int],
        start: int,
        end: int,
    ) -> tuple[tuple, str]:
        inside = tuple((one.text, one.level) for one in cut(pieces, end, start=start))
        here = tuple(
            replace(one, start=one.start - start, end=one.end - start)
            for one in signs
            if start <= one.shown_from and one.end <= end
        )
        grey = (max(telling[0] - start, 0), max(min(telling[1], end) - start, 0))
        key = (inside, here, grey)
        return key, self._kept.get(key) or answer_html(inside, here, grey)
