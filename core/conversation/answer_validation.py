"""Whether what a model said to a question is an answer to it: no refusal, no echo, and of the kind that was
asked for. Whether its passage bears it out is the matter of core.evidence. No model here.
"""

from __future__ import annotations

import re

from core.evidence.answer_kinds import fits_kind, repeats_question
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
# that ask for a name
_NAMED = re.compile(
    r"\b(?:what (?:is|was|are|were) (?:[\w'’-]+ ){1,4}?names?|what (?:\w+ )?name|whose name"
    r"|first name|surname"
    r"|what (?:(?:is|was|are|were) [^?]*\b(?:called|named)|(?:do|does|did) [^?]*\b(?:call|name)))\b"
    r"(?! (?:after|back|for|in|on|out|to|up|upon)\b)",
    re.IGNORECASE,
)


def is_refusal(said: str) -> bool:
    """Whether it begins by saying that the text does not say."""
    return bool(_REFUSES.search(said.strip().split("\n")[0]))


def is_answer(said: str, question: str, passage: str) -> bool:
    """Whether `said` is an answer to `question`, given from this text."""
    said = said.strip()
    if not said or is_refusal(said) or repeats_question(said, question):
        return False
    if _NAMED.search(question) and not _has_name(said, passage):
        return False
    # who is somebody a passage alone does not tell: for "who" any word may be
    return fits_kind(said, question, frozenset(), lambda word: True)


def _has_name(said: str, passage: str) -> bool:
    """Whether a word of content with a capital stands in it that has one in the passage, too; the first word
    only where the passage never writes it without.
    """
    known = set(_WORD.findall(passage))
    return any(
        word[0].isupper() and word in known and terms(word) and (at > 0 or word.lower() not in known)
        for at, word in enumerate(_WORD.findall(said))
    )
