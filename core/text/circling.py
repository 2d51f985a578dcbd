"""Notices an answer that goes round in circles, the way small models do on long texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

# of distinct 4-grams: ordinary prose has 0.9 and more, a looping answer falls under 0.4
MIN_DISTINCT = 0.5
_MAX_PERIOD = 80  # longest repeated passage looked for, in tokens
# so many tokens must be repetition: a refrain or a short list is none
_MIN_REPEATED = 36
_MIN_CYCLES = 3
# distinct 4-grams are counted over so many of the newest tokens
_WINDOW = 192


def distinct_share(tokens: Sequence[int], n: int = 4) -> float:
    """Distinct n-grams / n-grams; 1.0 for a text too short to have one."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def circles(tokens: Sequence[int]) -> bool:
    """True when the end of `tokens` repeats itself: one passage over and over, or hardly a new 4-gram."""
    return cycle_period(tokens) is not None or (
        len(tokens) >= _WINDOW and distinct_share(tokens[-_WINDOW:]) < MIN_DISTINCT
    )


def cycle_period(tokens: Sequence[int]) -> int | None:
    """The length of the passage that the end of `tokens` repeats at least three times on end; None when it
    does not.
    """
    for period in range(1, min(_MAX_PERIOD, len(tokens) // _MIN_CYCLES) + 1):
        span = max(_MIN_REPEATED, period * _MIN_CYCLES)
        if span <= len(tokens) and all(
            tokens[-i] == tokens[-i - period] for i in range(1, span - period + 1)
        ):
            return period
    return None


def before_circling(tokens: Sequence[int]) -> int:
    """How many tokens of a circling answer are worth keeping: up to where nothing new is said any more."""
    period = cycle_period(tokens)
    if period is not None:
        end = len(tokens)
        while end > period and tokens[end - 1] == tokens[end - 1 - period]:
            end -= 1
        return end
    seen: Counter[tuple[int, ...]] = Counter()
    for start in range(len(tokens) - 7):
        gram = tuple(tokens[start : start + 8])
        seen[gram] += 1
        if seen[gram] > 1:
            return start
    return len(tokens)
