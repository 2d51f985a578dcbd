"""Holds what a model told of a stretch of a book against that stretch. No model here.

A sentence stays where a passage of the stretch has its names, its numbers and enough of its words; where none
has, the stretch's own best sentence says its part. So a summary states nothing that does not stand in the
book, and every sentence of it knows its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.conversation.part_summaries import SummaryLine
from core.documents.document import Document
from core.evidence.choosing import best_sentences, choose_sentences
from core.evidence.naming import is_nameless, named, needs_another
from core.evidence.nearness import NearSentences
from core.evidence.passages import sentence_spans
from core.evidence.support import Evidence
from core.text.levelled import LevelledText
from core.text.ranking import Ranking, is_alike, terms

_INSTEAD_WORDS = 150  # of own sentences, from which those are taken that stand in for others
ENDED = re.compile(r"[.!?…。！？][\"'”’“‘)\]»«」』]*$")


class TellableSpan:
    """A stretch of a book, by character offsets, and what may be told of it. `lines`: its sentences that
    were told before, where it is told from them; without any, the book's own stand in.
    """

    def __init__(
        self, book: Document, evidence: Evidence, within: tuple[int, int], lines: Sequence[SummaryLine] = ()
    ) -> None:
        self._book, self._evidence, self._within = book, evidence, within
        self._lines = tuple(lines)
        self._near = NearSentences(book.text, within, evidence)

    def supported(self, told: LevelledText, least: float) -> tuple[SummaryLine, ...]:
        """The sentences of `told` that the stretch bears out with a score of `least`
        (core.evidence.support), in their order; in place of each other one, a sentence that stands in the
        book, or nothing where none is left. One that speaks of whom the sentence before it named stays only
        where that stays.
        """
        lines: list[SummaryLine] = []
        stays = True
        for mark in self._evidence.marks_within(told.text, self._within, agrees=least):
            sentence = told[mark.start : mark.end].on_one_line()
            borne_out = mark.place is not None and ENDED.search(sentence.text) is not None
            stays = borne_out and (stays or not needs_another(sentence.text))
            if stays:
                line = SummaryLine(sentence.text, *mark.place, pieces=sentence.pieces)
            else:
                line = self._instead(sentence.text, lines)
            if line is not None and not repeats(line, lines):
                lines.append(line)
        return tuple(lines)

    def near(self, said: str, least: float) -> SummaryLine | None:
        """One sentence with its place, where one of the stretch says it in nearly its words
        (core.evidence.nearness), `least` of them; None where none does, and of one that stands in the book
        word for word or is a heading. Who is meant by a pronoun that it begins with, as its place does, is
        named; None where the sentence before its place does not say it for certain.
        """
        place = self._near.place(said, least) if ENDED.search(said) else None
        if place is None or not ENDED.search(self._book.text[slice(*place)]):
            return None
        if self._evidence.quotes.find(said) is not None:
            return None
        if is_nameless(said):
            said = named(said, self._near.named_before(place) or "", self._evidence.is_name) or ""
        return SummaryLine(said, *place) if said else None

    def own(self, words: int) -> tuple[SummaryLine, ...]:
        """The stretch in about so many words of its own."""
        return own_lines(self._book, [self._within], words)

    def _instead(self, sentence: str, before: Sequence[SummaryLine]) -> SummaryLine | None:
        """What is said in place of a sentence that is not borne out: of what is not said yet, what shares
        words with it, else the first.
        """
        offered = self._lines or self.own(_INSTEAD_WORDS)
        left = [line for line in offered if not repeats(line, before) and not needs_another(line.text)]
        near = Ranking([terms(line.text) for line in left]).nearest(sentence, 1)
        return left[near[0] if near else 0] if left else None


def own_lines(book: Document, ranges: Sequence[tuple[int, int]], words: int) -> tuple[SummaryLine, ...]:
    """The book's own sentences that tell these ranges of its text in about so many words."""
    return tuple(
        SummaryLine(" ".join(book.text[start:end].split()), start, end, own=True)
        for start, end in best_sentences(book.text, ranges, words)
    )


def fewer(lines: Sequence[SummaryLine], words: int) -> tuple[SummaryLine, ...]:
    """Those of `lines` that tell the most, in their order, about `words` words of them; nothing twice."""
    once: list[SummaryLine] = []
    for line in lines:
        if not repeats(line, once):
            once.append(line)
    return tuple(once[number] for number in choose_sentences([line.text for line in once], words))


def repeats(line: SummaryLine, before: Sequence[SummaryLine]) -> bool:
    """Whether a line says hardly more than one before it."""
    own = set(terms(line.text))
    return any(line.text == other.text or is_alike(own, set(terms(other.text))) for other in before)


def said_before(line: SummaryLine, told: Sequence[SummaryLine]) -> bool:
    """Whether one of the sentences told stands where this one does, or says the same."""
    return repeats(line, told) or any(one.start < line.end and line.start < one.end for one in told)


def whole_sentences(text: str) -> str:
    """`text` up to the end of its last whole sentence; as it is where it has none."""
    ends = [end for start, end in sentence_spans(text, 0, len(text)) if ENDED.search(text[start:end])]
    return text[: ends[-1]] if ends else text
