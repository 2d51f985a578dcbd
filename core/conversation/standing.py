"""A summary while it is told: what stands for each part of the book, and all of it as one text in pieces. No
model here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.conversation.characters import Introduction
from core.conversation.part_summaries import SummaryLine
from core.conversation.reading import ReadingPart
from core.conversation.summary_layout import HeadedLines, composed
from core.conversation.supported_sentences import said_before
from core.events import Piece, SummaryDraft
from core.evidence.naming import needs_another

_TELLING = SummaryLine("\0", 0, 0)  # where the sentence that is being told stands


@dataclass(slots=True)
class PartSlot:
    """What stands for one part of the book: its `own` sentences, and what was `told` in the place of some of
    them. `telling`: the own sentence that is being told.
    """

    part: ReadingPart
    own: tuple[SummaryLine, ...]
    told: dict[SummaryLine, SummaryLine] = field(default_factory=dict)
    telling: SummaryLine | None = None
    complete: bool = False
    introducing: list[SummaryLine] = field(default_factory=list)  # once it is complete

    def lines(self) -> list[SummaryLine]:
        """What stands there, in the order of the book."""
        told = list(self.told.values())
        kept = [line for line in self.own if line not in self.told and not said_before(line, told)]
        return sorted([*told, *kept, *self.introducing], key=lambda line: line.start)


class SlottedSummary:
    """All slots under their headings, and what stands behind them, if anything does: `closing`. `main`: whom
    it names, where the book introduces them, by the sentence that does.
    """

    def __init__(
        self, parts: Sequence[ReadingPart], skeleton: Sequence[HeadedLines], closing: tuple[Piece, ...] = ()
    ) -> None:
        self._headed: list[tuple[str, list[PartSlot]]] = []
        self._closing = closing
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
            if low <= one.line.start < high and not needs_another(one.line.text) and not one.known(said)
        ]

    @property
    def told(self) -> list[SummaryLine]:
        """What was told of all parts."""
        return [line for slot in self.slots for line in slot.told.values()]

    def sections(self, telling: PartSlot | None = None) -> list[HeadedLines]:
        """Everything as it stands; in the slot that is being told with a place for what is told, before the
        sentence that it is told from.
        """
        return [
            HeadedLines(heading, tuple(line for slot in slots for line in _with_place(slot, telling)))
            for heading, slots in self._headed
        ]

    def standing(self, slot: PartSlot | None = None) -> SummaryDraft:
        """The same as an event."""
        text, stands = composed(self.sections(slot), quoting=True)
        if slot is None:
            return SummaryDraft((*text.pieces, *self._closing), stands=stands)
        at = text.text.find(_TELLING.text)
        place = next(one for one in stands if one.start == at)
        others = tuple(
            replace(one, start=one.start - 1, end=one.end - 1) if one.start > at else one
            for one in stands
            if one is not place
        )
        after = (*text[at + 1 :].pieces, *self._closing)
        return SummaryDraft(text[:at].pieces, (), after, others)


def _with_place(slot: PartSlot, telling: PartSlot | None) -> list[SummaryLine]:
    lines = slot.lines()
    if slot is telling:
        lines.insert(lines.index(slot.telling) if slot.telling in lines else 0, _TELLING)
    return lines
