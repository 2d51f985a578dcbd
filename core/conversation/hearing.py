"""A part's telling, sentence by sentence as it is decoded: which of them may stand in a summary. No model
here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from core.conversation.naming import in_first_person, named, points_back
from core.conversation.part_summaries import SummaryLine
from core.conversation.standing import PartSlot, SlottedSummary
from core.conversation.supported_sentences import TellableSpan, repeats
from core.events import Piece
from core.evidence.passages import sentence_spans
from core.text.levelled import LevelledText


class SentenceFilter:
    """Takes the sentences of a part's telling as they end: into the slot, or not."""

    def __init__(self, stretch: TellableSpan, least: float, summary: SlottedSummary, slot: PartSlot) -> None:
        self._stretch, self._least, self._summary, self._slot = stretch, least, summary, slot
        self._before: list[str] = []  # the sentences that were told, whatever became of them
        self._stands = False  # whether the last of them does
        self.rest = LevelledText()  # of the sentence that has not ended

    def hear(self, pieces: Sequence[Piece]) -> bool:
        """Whether a sentence has ended with these pieces: it has when another begins."""
        self.rest += LevelledText.of(pieces)
        ended = False
        while len(spans := sentence_spans(self.rest.text, 0, len(self.rest.text))) > 1:
            self._judge(*spans[0])
            self.rest, ended = self.rest[spans[1][0] :], True
        return ended

    def end(self) -> None:
        """The last sentence, where it is complete."""
        for start, end in sentence_spans(self.rest.text, 0, len(self.rest.text)):
            self._judge(start, end)
        self.rest = LevelledText()

    def _judge(self, start: int, end: int) -> None:
        decoded = self.rest[start:end].on_one_line()
        said = self._summary.fitting(self._slot, decoded.text)
        line = self._line(said) if said else None
        self._before.append(said or decoded.text)
        self._stands = line is not None
        if line is not None:
            self._slot.told.append(line._replace(pieces=_as_it_stands(decoded, line.text).pieces))

    def _line(self, said: str) -> SummaryLine | None:
        """The sentence as it may stand: it says whom it means, the book bears it out, it is new."""
        if in_first_person(said):
            return None
        if points_back(said) and not self._stands:
            said = named(said, self._before, self._stretch.knows) or ""
        line = self._stretch.held(said, self._least) if said else None
        before = [*self._summary.others(self._slot), *self._slot.told]
        return line if line is not None and not line.own and not repeats(line, before) else None


def _as_it_stands(decoded: LevelledText, text: str) -> LevelledText:
    """The levels of a sentence as it stands, which may begin otherwise than what was decoded."""
    same = len(os.path.commonprefix([decoded.text[::-1], text[::-1]]))
    return LevelledText.plain(text[: len(text) - same]) + decoded[len(decoded.text) - same :]
