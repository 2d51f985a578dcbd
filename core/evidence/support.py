"""Where in the book a sentence of an answer comes from, as far as its words tell, and where the model looked
while it wrote it. No model.

A mark shows where to look, not that the sentence is true. A sentence is held against the passages nearest to
it. Of its content words, weighted by how rare they are in the book, `score` is the mean of the share that
stands in the passage and the share that stands within three sentences of it: words that agree by chance lie
apart. The passage that the model looked at most is held against the sentence as well, and is taken before one
that holds about as much. The sentence agrees when the score reaches `AGREES`, the passage knows every name
and number in it, and no word that both share is denied by one of them alone. `AGREES` was set on answers of
FairytaleQA and on people's summaries in SQuALITY; benchmarks/quality/evidence.py measures what it lets
through.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from weakref import WeakMethod

from core.documents.document import Document
from core.documents.quotes import QuoteIndex
from core.documents.word_count import count_words
from core.events import AttentionEvidence
from core.evidence.answer_kinds import fits_kind, in_part, own_words, repeats_question, somebodies
from core.evidence.attention_evidence import LOOKED, Places, combined_scores
from core.evidence.denial import DENIES, denied
from core.evidence.names import names_and_others
from core.evidence.passages import Passage, book_passages, sentence_spans
from core.evidence.places import places, stayed_in
from core.evidence.spelling import written_like
from core.evidence.stated import counts_other
from core.text.questions import german_nouns
from core.text.ranking import NAME, Ranking, terms
from core.text.words import marked as N_

AGREES = 0.5
BESIDE = 0.1
_CANDIDATES = 5
_JUDGED = 1024  # sentences whose marks are kept
_WINDOW = 3  # sentences
_QUOTED_WORDS = 5  # fewer stand in a book by chance
_FEW_WORDS = 3  # content words: fewer agree with anything
FRAGMENT_WORDS = 8  # of an answer that may be no sentence: it is one with its question
_ASKED_NEAR = 0.2  # of the question's words, by weight, near a quotation that answers it
_LEAST_OWN = 0.1
_LETTER = re.compile(r"[^\W\d_]")
# the first word of each sentence; "Mr." does not end one
_BEGINS = re.compile(r"(?:^|(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)[.!?\u2026\n])[\W\d_]*([^\W\d_]+)")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_ITEM = re.compile(r"^\d{1,3}[.)]\s")
# a line set apart as a quotation, one that ends in a colon before it, and a heading
_APART = re.compile(
    r"^[ \t]*>[^\n]*$|^[^\n]*:[ \t]*$(?=\n\s*(?:[^\n]*:[ \t]*\n)?[ \t]*>)"
    r"|^#{1,6} [^\n]*$(?=\n[ \t]*\n|\s*\Z)",
    re.M,
)


# said where the book, or what may be read of it, bears no answer out; kept in English, as an answer is
UNSAID = N_("The book does not seem to say.")
UNSAID_SO_FAR = N_("What may be read of the book does not seem to say.")
UNSAID_HERE = N_("What was read for this does not seem to say.")
UNFOUND = N_("No answer was found.")  # in passages, whatever stands in them or elsewhere
HEDGE = N_("Perhaps:")  # above few words that nothing bears out
REFUSALS = (UNSAID, UNSAID_SO_FAR, UNSAID_HERE, UNFOUND)
# that line; a model that was taught to read says it of its passage
_REFUSAL = re.compile(rf"\s*(?:(?:{'|'.join(map(re.escape, REFUSALS))})[^\n]*|The passage does not say\.)")


@dataclass(frozen=True, slots=True)
class SentenceMark:
    """What was found for `answer[start:end]`, one sentence.

    `state`: "quoted" (the book has it word for word), "agrees" (the nearest passage has its names and words)
    or "nothing". `place`: (start, end) of it in the book's text, None for "nothing"; `nearest` is then still
    the passage that comes closest, where one shares a word with it. `reasons` for this passage: "words" where
    its words alone would have chosen it, "looked" where the model looked at it most.
    """

    start: int
    end: int
    state: str = "nothing"
    place: tuple[int, int] | None = None
    score: float = 0.0
    nearest: Passage | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Support:
    """What one passage holds of an answer. `own`: the share of the answer's content words, weighted by how
    rare they are; `score`: of question and answer together, as in a mark; `place`: the sentences that hold
    the most, (start, end) in the book's text; `shown`: all words that the answer adds to the question are
    among those; `near`: the share of both that stands there.

    `bears_out`: the passage knows every name and number of the answer, denies nothing of it (unless the
    question denies, too), and holds a tenth of its words; of one or two words ("sad", "the Eloi") the last is
    not asked. It does so for .87 of the 2,625 answers that people wrote to FairytaleQA's validation questions
    (.90 where the question denies), and for .36 of answers to questions about other stories.
    """

    passage: Passage
    place: tuple[int, int]
    score: float
    own: float
    bears_out: bool
    shown: bool
    near: float


@dataclass(frozen=True, slots=True)
class _Held:
    """What one passage holds of a sentence. `closest`: the sentence of it that holds the most; `near`: the
    words that the three sentences hold, and `near_score` their share. `looked`: the passage's share of what
    was looked at.
    """

    score: float
    looked: float
    passage: Passage
    place: tuple[int, int]
    closest: str
    near: frozenset[str]
    near_score: float


class Evidence:
    """The passages of one book, ranked for questions and held against sentences. Built once per book."""

    def __init__(self, document: Document) -> None:
        self.passages = book_passages(document)
        self._text = document.text
        self._ranking = Ranking([terms(self._text[one.start : one.end]) for one in self.passages])
        self._document = document
        self._starts = [one.start for one in self.passages]
        # stems of what is written small: "Served" begins an answer where the book has "serve"
        words = set(re.findall(r"\b[^\W\d_]{2,}\b", self._text))
        small = {word for word in words if not word[0].isupper()}
        self._common = frozenset(terms(" ".join(small)))
        self._known_names = frozenset(NAME.findall(self._text))
        # a page asks again for every sentence of an answer that grows. Weak: a cache that held its owner
        # would keep book and passages in memory when another book is opened, until cycles are looked for
        judge = WeakMethod(self._judge)
        self._judged = lru_cache(maxsize=_JUDGED)(lambda *asked: judge()(*asked))

    @cached_property
    def _somebodies(self) -> frozenset[str]:
        return somebodies(self._text)

    @cached_property
    def _placed(self) -> frozenset[str]:
        """The words of the names of places where somebody is that are in nobody's name."""
        persons, others = names_and_others(self._text)
        named = {word for one in persons for word in one.words}
        found = (one.name for one in places(self._text, others) if stayed_in(self._text, one))
        return frozenset(word for name in found for word in name.split()) - named

    @cached_property
    def quotes(self) -> QuoteIndex:
        """Finds what an answer has word for word."""
        return QuoteIndex(self._document)

    def nearest(
        self, question: str, most: int = 3, *, looked: AttentionEvidence | None = None
    ) -> list[Passage]:
        """The passages that a question points at, best first: by its words, and where the model looked when
        it was asked. None where neither says anything.
        """
        scores = combined_scores(
            self._ranking.scores(question), self._shares(looked.places if looked else ())
        )
        return [passage for passage, _score in self._best(scores)[:most]]

    def pointed_at(self, question: str) -> list[tuple[Passage, float]]:
        """All passages that the words of a question point at, best first, each with its score by BM25 and
        `BESIDE` times its neighbours': what is told of stands near what it is asked with.
        """
        own = [0.0, *self._ranking.scores(question), 0.0]
        return self._best([own[at] + BESIDE * (own[at - 1] + own[at + 1]) for at in range(1, len(own) - 1)])

    def _best(self, scores: Sequence[float]) -> list[tuple[Passage, float]]:
        ranked = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
        return [(self.passages[number], scores[number]) for number in ranked if scores[number] > 0]

    def is_name(self, word: str) -> bool:
        """Whether the book writes `word` with a capital, and never it, or a form of it, without."""
        return word in self._known_names and not self._common.issuperset(terms(word))

    def _is_somebodys(self, word: str) -> bool:
        """Whether it may be somebody's name: a place's is none."""
        return self.is_name(word) and word not in self._placed

    def unknown_names(self, question: str) -> list[str]:
        """The names of a question that neither the book nor its title page has, in order. The first word of
        a sentence is written large in any language: "Qui" is no name; nor is "Who", wherever it stands, nor a
        noun of a question in German.
        """
        page = NAME.findall(f"{self._document.title} {self._document.author}")
        no_names = (*_BEGINS.findall(question), *german_nouns(question))
        known = {name.lower() for name in (*self._known_names, *page, *no_names)}
        names = dict.fromkeys(self.names_in(question))
        return [name for name in names if name.lower() not in known and terms(name)]

    def names_meant(self, question: str) -> list[str]:
        """The names of the book that are written much like those of a question which it has not."""
        return written_like(self.unknown_names(question), question, filter(self.is_name, self._known_names))

    def text_of(self, passage: Passage) -> str:
        """The words of a passage."""
        return self._text[passage.start : passage.end]

    def weight_at(self, place: tuple[int, int], question: str) -> float:
        """The words of a question that stand at a place, weighted by how rare they are."""
        there = set(terms(question)) & set(terms(self._text[slice(*place)]))
        return math.fsum(map(self._ranking.weight, there))

    def commonness(self, answer: str, question: str) -> float:
        """In how many passages the words stand that an answer adds to its question: the mean of
        log(1 + passages) over them, in nats; 0 without any.
        """
        own = own_words(answer, question)
        return math.fsum(math.log1p(self._ranking.holding(word)) for word in own) / max(1, len(own))

    def support(self, answer: str, passage: Passage, question: str = "") -> Support:
        """How far `passage` bears out an answer to `question`; of an empty answer, where it is about it."""
        words, known = terms(answer), set(terms(self._text[passage.start : passage.end]))
        weights = {word: self._ranking.weight(word) for word in terms(f"{question} {answer}")}
        held = self._held(passage, weights, own=own_words(answer, question))
        weight = sum(weights[word] for word in set(words))
        own = sum(weights[word] for word in known.intersection(words)) / weight if words else 0.0
        enough = own >= _LEAST_OWN or len(set(words)) < _FEW_WORDS
        # "What did he vow not to do?" "Cut his hair.": the denial stands in the question
        keeps = self._knows if DENIES.search(question) else self._consistent
        shown = held.near.issuperset(own_words(answer, question))
        borne_out = enough and keeps(answer, held)
        return Support(passage, held.place, held.score, own, borne_out, shown, held.near_score)

    def marks(
        self, answer: str, question: str = "", looked: Sequence[AttentionEvidence] = ()
    ) -> tuple[SentenceMark, ...]:
        """One mark for each sentence of an answer, in order; none for lines that quote the book or lead to a
        quotation, for headings, nor for saying that the book does not say.

        An answer of one sentence must be one to `question`: with words of its own, and of the kind that is
        asked for. A short one, "The Eloi.", is held against the book together with it.
        """
        apart = [match.span() for match in _APART.finditer(answer)]
        if refusal := _REFUSAL.match(answer):
            apart.append(refusal.span())
        places = {one.sentence: one.places for one in looked}
        spans = [
            (at, start, end)
            for at, (start, end) in enumerate(sentence_spans(answer, 0, len(answer)))
            if not any(left <= start < right for left, right in apart)
        ]
        asked = question if len(spans) == 1 else ""  # of several sentences none alone is the answer
        return tuple(
            replace(self._judged(answer[start:end], asked, places.get(at, ())), start=start, end=end)
            for at, start, end in spans
        )

    def marks_within(
        self, told: str, within: tuple[int, int], *, agrees: float = AGREES
    ) -> tuple[SentenceMark, ...]:
        """One mark for each sentence of what was told of a stretch of the text, held against its passages;
        `agrees` is the score that is enough.
        """
        low, high = within
        inside = {number for number, one in enumerate(self.passages) if one.start < high and one.end > low}
        return tuple(
            replace(self._judge_within(told[start:end], within, inside, agrees), start=start, end=end)
            for start, end in sentence_spans(told, 0, len(told))
        )

    def _judge_within(
        self, sentence: str, within: tuple[int, int], inside: Collection[int], agrees: float
    ) -> SentenceMark:
        place = self.quotes.find(sentence) if count_words(sentence) >= _QUOTED_WORDS else None
        if place is not None and within[0] <= place[0] < within[1]:
            return SentenceMark(0, 0, "quoted", place, 1.0, reasons=("words",))
        weights = {word: self._ranking.weight(word) for word in terms(sentence)}
        near = [number for number in self._ranking.nearest(sentence, len(self.passages)) if number in inside]
        if len(weights) < _FEW_WORDS or not near:
            return SentenceMark(0, 0)
        held = [self._held(self.passages[number], weights) for number in near[:_CANDIDATES]]
        agreeing = [one for one in held if one.score >= agrees and self._consistent(sentence, one)]
        best = max(agreeing or held, key=lambda one: one.score)
        if not agreeing:
            return SentenceMark(0, 0, score=best.score, nearest=best.passage)
        return SentenceMark(0, 0, "agrees", best.place, best.score, best.passage, ("words",))

    def _shares(self, places: Places) -> dict[int, float]:
        """What was looked at by number of passage."""
        return {bisect_right(self._starts, start) - 1: share for start, share in places}

    def _judge(self, sentence: str, question: str, places: Places) -> SentenceMark:
        place = self.quotes.find(sentence) if count_words(sentence) >= _QUOTED_WORDS else None
        if place is not None and (not question or self._about(question, place)):
            mark = SentenceMark(0, 0, "quoted", place, 1.0, reasons=("words",))
        else:
            mark = self._held_against_nearest(sentence, question, places)
        if mark.place is not None and question and not self._answered_at(mark.place, sentence, question):
            return replace(mark, state="nothing", place=None, nearest=self._around(mark.place))
        return mark

    def _answered_at(self, place: tuple[int, int], said: str, question: str) -> bool:
        """Whether this may be an answer, and its number counts there what is asked about."""
        around = self.text_of(self._around(place))
        return self.answers(said, question) and not counts_other(said, question, around)

    def answers(self, said: str, question: str) -> bool:
        """Whether this may be an answer: it has words of its own, and is of the kind that was asked for."""
        return not repeats_question(said, question) and fits_kind(
            said, question, self._somebodies, self._is_somebodys
        )

    def _around(self, place: tuple[int, int]) -> Passage:
        return self.passages[bisect_right(self._starts, place[0]) - 1]

    def _about(self, question: str, place: tuple[int, int]) -> bool:
        """Whether what the question asks about stands near a quotation."""
        held = self._held(self._around(place), self._weights("", question))
        return held.score >= _ASKED_NEAR

    def _weights(self, said: str, question: str = "") -> dict[str, float]:
        """Of the content words of both. A word of the question alone that the book has not weighs no more
        than those that it has: a question may use its own.
        """
        weights = {word: self._ranking.weight(word) for word in terms(f"{question} {said}")}
        most = max((weights[word] for word in weights if self._ranking.holding(word)), default=0.0)
        own = set(terms(said))
        return {word: weight if word in own else min(weight, most) for word, weight in weights.items()}

    def _held_against_nearest(self, sentence: str, question: str, places: Places) -> SentenceMark:
        words = terms(sentence)
        fragment = bool(question) and count_words(sentence) <= FRAGMENT_WORDS
        said = f"{question} {sentence}" if fragment else sentence
        weights = self._weights(sentence, question if fragment else "")
        if not words or len(weights) < _FEW_WORDS:
            return self._nearest(sentence, {}, (), places)
        own = own_words(sentence, question) if fragment else frozenset()
        return self._nearest(sentence, weights, self._ranking.nearest(said, _CANDIDATES), places, own)

    def _nearest(
        self,
        sentence: str,
        weights: Mapping[str, float],
        by_words: Sequence[int],
        places: Places,
        own: Collection[str] = (),
    ) -> SentenceMark:
        """The mark by the passages nearest by words, and the one that was looked at most; where `own` words
        are given, all of them and half of the rest must stand within three sentences of one.
        """
        shares = self._shares(places)
        most = max(shares, key=shares.__getitem__, default=None)
        numbers = dict.fromkeys([*by_words, *([] if most is None else [most])])
        held = [self._held(self.passages[one], weights, shares.get(one, 0.0), own) for one in numbers]
        if not held:
            return SentenceMark(0, 0)
        first = max(held, key=lambda one: one.score)
        nearest = max(held, key=lambda one: one.score + LOOKED * one.looked)
        agreeing = [one for one in (nearest, first) if self._agrees(sentence, one, own)]
        best = agreeing[0] if agreeing else nearest
        reasons = {
            "words": best is first and best.score > 0,
            "looked": best.passage is self.passages[most or 0] and bool(shares),
        }
        return SentenceMark(
            0,
            0,
            "agrees" if agreeing else "nothing",
            best.place if agreeing else None,
            best.score,
            best.passage,
            tuple(name for name, holds in reasons.items() if holds),
        )

    def _agrees(self, sentence: str, held: _Held, own: Collection[str]) -> bool:
        score = held.near_score if own else held.score
        return score >= AGREES and held.near.issuperset(own) and self._consistent(sentence, held)

    def _held(
        self, passage: Passage, weights: Mapping[str, float], looked: float = 0.0, own: Collection[str] = ()
    ) -> _Held:
        """How much of a sentence's words the passage holds, and where: where all of its `own` ones stand, if
        there is such a place.
        """
        total = sum(weights.values()) or 1.0
        spans = sentence_spans(self._text, passage.start, passage.end)
        found = [weights.keys() & set(terms(self._text[start:end])) for start, end in spans]

        def share(first: int, last: int) -> float:
            return sum(weights[word] for word in set().union(*found[first:last])) / total

        windows = [
            (
                set().union(*found[first : first + _WINDOW]).issuperset(own),
                share(first, first + _WINDOW),
                -first,
            )
            for first in range(len(spans))
        ]
        _all, near, first = max(windows)
        inside = [at for at in range(-first, min(_WINDOW - first, len(spans))) if found[at]] or [-first]
        closest = max(inside, key=lambda at: share(at, at + 1))
        shown = [at for at in inside if not self._is_heading(*spans[at])] or inside
        return _Held(
            score=(near + share(0, len(spans))) / 2,
            looked=looked,
            passage=passage,
            place=(spans[shown[0]][0], spans[shown[-1]][1]),
            closest=self._text[slice(*spans[closest])],
            near=frozenset().union(*found[-first : _WINDOW - first]),
            near_score=near,
        )

    def _is_heading(self, start: int, end: int) -> bool:
        """Whether this is of its chapter's heading: nothing that is quoted as what the book says."""
        return end <= self._document.heading_end(self._document.section_at(start))

    def _consistent(self, sentence: str, held: _Held) -> bool:
        """Whether the passage knows the sentence's names and numbers, and does not deny what it says."""
        shared = set(terms(sentence)) & set(terms(held.closest))
        return self._knows(sentence, held) and not shared & (denied(sentence) ^ denied(held.closest))

    def _knows(self, sentence: str, held: _Held) -> bool:
        known = self._text[held.passage.start : held.passage.end]
        if not set(self.names_in(sentence)) <= set(NAME.findall(known)):
            return False
        if in_part(sentence, known):
            return False
        return set(_NUMBER.findall(_ITEM.sub("", sentence))) <= set(_NUMBER.findall(known))

    def names_in(self, sentence: str) -> Iterator[str]:
        """The names of a sentence: words written with a capital, the first one only where the book never
        writes it, or a form of it, without.
        """
        for match in NAME.finditer(sentence):
            word = match.group()
            begins = not _LETTER.search(sentence, 0, match.start())
            if not begins or not self._common.issuperset(terms(word)):
                yield word
