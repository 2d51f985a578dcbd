"""Which sentence of a stretch of a book says what was told of it, in nearly its words. No model here.

A sentence is near when one sentence of the book holds so much of its content words in the same order: ROUGE-L
precision, the longest common subsequence over the length of what was told (Lin 2004,
https://aclanthology.org/W04-1013). A bag of words says as much of "he used no Heat-Ray to destroy them" as of
"the Heat-Ray is used to destroy them". Of 87 sentences that a small model told of two novels, the 6 with .8
and more were true, and 17 of the other 81 (docs/decisions/0068-told-in-nearly-its-words.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from core.evidence.clauses import (
    is_sentence,
    same_clauses,
    same_number,
    same_ones,
    same_owners,
    same_years,
    shared_part,
)
from core.evidence.denial import DENIES, denied
from core.evidence.naming import TITLES, points_back, subject_name, unquoted
from core.evidence.passages import sentence_spans, unlabelled
from core.evidence.quotations import is_quotation
from core.evidence.support import Evidence
from core.text.ranking import NAME, terms

_FEW_WORDS = 3  # content words: fewer agree with anything
_DIGITS = re.compile(r"\d")  # a number of one digit is no word
# what makes of something that happened what somebody says, what may be or what a book says; "that" with what
# somebody says behind it
_SUBJECT = r"(?:an?|the|he|she|it|they|there|his|her|their|my|our|I|we)\b|(?-i:[A-Z])"
_SAID = (
    r"(?:says?|said|saying|tells?|told|wr[io]te|written|asks?|asked|thinks?|thought|believes?|believed"
    r"|supposes?|supposed|hopes?|hoped|fears?|feared|dream(?:s|ed|t)?|imagined?|fancied|swore|sworn"
    r"|pretend(?:s|ed)?|seems?|seemed|appears?\sto|appeared\sto|claim(?:s|ed)?|declared?|assert(?:s|ed)?"
    r"|maintain(?:s|ed)?|suspect(?:s|ed)?|guess(?:ed)?|reported(?:ly)?|rumou?r(?:s|ed)?|legend|alleged(?:ly)?"
    r"|considered|deemed|reputed|expect(?:s|ed)?|wish(?:es|ed)?|supposedly|apparently|according\sto"
    r"|by\s(?:some|many|most|others|several)\b(?!\s\w)|in\s\w+\s(?:opinion|eyes|view|fancy))"
)
_TURNS = re.compile(
    rf"\b(?:(?P<said>{_SAID})|(?P<that>(?<!so )that\s(?={_SUBJECT}))"
    r"|(?P<maybe>if|unless|whether|lest|perhaps|maybe|possibly|probably|likely|almost|nearly|hardly|scarcely"
    r"|barely|as\sthough|would|should|could|might|must|shall|tried|tries|(?-i:may))"
    r"|(?P<book>story|book|chapter|passage|text|author|narrator))\b",
    re.IGNORECASE,
)


class NearSentences:
    """The sentences of `text[start:end]`, for one question: which of them says this?"""

    def __init__(self, text: str, within: tuple[int, int], evidence: Evidence) -> None:
        self._text, self._within, self._evidence = text, within, evidence

    @cached_property
    def _sentences(self) -> list[tuple[int, int]]:
        found = sentence_spans(self._text, *self._within)
        return [unlabelled(self._text, one) for one in found if not is_quotation(self._text, one[0])]

    @cached_property
    def _terms(self) -> list[list[str]]:
        return [terms(self._text[start:end]) for start, end in self._sentences]

    def place(self, said: str, least: float) -> tuple[int, int] | None:
        """Where the sentence of the stretch stands that says `said`: the one that holds most of its content
        words in their order, at least the share `least`, of the same one, with its names and numbers, and
        denies none of it. None where none does, or where it has a word more than the book.
        """
        words = terms(said)
        if len(set(words)) < _FEW_WORDS or not is_sentence(said):
            return None
        held = [_in_order(words, there) / len(words) for there in self._terms]
        for number in sorted(range(len(held)), key=lambda at: (-held[at], at)):
            if held[number] < least:
                return None
            if not self._consistent(said, words, number) or self._adds(said, words, number):
                continue
            if self._of_the_same(said, words, number, least) and self._in_its_clauses(said, number):
                return self._sentences[number]
        return None

    def named_before(self, place: tuple[int, int]) -> str | None:
        """The sentence before one of the stretch that begins with a pronoun; None before any other."""
        number = self._sentences.index(place)
        return self._before(number) if points_back(self._said(number)) else None

    def _adds(self, said: str, words: Sequence[str], number: int) -> bool:
        """Whether a word of it stands neither in that sentence nor, as whom its pronoun means, in the one
        before: one word in ten turns "the death of his wife" into that of her husband.
        """
        names = " ".join(self._evidence.names_in(said))
        known = {*self._terms[number], *terms(names)}
        if points_back(self._said(number)):
            known |= {words[0]} & set(terms(self._before(number)))
        return not set(words) <= known

    def _of_the_same(self, said: str, words: Sequence[str], number: int, least: float) -> bool:
        """Whether the book says it of the same person or thing. What `said` begins with stands before the
        rest of it, a name outside of speech; of a sentence that begins with a pronoun in the one before,
        where a name is the only one and its subject.
        """
        at = next((at for at, word in enumerate(words) if word not in TITLES), 0)
        subject = next((name for name in self._evidence.names_in(said) if terms(name) == [words[at]]), None)
        there = self._terms[number]
        if words[at] in (terms(unquoted(self._said(number))) if subject else there):
            behind = there[there.index(words[at]) :]
            if _in_order(words[at:], behind) >= least * len(words[at:]):
                return True
        before = self._before(number)
        if subject:
            return words[at] in terms(subject_name(before, self._evidence.is_name) or "")
        return words[at] in terms(before)[:1]

    def _in_its_clauses(self, said: str, number: int) -> bool:
        """Whether nothing that was left off makes something else of it."""
        there = self._said(number)
        if not same_number(said, there) or _denials(said) != _denials(shared_part(said, there)):
            return False
        if not same_ones(said, there) or not same_owners(said, there):
            return False
        return same_years(said, there) and same_clauses(said, there, subject_before=points_back(there))

    def _said(self, number: int) -> str:
        return " ".join(self._text[slice(*self._sentences[number])].split())

    def _before(self, number: int) -> str:
        return self._said(number - 1) if number else ""

    def _consistent(self, said: str, words: Sequence[str], number: int) -> bool:
        there = self._text[slice(*self._sentences[number])]
        if not set(_DIGITS.findall(said)) <= set(_DIGITS.findall(there)):
            return False
        if not set(self._evidence.names_in(said)) <= self._names_at(number):
            return False
        if _turned(said) != _turned(there):
            return False
        return not set(words) & set(self._terms[number]) & (denied(said) ^ denied(there))

    def _names_at(self, number: int) -> set[str]:
        """The names that the sentence has; of one without any those of the sentence before it, whom its
        pronouns mean.
        """
        there = self._text[slice(*self._sentences[number])]
        if number == 0 or any(self._evidence.is_name(name) for name in NAME.findall(there)):
            return set(NAME.findall(there))
        return set(NAME.findall(self._text[slice(*self._sentences[number - 1])]))


def _turned(sentence: str) -> Counter[str | None]:
    """What a sentence is beside a plain statement, and how often: something said, something that may be,
    about a book.
    """
    found = Counter(match.lastgroup for match in _TURNS.finditer(sentence))
    found["said"] = max(found["said"], min(1, found.pop("that", 0)))
    return found


def _denials(sentence: str) -> int:
    return len(DENIES.findall(sentence))


def _in_order(said: Sequence[str], there: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    if not set(said) & set(there):
        return 0
    lengths = [0] * (len(there) + 1)
    for word in said:
        corner = 0
        for at, other in enumerate(there, 1):
            above = lengths[at]
            lengths[at] = corner + 1 if word == other else max(above, lengths[at - 1])
            corner = above
    return lengths[-1]
