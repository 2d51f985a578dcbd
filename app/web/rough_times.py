"""Times that nobody knows exactly, in steps: a number that moves with every look says more than is known."""

from __future__ import annotations

import math

_MINUTES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 90, 120, 180, 240, 360, 480)
_ROUGHLY_S = (5, 10, 15, 20, 30, 40, 50, 60, 80, *(60 * minutes for minutes in _MINUTES))


def roughly(seconds: float) -> float:
    """The step of a scale that is nearest: parts of an answer differ by half in the time that they take. What
    is longer than the scale stays as it is.
    """
    if seconds > _ROUGHLY_S[-1]:
        return seconds
    return min(_ROUGHLY_S, key=lambda step: abs(math.log(max(seconds, 1.0) / step)))
