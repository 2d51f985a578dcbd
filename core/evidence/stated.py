"""Whether a passage counts what an English question asks "how many" of, and whether one sentence states what
it asks for. No model.

A small model takes a number that stands near the question's words: of "it weighed four tons; it had 1,008
prisms" four prisms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from core.evidence.answer_kinds import TIME_WORD, own_words
from core.evidence.denial import DENIES
from core.evidence.passages import sentence_spans
from core.text.ranking import terms

_HOW_MANY = re.compile(r"\bhow many\s+", re.IGNORECASE)
_HOW_OLD = re.compile(r"\bhow old\b", re.IGNORECASE)
# how long something took: an age has "old" behind it, or "aged" before
_LASTS = r"[\s-]+(?:years?|months?|weeks?|days?|hours?)\b(?![\s-]+(?:old|of\s+age)\b)"
_WHEN = re.compile(r"^\W*(?:\w+ )?(?:when|(?:what|which) (?:year|day|month))\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:[.,'’]\d+)*")
_BEHIND = re.compile(r"[\s-]+[^\W\d_]+")  # a word with nothing but room before it
_NUMBER = re.compile(
    r"\d+(?:[.,]\d+)*|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty|hundred"
    r"|thousand|dozen",
    re.IGNORECASE,
)
_PLURAL = re.compile(
    r"(?:\w+[^\Ws]s|men|women|children|feet|teeth|mice|geese|sheep|oxen|pence)", re.IGNORECASE
)
# what others are counted under: nine sailors are nine people
_GENERAL = frozenset(
    terms("people persons children members things animals souls creatures objects times kinds types sorts")
)
_JOINS = {"and", "or"}
_FEW_WORDS = 3  # content words of a question: fewer stand together by chance
_AHEAD = 3  # words behind a number: "seven large glass prisms"
_TIMES = re.compile(rf"\d+|\b(?:{TIME_WORD})\b", re.IGNORECASE)


def counted(question: str) -> frozenset[str]:
    """The words, stemmed, for what is asked "how many" of; empty where that is something general or cannot be
    told.
    """
    asked = _HOW_MANY.search(question)
    if asked is None:
        return frozenset()
    words = [word for word in _WORD.findall(question[asked.end() :]) if word.lower() not in _JOINS]
    found = frozenset(term for word in takewhile(terms, words) for term in terms(word))
    return frozenset() if found & _GENERAL else found


def counts_other(answer: str, question: str, text: str) -> bool:
    """Whether every number of an answer that stands in `text` counts something else there than is asked
    about; of an age, how long something took.
    """
    if _HOW_OLD.search(question):
        return _lasts(answer, text)
    asked = counted(question)
    if not asked:
        return False
    found = [behind for number in _numbers(answer) for behind in _behind(number, text)]
    nouns = [behind for behind in found if behind and _PLURAL.fullmatch(behind[-1])]
    return bool(found) and nouns == found and not any(asked & set(terms(" ".join(one))) for one in nouns)


def _lasts(answer: str, text: str) -> bool:
    """Whether the number of an answer, wherever it stands in `text`, says how long something took."""
    for number in _numbers(answer)[-1:]:
        stands = rf"(\bage[ds]?(?:\s+of)?\s+)?[\w-]*\b{re.escape(number)}\b({_LASTS})?"
        places = re.findall(stands, text, re.IGNORECASE)
        return bool(places) and all(lasts and not aged for aged, lasts in places)
    return False


def states(answer: str, question: str, text: str) -> bool:
    """Whether one of the sentences of `text` says when, or how many: see `_says`."""
    return any(_says(answer, question, text[start:end]) for start, end in sentence_spans(text, 0, len(text)))


def _says(answer: str, question: str, sentence: str) -> bool:
    """Whether it has all words of question and answer, and no time but the
    answer's, or the answer's number before what is counted. Who did what to whom words alone do not tell, nor
    what was not done.
    """
    held, asked = set(terms(sentence)), set(terms(_HOW_MANY.sub("", question)))
    if (
        len(asked) < _FEW_WORDS
        or DENIES.search(question)
        or not held.issuperset(asked | own_words(answer, question))
    ):
        return False
    if nouns := counted(question):
        behind = [one for number in _numbers(answer) for one in _behind(number, sentence)]
        return any(nouns & set(terms(" ".join(one))) for one in behind)
    if not _WHEN.search(question):
        return False
    said = {one.lower() for one in _TIMES.findall(answer)}
    return bool(said) and said == {one.lower() for one in _TIMES.findall(sentence)}


def _numbers(answer: str) -> list[str]:
    return [word for word in _WORD.findall(answer) if _NUMBER.fullmatch(word)]


def _behind(number: str, text: str) -> Iterator[list[str]]:
    """Of each place of a number the words behind it, at most three, up to one that only joins."""
    for match in re.finditer(rf"(?<![\w.,]){re.escape(number)}(?![\w]|[.,]\d)", text, re.IGNORECASE):
        words, at = [], match.end()
        while len(words) < _AHEAD and (next_one := _BEHIND.match(text, at)) and terms(next_one.group()):
            words.append(next_one.group().strip(" \n\t-"))
            at = next_one.end()
        yield words
