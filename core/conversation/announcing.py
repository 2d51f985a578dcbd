"""A sentence that announces its story ("The story begins with Ann, who ...") belongs at the beginning alone.
A small model begins every part with one: elsewhere what it announces is said plainly. No model here.
"""

from __future__ import annotations

import re

_STORY = r"The (?:story|book|chapter|passage|narrative|tale|scene)"
_BEGINS = re.compile(rf"{_STORY} (?:begins|starts|opens)(?: off)?\s+(?:(with)|when|as|by saying that)\s+")
_WHO = re.compile(
    r"(?P<who>(?:an? (?:\w+ ){1,3}(?:named|called) )?"  # a man named Harold Tate
    r"(?:[A-Z][\w.’'-]*\.? ?)+(?:and (?:[A-Z][\w.’'-]*\.? ?)+)?)"
)
_CLAUSE = re.compile(r"\s*,\s*who\s+")
_APPOSITION = re.compile(r"\s*,?\s*(?=(?:an?|the) )")
_STATE = re.compile(r"\s*,?\s*(?=(?:\w+ing|in|at|on|inside|outside|aboard)\b)")


def announces(sentence: str) -> bool:
    """Whether it says that a story begins."""
    return _BEGINS.match(sentence) is not None


def plainly(sentence: str) -> str | None:
    """What such a sentence announces, as a sentence of its own: "Ann is standing at a window." None where
    that cannot be made of it; any other sentence as it is.
    """
    begins = _BEGINS.match(sentence)
    if begins is None:
        return sentence
    rest = sentence[begins.end() :]
    if begins[1] is None:  # "when Ann comes home"
        return _capital(rest)
    who = _WHO.match(rest)
    if who is None:
        return None
    name, rest = who["who"].strip(), rest[who.end("who") :]
    if clause := _CLAUSE.match(rest):
        return _capital(f"{name} {rest[clause.end() :]}")
    state = _APPOSITION.match(rest) or _STATE.match(rest)
    verb = "are" if " and " in name else "is"
    return _capital(f"{name} {verb} {rest[state.end() :]}") if state else None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
