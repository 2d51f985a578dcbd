"""Which sentences of an answer a text bears out: a model knows a famous book from elsewhere, too.

A sentence may be said where it has a mark (core.evidence.support), knows no name or number that the allowed
text has not, and does not call somebody somebody else whom that text never calls so. One in another language
than the text's has no marks: it is held by its names and numbers alone.
"""

from __future__ import annotations

import re

from core.documents.document import Document
from core.documents.word_count import count_words
from core.evidence.support import Evidence
from core.text.language_detection import foreign, script
from core.text.ranking import NAME, terms

_FEW_WORDS = 3  # content words: with fewer, "Yes." or "It is so.", a sentence of several says nothing to hold
_FRAGMENT_WORDS = 4  # of an answer that is no sentence of its own
_SHORT_WORDS = 8
_WHO_IS = re.compile(r"\bwho(?:['’]s| (?:is|was|are|were))\b", re.IGNORECASE)
# what stands between two names of one person: "Hyde is really Dr. Jekyll", "Hyde, alias Jekyll"
_BETWEEN = (
    r"(?:\W+(?:really|actually|truly|secretly|also|in|truth|fact|reality|the|same|man|woman|person|none|no"
    r"|other|than|himself|herself|mr|mrs|miss|dr|doctor|sir|lady|lord))*"
)
_IS = rf"(?:['’]s|\W+(?:is|was|are|were|am|be|being|alias|called|named|as|or)){_BETWEEN}\W+"


class SpoilerGuard:
    """Judges the sentences of an answer to `question` by the text that may be read for it. `by_words`: they
    need a mark; else their names and numbers count alone.
    """

    def __init__(
        self, allowed: Document, question: str, evidence: Evidence, *, by_words: bool = True
    ) -> None:
        self._allowed, self._question, self._evidence = allowed.text, question, evidence
        self._by_words = by_words
        self._names, self._numbers = set(NAME.findall(allowed.text)), set(re.findall(r"\d+", allowed.text))

    def allows(self, sentence: str, *, alone: bool) -> bool:
        """Whether it may be said. `alone`: it is the whole answer."""
        if not self._knows(sentence) or self._reveals(sentence):
            return False
        if not self._by_words or self._is_translated(sentence):
            return True
        if not alone and len(set(terms(sentence))) < _FEW_WORDS:
            return True
        short = alone and count_words(sentence) <= _FRAGMENT_WORDS  # one with its question
        marks = self._evidence.marks(sentence, self._question if short else "")
        return all(mark.place is not None for mark in marks)

    def _is_translated(self, sentence: str) -> bool:
        """Whether it is in another language than the text; of a few words that cannot be told."""
        if script(sentence) != script(self._allowed):
            return True
        return count_words(sentence) > _SHORT_WORDS and foreign(sentence) != foreign(self._allowed)

    def _knows(self, sentence: str) -> bool:
        """Whether the text has the names and numbers of the sentence. A word that it writes small is none."""
        for match in NAME.finditer(sentence):
            word = match.group()
            if word not in self._names and not self._is_common(word):
                return False
        return set(re.findall(r"\d+", sentence)) <= self._numbers

    def _is_common(self, word: str) -> bool:
        return not self._evidence.is_name(word) and word.lower() in self._allowed.lower()

    def _reveals(self, sentence: str) -> bool:
        """Whether it says of two names that they are one person's, and the text never does."""
        said = self._persons(sentence)
        groups = [
            [
                (one, other)
                for other in said - {one}
                if re.search(rf"\b{one}{_IS}{other}\b", sentence, re.IGNORECASE)
            ]
            for one in said
        ]
        others = set(terms(sentence)).difference(*(terms(name) for name in said))
        if _WHO_IS.search(self._question) and len(others) <= 1:  # hardly more than a name
            asked = self._persons(self._question)
            groups.append([(one, other) for one in asked for other in said - asked])
        # of "Henry Jekyll" one name is enough
        return any(pairs and not any(self._are_one(*pair) for pair in pairs) for pairs in groups)

    def _persons(self, words: str) -> set[str]:
        return {word for word in NAME.findall(words) if self._evidence.is_name(word)}

    def _are_one(self, one: str, other: str) -> bool:
        """Whether both stand in one name ("Edward Hyde"), or the text says that one is the other."""
        beside = rf"\b(?:{one}\W+{other}|{other}\W+{one})\b"
        said = rf"\b(?:{one}{_IS}{other}|{other}{_IS}{one})\b"
        return bool(re.search(beside, self._allowed) or re.search(said, self._allowed, re.IGNORECASE))
