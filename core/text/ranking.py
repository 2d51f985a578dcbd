"""Finds the stretch of a book that a question is about, by its words. No model, no index on disk."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise

# scripts without spaces between words: kana, ideographs
_UNSPACED = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# a word of three letters and more that begins with a capital of a Latin, Greek, Cyrillic or Armenian alphabet
_CAPITALS = "".join(filter(str.isupper, map(chr, range(0x41, 0x590))))
NAME = re.compile(rf"(?<!\w)[{_CAPITALS}][^\W\d_]{{2,}}(?!\w)")
_RUN = re.compile(rf"[{_UNSPACED}]")
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_POINTS = dict.fromkeys([*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7])  # of Hebrew
_PASSAGE_WORDS = 120  # a fact stands in a paragraph or two: longer passages drown it
# passages are of nearly equal length; chosen on the training questions of FairytaleQA
_K1, _B = 0.9, 0.4
_PAIR = 0.5  # of a pair's weight: both of its words count already
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
    a about after all also an and any are as at be been before but by can could did do does for from had
    has have he her him his how i if in into is it its just me more most my no not of on or our out over
    she should so some than that the their them then there these they this those to too under up us was
    we were what when where which while who whom whose why will with would you your tell explain
    describe say said book story chapter chapters passage text author happen happens happened please
""",
    )
)


# the commonest irregular forms of English, which no ending tells
_IRREGULAR = """
go went gone goes going|come came|see saw seen|take took taken|give gave given|find found|think thought
know knew known|get got gotten|make made|keep kept|leave left|bring brought|buy bought|catch caught
teach taught|fight fought|seek sought|feel felt|sit sat|stand stood|run ran|begin began begun
sing sang sung|drink drank drunk|swim swam swum|speak spoke spoken|break broke broken|steal stole stolen
wear wore worn|choose chose chosen|write wrote written|ride rode ridden|drive drove driven|rise rose risen
eat ate eaten|fall fell fallen|grow grew grown|throw threw thrown|fly flew flown|draw drew drawn
blow blew blown|sleep slept|weep wept|sweep swept|lose lost|send sent|spend spent|build built|lend lent
meet met|lead led|feed fed|bleed bled|hold held|hear heard|sell sold|pay paid|lay laid|lie lain lied lying
win won|shoot shot|hide hid hidden|die died dying|tie tied tying|use used using|age aged|owe owed
add added adding|burn burnt|sink sank sunk|bite bit bitten|forget forgot forgotten|dig dug|hang hung
strike struck|stick stuck
shake shook shaken|wake woke woken|swear swore sworn|tear tore torn|bear bore born borne
bind bound|grind ground|child children|man men|woman women|wife wives|foot feet|tooth teeth|goose geese
mouse mice|life lives
"""
_FORMS = {
    form: base
    for base, *forms in (group.split() for group in re.split(r"[|\n]", _IRREGULAR) if group.strip())
    for form in forms
}


_ALIKE = 0.7  # of the content words
_DOUBLED = re.compile(r"([bdgmnprt])\1$")  # before an ending: "stopped", "running"


def terms(text: str) -> list[str]:
    """Lower-case content words, roughly stemmed so that "lever" meets "levers". Where a script has no spaces,
    every two neighbouring characters are a word.
    """
    if text.isascii():
        return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP and len(word) > 1]
    words = _WORD.findall(text.lower().translate(_POINTS))
    return [term for word in words for term in _terms_of(word)]


def is_alike(said: Set[str], other: Set[str]) -> bool:
    """Whether a text with these content words says hardly more than one with the others."""
    return len(said & other) > _ALIKE * len(said)


def _terms_of(word: str) -> Iterator[str]:
    if _RUN.match(word):
        yield from map("".join, pairwise(word)) if len(word) > 1 else word
    elif word not in _STOP and len(word) > 1:
        yield _stem(word)


def _stem(word: str) -> str:
    word = _FORMS.get(word, word)
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return f"{word[:-3]}y"
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word[: -len(ending)]
            return stem if ending[-1] in "se" else _DOUBLED.sub(r"\1", stem)
    return word


class Ranking:
    """Texts ranked for a question by BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance
    Framework") over content words and pairs of neighbours, which tell "the red house" from a red something.
    """

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        """`texts`: the `terms` of each."""
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)  # term -> (text, times in it)
        lengths = []
        for number, words in enumerate(texts):
            counts = Counter(_with_pairs(words))
            lengths.append(counts.total())
            for term, times in counts.items():
                self._postings[term].append((number, times))
        mean = sum(lengths) / len(lengths) if any(lengths) else 1.0
        self._drag = [_K1 * (1 - _B + _B * length / mean) for length in lengths]

    def holding(self, term: str) -> int:
        """How many texts have this term."""
        return len(self._postings.get(term, ()))

    def weight(self, term: str) -> float:
        """How rare a term is among the texts (BM25's idf): above 0, largest for one that no text has."""
        n, holding = len(self._drag), self.holding(term)
        return math.log(1 + (n - holding + 0.5) / (holding + 0.5))

    def scores(self, question: str) -> list[float]:
        """One score per text, 0 or more; 0 where no content word of the question occurs."""
        scores = [0.0] * len(self._drag)
        for term in dict.fromkeys(_with_pairs(terms(question))):
            weight = self.weight(term) * (_PAIR if " " in term else 1.0)
            for number, times in self._postings.get(term, ()):
                scores[number] += weight * times * (_K1 + 1) / (times + self._drag[number])
        return scores

    def nearest(self, question: str, most: int) -> list[int]:
        """The numbers of the texts that share words with the question, best first, `most` at most."""
        scores = self.scores(question)
        ranked = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
        return [number for number in ranked[:most] if scores[number] > 0]


def _with_pairs(words: Sequence[str]) -> Iterator[str]:
    yield from words
    for left, right in pairwise(words):
        yield f"{left} {right}"


class PartIndex:
    """Ranks the parts of one book: a part is as good as its best passage, and a little of its second best."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._owner: list[int] = []
        passages: list[list[str]] = []
        for index, text in enumerate(texts):
            words = terms(text)
            # half overlapping: no fact lies on a border
            for start in range(0, max(1, len(words)), _PASSAGE_WORDS // 2):
                self._owner.append(index)
                passages.append(words[start : start + _PASSAGE_WORDS])
        self._num_parts = len(texts)
        self._ranking = Ranking(passages)

    def scores(self, question: str) -> list[float]:
        """One score per part, 0 or more."""
        best: list[list[float]] = [[0.0] for _ in range(self._num_parts)]
        for owner, score in zip(self._owner, self._ranking.scores(question), strict=True):
            best[owner].append(score)
        return [top[0] + 0.1 * sum(top[1:2]) for top in (sorted(scores, reverse=True) for scores in best)]
