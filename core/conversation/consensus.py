"""Which of several answers to one question is given: the one that all of them agree with most.

A small model's likeliest answer is often one that few of its others resemble. Minimum Bayes risk decoding
gives the answer with the largest expected gain instead (Kumar and Byrne 2004,
https://aclanthology.org/N04-1022), the expectation taken over samples (Eikema and Aziz 2020,
https://arxiv.org/abs/2005.10283); the gain is F1 over words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from core.conversation.reading import ReadingStyle
from core.request import Params

_WORD = re.compile(r"\w+")
Bag = Counter[str]
_ARTICLES = frozenset(("a", "an", "the"))


def drawn(style: ReadingStyle, params: Params) -> Iterator[Params]:
    """How the answers beside the first are drawn, each with a seed of its own; none where the model was not
    measured to gain by it.
    """
    for number in range(1, style.consensus + 1):
        yield replace(
            params,
            temperature=max(params.temperature, style.consensus_temperature),
            top_p=1.0,
            seed=params.seed + number,
        )


def agreed(answers: Sequence[str], others: int = 0) -> tuple[int, float]:
    """Which answer has most in common with all, itself among them, the first of equals; and how much, the
    mean F1 of its words over all. So many `others` were drawn, refusals or not borne out by their passage:
    they agree with none. Raises ValueError without answers.
    """
    words = [bag(answer) for answer in answers]
    gains = [
        fmean([*(overlap(one, other) for other in words), *(0.0 for _ in range(others))]) for one in words
    ]
    best = max(gains)
    return gains.index(best), best


def bag(answer: str) -> Bag:
    """An answer's words without articles, each as often as it stands there."""
    return Counter(word for word in _WORD.findall(answer.lower()) if word not in _ARTICLES)


def overlap(one: Bag, other: Bag) -> float:
    """F1 over words, 2 * common / (both); of two without words 1."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0
