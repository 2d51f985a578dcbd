"""A summary while it is told: what stands for each part of the book, and all of it as one text in pieces. No
model here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.conversation.announcing import announces, plainly
from core.conversation.characters import Introduction
from core.conversation.naming import points_back
from core.conversation.part_summaries import SummaryLine
from core.conversation.reading import ReadingPart
from core.conversation.summary_layout import HeadedLines, composed
from core.conversation.supported_sentences import repeats
from core.documents.word_count import count_words
from core.events import Piece, SummaryDraft

# of the words of the sentences that a part's telling replaces: with so many it is not told again, and below
# so many its own sentences are added
_ENOUGH, _LEAST = 0.75, 0.6
_TELLING = SummaryLine("\0", 0, 0)  # where the sentence that is being told stands


@dataclass(slots=True)
class PartSlot:
    """What stands for one part of the book: its `own` sentences, and what was `told` in their place."""

    part: ReadingPart
    own: tuple[SummaryLine, ...]
    told: list[SummaryLine] = field(default_factory=list)
    complete: bool = False
    introducing: list[SummaryLine] = field(default_factory=list)  # once it is complete

    @property
    def words(self) -> int:
        """How much is to be told."""
        return sum(count_words(line.text) for line in self.own)

    @property
    def told_enough(self) -> bool:
        """Whether so much was told that nothing is missing beside it."""
        return sum(count_words(line.text) for line in self.told) >= _ENOUGH * self.words

    def lines(self) -> list[SummaryLine]:
        """What was told, and of the own sentences what is left: while the part is told those that say
        something else, then as many as it takes where the telling says too little.
        """
        found, words = list(self.told), sum(count_words(line.text) for line in self.told)
        enough = _LEAST * self.words if self.told else self.words
        for line in self.own:
            if _covered(line, self.told) or self.complete and words >= enough:
                continue
            if self.complete and self.told and points_back(line.text):
                continue  # whom it means stands in the book before it, not here
            if self.complete:
                words += count_words(line.text)
                _insert(line, found)
            else:
                found.append(line)
        for line in self.introducing:
            _insert(line, found)
        return found


def _covered(line: SummaryLine, told: Sequence[SummaryLine]) -> bool:
    """Whether one of the sentences told stands where this one does, or says the same."""
    return repeats(line, told) or any(one.start < line.end and line.start < one.end for one in told)


def _insert(line: SummaryLine, among: list[SummaryLine]) -> None:
    """Puts a line where its place in the book is, not between a sentence and one that points back to it."""
    at = sum(one.start < line.start for one in among)
    while 0 < at < len(among) and points_back(among[at].text):
        at -= 1
    among.insert(at, line)


class SlottedSummary:
    """All slots under their headings. `opening`: its first slot is where the story begins. `main`: whom it
    names, where the book introduces them, by the sentence that does.
    """

    def __init__(
        self, parts: Sequence[ReadingPart], skeleton: Sequence[HeadedLines], *, opening: bool = True
    ) -> None:
        self._headed: list[tuple[str, list[PartSlot]]] = []
        self._opening = opening
        self.main: Sequence[Introduction] = ()
        for section in skeleton:
            inside = [
                (part, tuple(line for line in section.lines if part.start <= line.start < part.end))
                for part in parts
            ]
            self._headed.append((section.heading, [PartSlot(part, own) for part, own in inside if own]))

    @property
    def slots(self) -> list[PartSlot]:
        """In the order of the book."""
        return [slot for _heading, slots in self._headed for slot in slots]

    def fitting(self, slot: PartSlot, said: str) -> str | None:
        """A sentence as it may come next in a slot, None where it may not: the story begins once."""
        if announces(said) and not (self._opening and slot is self.slots[0] and not slot.told):
            return plainly(said)
        return said

    def remember(self, slot: PartSlot, known: Sequence[SummaryLine]) -> None:
        """Completes a slot by what was told of its part before, in any summary."""
        stands = False
        for line in known:
            said = self.fitting(slot, line.text)
            stands = bool(said) and (stands or not points_back(said)) and not repeats(line, self.others(slot))
            if stands:
                slot.told.append(line._replace(text=said))
        self.complete(slot)

    def complete(self, slot: PartSlot) -> None:
        """Nothing more is told in a slot: the main characters whom the book introduces by here are named."""
        slot.complete, slots = True, self.slots
        at = slots.index(slot)
        low = slots[at - 1].part.end if at else 0
        high = slot.part.end if slot is not slots[-1] else math.inf
        said = " ".join(line.text for one in slots[: at + 1] for line in one.lines())
        slot.introducing = [
            one.line
            for one in self.main
            if low <= one.line.start < high and not points_back(one.line.text) and not one.known(said)
        ]

    def others(self, slot: PartSlot) -> list[SummaryLine]:
        """What was told of the other parts."""
        return [line for one in self.slots if one is not slot for line in one.told]

    def sections(self, telling: PartSlot | None = None) -> list[HeadedLines]:
        """Everything as it stands; in the slot that is being told with a place for the next sentence."""
        return [
            HeadedLines(heading, tuple(line for slot in slots for line in _with_place(slot, telling)))
            for heading, slots in self._headed
        ]

    def standing(self, slot: PartSlot | None = None, rest: Sequence[Piece] = ()) -> SummaryDraft:
        """The same as an event; `rest`: what was told of the next sentence of `slot`."""
        text, stands = composed(self.sections(slot), quoting=True)
        if slot is None:
            return SummaryDraft(text.pieces, stands=stands)
        at = text.text.find(_TELLING.text)
        place = next(one for one in stands if one.start == at)
        others = tuple(
            replace(one, start=one.start - 1, end=one.end - 1) if one.start > at else one
            for one in stands
            if one is not place
        )
        return SummaryDraft(text[:at].pieces, tuple(rest), text[at + 1 :].pieces, others)


def _with_place(slot: PartSlot, telling: PartSlot | None) -> list[SummaryLine]:
    lines = slot.lines()
    if slot is telling:
        lines.insert(len(slot.told), _TELLING)
    return lines
