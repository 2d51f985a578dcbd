"""Stop strings: where an answer ends because of what it says, though no token stands for it. Knows text; the
engine only asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.text.detokenizer import Detokenizer


class StopStrings:
    """Follows an answer token by token until it says one of `stops`, wherever in a token that begins or ends.

    The answer is what comes before the earliest of them. The engine calls it with every token that it emits,
    so a stop string inside a block of accepted tokens ends the answer there.
    """

    def __init__(self, stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        self._stops = tuple(stops)
        self._detokenizer = Detokenizer(decode)
        self._text = ""
        self._lengths: list[int] = []  # characters of text after each token
        self._end: int | None = None  # where the earliest stop string begins

    def __call__(self, token: int) -> bool:
        """Takes the next token; True when a stop string is complete with it."""
        if not self._stops:
            return False
        new = self._detokenizer.feed(token)
        searched = max(0, len(self._text) - max(map(len, self._stops)) + 1)
        self._text += new
        self._lengths.append(len(self._text))
        found = [at for at in (self._text.find(stop, searched) for stop in self._stops) if at >= 0]
        self._end = min(found, default=None)
        return bool(found)

    @property
    def kept(self) -> tuple[int, int] | None:
        """(characters, tokens) of the answer before the stop string; None where none was said.

        The tokens are the fewest that say all of it: the last one may begin the stop string too.
        """
        if self._end is None:
            return None
        return self._end, next(
            (n for n, length in enumerate(self._lengths, 1) if length >= self._end), 0
        ) if self._end else 0

    def unsettled(self, text: str) -> int:
        """How many characters at the end of `text` may yet turn out to be the beginning of a stop string."""
        longest = min(len(text), max(map(len, self._stops), default=1) - 1)
        return next(
            (n for n in range(longest, 0, -1) if any(stop.startswith(text[-n:]) for stop in self._stops)), 0
        )
