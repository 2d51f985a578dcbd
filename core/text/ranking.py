"""Finds the stretch of a book that a question is about, by BM25 over short passages. No model, no index on
disk.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+")
_PASSAGE_WORDS = 120  # a fact stands in a paragraph or two: longer passages drown it
_K1, _B = 1.2, 0.6  # the usual constants; passages are of nearly equal length
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
    a about after all also an and any are as at be been before but by can could did do does for from had has have he her
    him his how i if in into is it its just me more most my no not of on or our out over she should so some than that the
    their them then there these they this those to too under up us was we were what when where which while who whom whose
    why will with would you your tell explain describe say said book story chapter chapters passage text author happen
    happens happened please
""",
    )
)


def terms(text: str) -> list[str]:
    """Lower-case content words, roughly stemmed so that "lever" meets "levers"."""
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP and len(word) > 1]


def _stem(word: str) -> str:
    for ending in ("ies", "ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + ("y" if ending == "ies" else "")
    return word


class PartIndex:
    """Ranks the parts of one book for a question: a part is as good as its best passage, with a little for
    the second best.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._owner: list[int] = []
        self._counts: list[Counter[str]] = []
        for index, text in enumerate(texts):
            words = terms(text)
            # half overlapping: no fact lies on a border
            for start in range(0, max(1, len(words)), _PASSAGE_WORDS // 2):
                self._owner.append(index)
                self._counts.append(Counter(words[start : start + _PASSAGE_WORDS]))
        self._num_parts = len(texts)
        self._frequency = Counter(word for counts in self._counts for word in counts)
        self._mean = sum(counts.total() for counts in self._counts) / max(1, len(self._counts))

    def scores(self, question: str) -> list[float]:
        """One score per part, 0 or more."""
        words = set(terms(question))
        best: list[list[float]] = [[0.0] for _ in range(self._num_parts)]
        for owner, counts in zip(self._owner, self._counts, strict=True):
            best[owner].append(sum(self._weight(word, counts) for word in words if word in counts))
        return [top[0] + 0.1 * sum(top[1:2]) for top in (sorted(scores, reverse=True) for scores in best)]

    def _weight(self, word: str, counts: Counter[str]) -> float:
        n, df, tf = len(self._counts), self._frequency[word], counts[word]
        idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
        return idf * tf * (_K1 + 1) / (tf + _K1 * (1 - _B + _B * counts.total() / self._mean))
