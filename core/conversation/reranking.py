"""Passages found by words, put in the order of the model that is to answer. Values in, values out.

Words find a passage that is about the same things; a model that has read it tells, without writing anything,
how likely the question is behind it (query likelihood: Ponte and Croft 1998,
https://doi.org/10.1145/290941.291008; by a language model as a reranker: Sachan et al. 2022, arXiv
2204.07496) and whether it would refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.conversation.reading import ReadingStyle
from core.evidence.passages import Passage


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """What the words of a question and a model say of one passage. `words`: its score by words; `asked` and
    `refused`: the log-probabilities of the question behind it, and of the refusal behind that, in nats;
    `known_tokens`: that had not to be read for it.
    """

    passage: Passage
    words: float
    asked: float
    refused: float
    known_tokens: int = 0


def reranked(heard: Sequence[ScoredPassage], style: ReadingStyle) -> list[ScoredPassage]:
    """The best first: those at which the question is likely and the refusal is not. Of equals as before."""

    def score(one: ScoredPassage) -> float:
        return one.words + style.asked_weight * one.asked - style.refused_weight * one.refused

    return sorted(heard, key=score, reverse=True)
