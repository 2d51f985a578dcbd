"""How far a summary keeps to the text it was made from: the check that a small model's summary must pass. No
model here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.text.ranking import terms

_COPIED_WORDS = 6  # so many words in a row as in the text are copied, not told
_MOST_COPIED = 0.5  # up to this share, quoting is fine
_STRANGER_COST = 0.15
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Grounding:
    """What ties a summary to its text."""

    supported: float  # content words that occur in the text / all content words
    strangers: tuple[str, ...]  # names the text does not know
    copied: float  # words in runs taken over as they stand / all words

    @property
    def score(self) -> float:
        """Higher is better, 1 at most."""
        return self.supported - _STRANGER_COST * len(self.strangers) - max(0.0, self.copied - _MOST_COPIED)


def grounding(summary: str, passage: str) -> Grounding:
    """Compares a summary with the passage it was made from, by words."""
    known, words = set(terms(passage)), terms(summary)
    supported = sum(word in known for word in words) / len(words) if words else 0.0
    return Grounding(
        supported, _strangers(summary, passage), _copied(_WORD.findall(summary.lower()), passage)
    )


def _strangers(summary: str, passage: str) -> tuple[str, ...]:
    """Capitalised words inside a sentence that stand nowhere in the passage, in any case."""
    known = {word.lower() for word in _WORD.findall(passage)}
    names = re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", summary)
    return tuple(dict.fromkeys(name for name in names if name.lower() not in known))


def _copied(words: Sequence[str], passage: str) -> float:
    """The share of words that stand in a run of `_COPIED_WORDS` of the passage."""
    text = _WORD.findall(passage.lower())
    runs = {tuple(text[i : i + _COPIED_WORDS]) for i in range(len(text) - _COPIED_WORDS + 1)}
    taken: set[int] = set()
    for start in range(len(words) - _COPIED_WORDS + 1):
        if tuple(words[start : start + _COPIED_WORDS]) in runs:
            taken.update(range(start, start + _COPIED_WORDS))
    return len(taken) / len(words) if words else 0.0
