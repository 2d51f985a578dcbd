"""Who a sentence of a summary speaks of: one that begins with a pronoun says it only behind the sentence that
names him. No model here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_LEADS = (
    r"(?:(?:then|later|finally|eventually|however|so|and|but|when|while|as|after|before|once|now)\b,?\s+)?"
)
_POINTS = re.compile(
    rf"{_LEADS}(?:he|she|it|they|him|her|them|his|hers|its|their|this|that|these|those)\b", re.IGNORECASE
)
_OF_A_PERSON = re.compile(r"(?:(he|she)|(his|her))\b\s+(?=\w)", re.IGNORECASE)
_TITLE = r"(?:(?:Mr|Mrs|Ms|Dr|St)\.|Miss|Captain|Sir|Lady|Lord|Aunt|Uncle|Father|Professor)"
_SUBJECT = re.compile(rf"(?:{_TITLE}\s+)?(?:[A-Z][\w’'-]+)(?:\s+[A-Z][\w’'-]+)*")
_FIRST_PERSON = re.compile(r"\b(?:I|me|my|mine|myself|we|us|our|ours)\b")
_QUOTED = re.compile(r"[“\"][^”\"]*[”\"]")


def points_back(sentence: str) -> bool:
    """Whether it begins with a word that stands for somebody, or something, named before."""
    return _POINTS.match(sentence) is not None


def in_first_person(sentence: str) -> bool:
    """Whether it says "I" outside of what it quotes: a telling is told in the third person."""
    return _FIRST_PERSON.search(_QUOTED.sub("", sentence)) is not None


def named(sentence: str, before: Sequence[str], is_name: Callable[[str], bool]) -> str | None:
    """`sentence` with the name that its first word stands for: the subject of the sentence right before it,
    or of the one before that. None where neither begins with a name.
    """
    pronoun = _OF_A_PERSON.match(sentence)
    if pronoun is None:
        return None
    for one in reversed(before[-2:]):
        subject = _SUBJECT.match(one)
        if subject and is_name(subject.group().split()[-1]):
            name = subject.group()
            return f"{name if pronoun[1] else name + '’s'} {sentence[pronoun.end() :]}"
    return None
