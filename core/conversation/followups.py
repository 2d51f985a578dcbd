"""A question that leans on those before it, "And why did he?": what is looked up for it, how it is put."""

from __future__ import annotations

import re

from core.evidence.support import HEDGE, REFUSALS
from core.request import HistoryTurn, Request
from core.text.ranking import NAME, terms

_FEW_WORDS = 2  # content words: a question with so few leans on the one before
_BEFORE_WORDS = 40  # of an answer, as far as it is put before the next question
_FAR_BACK = 3  # questions in a row may lean on one another
# pronouns and the like of the app's languages; "sie" with a capital may be the reader of the question
_LEANS = re.compile(
    r"\b(?:he|him|his|she|hers?|it|its|they|them|their|theirs|this|that|these|those|there|then|so|one"
    r"|er|ihn|ihm|ihr|ihre[mnrs]?|ihnen|sein|seine[mnrs]?|diese[mnrs]?|dort|dann|damit|danach)\b"
    r"|(?-i:\bsie\b|\bes\b|\bdas(?=\W*$|\s+(?:getan|gemacht|gesagt|geschehen)\b))"
    r"|[他她它这那]",
    re.IGNORECASE,
)
# "What is ambergris?" has one content word, and is whole
_WHOLE = re.compile(
    r"\W*(?:(?:who|what|where|when)(?:['’]s|\s+(?:is|are|was|were))\s+(?:(?:an?|the)\s+)?"
    r"|(?:wer|was|wo|wann)\s+(?:ist|sind|war|waren)\s+(?:(?:der|die|das|eine?)\s+)?)[\w'’-]+\W*",
    re.IGNORECASE,
)


def looked_up(ask: Request) -> str:
    """The words by which a question's passages are found: those of the questions that it leans on with them,
    and the names in their answers.
    """
    before = leant_on(ask)
    names = [name for one in before for name in _names(ask, _first_words(one.answer))]
    return " ".join((ask.question, *(one.question for one in before), *names))


def leant_on(ask: Request) -> tuple[HistoryTurn, ...]:
    """What was asked before, in its order, as far as the question cannot be understood without it."""
    found: list[HistoryTurn] = []
    question = ask.question
    for before in reversed(ask.history[-_FAR_BACK:]):
        few = len(set(terms(question))) < _FEW_WORDS and not _WHOLE.fullmatch(question)
        if not (_LEANS.search(question) or few):
            break
        found.insert(0, before)
        question = before.question or ""
    return tuple(found)


def restated(ask: Request) -> str:
    """The question as a reader of one passage understands it: behind those it leans on and their answers."""
    said: list[str] = []
    for before in leant_on(ask):
        answer = _first_words(before.answer)
        unsaid = _plain(answer).startswith(tuple(map(_plain, REFUSALS)))
        said += [(before.question or "").strip(), "" if unsaid else answer]
    return " ".join(filter(None, (*said, ask.question.strip())))


def _names(ask: Request, answer: str) -> list[str]:
    """Words of an answer with a capital; the first one only where the book never writes it without."""
    found = []
    for match in NAME.finditer(answer):
        first = not re.search(r"\w", answer[: match.start()])
        if not (first and re.search(rf"\b{match.group().lower()}\b", ask.book.text)):
            found.append(match.group())
    return found


def _first_words(answer: str) -> str:
    """An answer without the quotations below it, if it is short enough to be repeated."""
    first = answer.strip().split("\n\n")[0].removeprefix(HEDGE)
    return " ".join(first.split()) if len(first.split()) <= _BEFORE_WORDS else ""


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
