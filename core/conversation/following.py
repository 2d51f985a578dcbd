"""A question that leans on the one before it, "And why did he?": what is looked up for it, how it is put."""

from __future__ import annotations

import re

from core.ask import Ask, Exchange
from core.evidence.support import UNSAID
from core.text.ranking import terms

_FEW_WORDS = 2  # content words: a question with so few leans on the one before
_BEFORE_WORDS = 40  # of an answer, as far as it is put before the next question
_LEANS = re.compile(
    r"\b(?:he|him|his|she|hers?|it|its|they|them|their|theirs|this|that|these|those|there|then|so|one)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<!\w)[A-Z][^\W\d_]{2,}(?!\w)")


def looked_up(ask: Ask) -> str:
    """The words by which a question's passages are found: those of the question before with them, and the
    names in its answer, where this one leans on it.
    """
    before = leant_on(ask)
    if before is None:
        return ask.question
    names = " ".join(_NAME.findall(_first_words(before.answer)))
    return f"{ask.question} {before.question} {names}"


def leant_on(ask: Ask) -> Exchange | None:
    """What was asked before, where the question cannot be understood without it."""
    if not ask.history:
        return None
    leans = _LEANS.search(ask.question) or len(set(terms(ask.question))) < _FEW_WORDS
    return ask.history[-1] if leans else None


def restated(ask: Ask) -> str:
    """The question as a reader of one passage understands it: behind the one it leans on and its answer."""
    before = leant_on(ask)
    if before is None:
        return ask.question
    answer = _first_words(before.answer)
    if _plain(answer).startswith(_plain(UNSAID)):
        answer = ""
    return " ".join(filter(None, (before.question.strip(), answer, ask.question.strip())))


def _first_words(answer: str) -> str:
    """An answer without the quotations below it, if it is short enough to be repeated."""
    first = answer.strip().split("\n\n")[0]
    return " ".join(first.split()) if len(first.split()) <= _BEFORE_WORDS else ""


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
