"""Lets a round's tokens appear over the time the next round is expected to take, instead of all at once."""

from __future__ import annotations

import time
from collections.abc import Callable

from core.events import Piece

SMOOTH_S = 0.15  # rounds that follow each other faster need no pacing
# after so long everything that came is shown, whatever is expected
LONGEST_S = 1.5
_NEWEST = 0.3  # weight of the newest interval in the expectation


class Pacer:
    """Counts the characters of an answer that are to be seen by now. Written by one thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._interval: float | None = None  # expected seconds between rounds
        # characters seen when the newest round came, characters it brought us to, when
        self._round = (0, 0, 0.0)

    def arrived(self, characters: int) -> None:
        """A round has brought the answer to so many characters; fewer than before means that a new text
        begins.
        """
        now = self._clock()
        _, before, at = self._round
        if characters < before:
            self._interval, self._round = None, (0, characters, now)
            return
        seen = self.visible()
        if before:
            interval = now - at
            self._interval = (
                interval if self._interval is None else self._interval + _NEWEST * (interval - self._interval)
            )
        self._round = (seen, characters, now)

    def visible(self) -> int:
        """Characters to show now."""
        seen, end, at = self._round
        if self._interval is None or self._interval < SMOOTH_S:
            return end
        share = (self._clock() - at) / min(self._interval, LONGEST_S)
        return end if share >= 1 else seen + int((end - seen) * share)


def cut(pieces: tuple[Piece, ...], end: int, *, start: int = 0) -> tuple[Piece, ...]:
    """The characters of an answer from `start` to `end`, in its pieces."""
    kept: list[Piece] = []
    at = 0
    for piece in pieces:
        left, right = max(0, start - at), min(len(piece.text), end - at)
        at += len(piece.text)
        if left == 0 and right == len(piece.text):
            kept.append(piece)
        elif left < right:
            kept.append(Piece(piece.text[left:right], piece.level))
        if at >= end:
            break
    return tuple(kept)
