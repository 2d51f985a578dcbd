"""Whether what a model said to a question is an answer to it: no refusal, no echo, and of the kind that was
asked for. Whether its passage bears it out is the matter of core.evidence.support. No model here.
"""

from __future__ import annotations

import re

from core.text.ranking import terms

_WORD = re.compile(r"[^\W\d_]+")
# in words of the model's own: "the text does not mention him", "her name is not given"
_REFUSES = re.compile(
    r"\b(?:passage|text|excerpt|information)\b[^.]*?(?:\bnot|n['’]t|\bno|\bnever)\b"
    r"|\b(?:book|story) (?:does not|doesn['’]t|never) (?:\w+ly )?(?:say|tell|mention|specify|explain|state)"
    r"|\b(?:not|never) (?:\w+ly )?(?:specified|mentioned|stated|given|named|said|told|explained|known|clear)"
    r"|\b(?:unclear|unknown|unspecified)\b",
    re.IGNORECASE,
)
# the answer to "A or B?" and to "Did he ...?" stands in the question
_CHOICE = re.compile(
    r"\bor\b|^\W*(?:is|are|was|were|am|do|does|did|has|have|had"
    r"|can|could|will|would|shall|should|may|might|must)\b",
    re.IGNORECASE,
)
# that ask for a name, and for a number
_NAMED = re.compile(
    r"\b(?:what (?:is|was|are|were) (?:[\w'’-]+ ){1,4}?names?|what (?:\w+ )?name|whose name"
    r"|first name|surname"
    r"|what (?:(?:is|was|are|were) [^?]*\b(?:called|named)|(?:do|does|did) [^?]*\b(?:call|name)))\b"
    r"(?! (?:after|back|for|in|on|out|to|up|upon)\b)",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"\bhow (?:many|old)\b", re.IGNORECASE)
_QUANTITY = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty(?:-\w+)?|hundreds?"
    r"|thousands?|millions?|dozens?|half|score|an?|no|none|single|once|twice|several|few|many|all|both|pair"
    r"|couple)\b",
    re.IGNORECASE,
)


def refuses(said: str) -> bool:
    """Whether it begins by saying that the text does not say."""
    return bool(_REFUSES.search(said.strip().split("\n")[0]))


def answers(said: str, question: str, passage: str) -> bool:
    """Whether `said` is an answer to `question`, given from this text."""
    said = said.strip()
    if not said or refuses(said) or _repeats(said, question):
        return False
    if _NAMED.search(question) and not _has_name(said, passage):
        return False
    return not _COUNTED.search(question) or bool(_QUANTITY.search(said))


def _has_name(said: str, passage: str) -> bool:
    """Whether a word of content with a capital stands in it that has one in the passage, too; the first word
    only where the passage never writes it without.
    """
    known = set(_WORD.findall(passage))
    return any(
        word[0].isupper() and word in known and terms(word) and (at > 0 or word.lower() not in known)
        for at, word in enumerate(_WORD.findall(said))
    )


def _repeats(answer: str, question: str) -> bool:
    """Whether an answer has nothing but words of the question: the name of the ship is "The ship". Of 1,025
    answers that people wrote to FairytaleQA's validation questions one has not a word of its own.
    """
    said = set(terms(answer))
    return bool(said) and said <= set(terms(question)) and not _CHOICE.search(question)
