"""Which of many answers from several passages is given, and whether one is: a logistic model over what the
reader and the words say of question, passage and answer. Values in, values out; it is learned by
tools.embedded_reader.verifier.

A small model's likeliest answer is wrong more often than right about a book that it does not know. What it
would say from other passages, how sure it is, and what stands near what, together tell which to trust
(selective question answering: Kamath et al. 2020, https://arxiv.org/abs/2006.09462).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from core.conversation.answer_validation import is_answer, is_refusal
from core.conversation.consensus import Bag, bag, overlap
from core.conversation.reranking import ScoredPassage
from core.evidence.support import Evidence, Support
from core.paths import ROOT

_WHO = re.compile(r"\W*(?:who|whom|whose)\b", re.IGNORECASE)
_COUNTED = re.compile(r"\bhow (?:many|much|old|long)|\bwhen\b", re.IGNORECASE)
_NAMED = re.compile(r"\bnames?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PassageAnswers:
    """A passage with what was said from it: each answer with its log-probability in nats, the likeliest
    first.
    """

    heard: ScoredPassage
    said: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """Answer number `at` of witness number `witness`, with what its passage holds of it."""

    witness: int
    at: int
    support: Support
    features: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verifier:
    """Log-odds that an answer is right: bias + weights * features. One is given from `given` on. From a short
    text it is given from `given_short` on: what one passage of a book says others say, too, but of a short
    text few could. It bears a mark from `marked` on, with `expected` times the number of right ones that the
    odds of all promise and `refusals` times the share of refusals: a reader that has found the place says
    much that is likely there, and little elsewhere.
    """

    bias: float
    weights: tuple[float, ...]
    given: float
    marked: float
    given_short: float
    expected: float = 0.0
    refusals: float = 0.0

    def score(self, one: ScoredAnswer) -> float:
        """Its log-odds."""
        return self.bias + math.fsum(map(float.__mul__, self.weights, one.features))

    def best(self, found: Sequence[ScoredAnswer]) -> tuple[ScoredAnswer, float] | None:
        """The likeliest to be right, the first of equals, with its score; None of none."""
        scored = [(one, self.score(one)) for one in found]
        return max(scored, key=lambda one: one[1], default=None)

    def is_sure(self, best: ScoredAnswer, found: Sequence[ScoredAnswer]) -> bool:
        """Whether the best of all that were found bears a mark."""
        promised = self.expected * expected_right(map(self.score, found))
        return self.score(best) + promised + self.refusals * refusals(best.features) >= self.marked


def expected_right(odds: Iterable[float]) -> float:
    """How many of so many answers are right, by their log-odds."""
    return math.fsum(1 / (1 + math.exp(-one)) for one in odds)


def refusals(features: Sequence[float]) -> float:
    """The share of refusals of all that was said to the question of an answer with these features."""
    return features[NAMES.index("refusals of all that was said")]


@lru_cache(maxsize=1)
def load_verifier(name: str) -> Verifier:
    """The verifier that comes with the program under this path in assets/models."""
    held = json.loads((ROOT / "assets" / "models" / name).read_text(encoding="utf-8"))
    assert list(held["weights"]) == list(NAMES), "the verifier was learned on other features: learn it anew"
    thresholds = (held[name] for name in ("given", "marked", "given_short", "expected", "refusals"))
    return Verifier(held["bias"], tuple(held["weights"].values()), *thresholds)


def scored_answers(question: str, heard: Sequence[PassageAnswers], evidence: Evidence) -> list[ScoredAnswer]:
    """Every answer that is one to the question, each text once a passage."""
    if not heard:
        return []
    table = _Table(question, heard, evidence)
    return [
        ScoredAnswer(number, at, *table.row(number, at))
        for number, one in enumerate(heard)
        for at, text in _distinct(one)
        if evidence.answers(text, question) and is_answer(text, question, evidence.text_of(one.heard.passage))
    ]


def _distinct(one: PassageAnswers) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    for at, (text, _level) in enumerate(one.said):
        if not _refused(text):
            first.setdefault(text, at)
    return [(at, text) for text, at in first.items()]


def _refused(text: str) -> bool:
    return not text.strip() or is_refusal(text)


class _Table:
    """What is known of all passages of one question."""

    def __init__(self, question: str, heard: Sequence[PassageAnswers], evidence: Evidence) -> None:
        self._question, self._heard, self._evidence = question, heard, evidence
        self._bags = [[bag(text) for text, _ in one.said if not _refused(text)] for one in heard]
        self._refusals = 1 - sum(map(len, self._bags)) / sum(len(one.said) for one in heard)
        likeliest = max(one.heard.asked for one in heard)
        # how much each passage's answers count: as the question is likely behind it, at temperature 2
        self._shares = [math.exp((one.heard.asked - likeliest) / 2) for one in heard]
        asks = (_WHO.match, _NAMED.search, _COUNTED.search)
        self._asked = tuple(float(bool(one(question))) for one in asks)

    def row(self, number: int, at: int) -> tuple[Support, tuple[float, ...]]:
        """The support of an answer, and its features in the order of `NAMES`."""
        one, (text, level) = self._heard[number], self._heard[number].said[at]
        words, passage = bag(text), one.heard.passage
        agreement = [self._agreement(words, other) for other in range(len(self._heard))]
        others = [*agreement[:number], *agreement[number + 1 :]]
        weighted = sum(map(float.__mul__, self._shares, agreement)) / sum(self._shares)
        support = self._evidence.support(text, passage, self._question)
        return support, (
            one.heard.refused,
            float(number == 0),
            agreement[number],
            weighted,
            max(others, default=0.0),
            self._refusals,
            self._evidence.commonness(text, self._question),
            level,
            float(support.bears_out),
            support.own,
            support.near,
            *self._asked,
        )

    def _agreement(self, words: Bag, number: int) -> float:
        """The mean overlap with all that was said from a passage; a refusal has none."""
        return sum(overlap(words, other) for other in self._bags[number]) / len(self._heard[number].said)


NAMES = (
    "log-probability of the refusal",
    "first passage by words",
    "agreement within the passage",
    "agreement over all passages",
    "agreement with another passage",
    "refusals of all that was said",
    "passages that hold its words",
    "log-probability",
    "borne out",
    "support of the answer",
    "support of three sentences",
    "asks who",
    "asks for a name",
    "asks for a number or time",
)
