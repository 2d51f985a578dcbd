"""What attention says of a book's passages, beside what words say. No torch, no model.

A head's mass on a passage, over the square root of its length (core.cache.query_recorder), is made a share of
what it spends on all passages, and the shares of the chosen heads are averaged: no head with a flat look
decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Places = tuple[tuple[int, float], ...]  # see core.events.AttentionEvidence
MOST = 8  # passages that are told of; what lies behind them is noise
QUESTION = 0.5
LOOKED = 0.8


def strongest(masses: Sequence[Sequence[float]], starts: Sequence[int]) -> Places:
    """The passages that were looked at most, by their `starts`, each with its mean share, best first.

    masses: for each head its mass on each passage.
    """
    totals = [sum(one) or 1.0 for one in masses]
    shares = [
        sum(mass[at] / total for mass, total in zip(masses, totals, strict=True)) / len(masses)
        for at in range(len(starts))
    ]
    best = sorted(range(len(starts)), key=lambda at: (-shares[at], at))[:MOST]
    return tuple((starts[at], round(shares[at], 4)) for at in best)


def combined_scores(words: Sequence[float], looked: Mapping[int, float]) -> list[float]:
    """One score for each passage: its part of the best score by words, and `QUESTION` times its share of what
    was looked at.
    """
    best = max(words, default=0.0) or 1.0
    return [score / best + QUESTION * looked.get(number, 0.0) for number, score in enumerate(words)]
