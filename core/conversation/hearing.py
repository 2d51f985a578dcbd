"""A part's telling, sentence by sentence as it is decoded: which of them may stand in a summary. No model
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.conversation.grounding import Stretch, repeats
from core.conversation.naming import in_first_person, named, points_back
from core.conversation.part_summaries import Line
from core.conversation.standing import Slot, Summary, cut, joined
from core.events import Piece
from core.evidence.passages import sentences


class Hearing:
    """Takes the sentences of a part's telling as they end: into the slot, or not."""

    def __init__(self, stretch: Stretch, least: float, summary: Summary, slot: Slot) -> None:
        self._stretch, self._least, self._summary, self._slot = stretch, least, summary, slot
        self._before: list[str] = []  # the sentences that were told, whatever became of them
        self._stands = False  # whether the last of them does
        self.rest: list[Piece] = []  # of the sentence that has not ended

    def hear(self, pieces: Sequence[Piece]) -> bool:
        """Whether a sentence has ended with these pieces: it has when another begins."""
        self.rest += pieces
        text, ended = "".join(piece.text for piece in self.rest), False
        while len(spans := sentences(text, 0, len(text))) > 1:
            self._judge(*spans[0])
            self.rest = list(cut(self.rest, spans[1][0]))
            text, ended = text[spans[1][0] :], True
        return ended

    def end(self) -> None:
        """The last sentence, where it is complete."""
        text = "".join(piece.text for piece in self.rest)
        for start, end in sentences(text, 0, len(text)):
            self._judge(start, end)
        self.rest = []

    def _judge(self, start: int, end: int) -> None:
        decoded = [piece for piece in cut(self.rest, start, end) if piece.text]
        told = " ".join("".join(piece.text for piece in decoded).split())
        said = self._summary.fitting(self._slot, told)
        line = self._line(said) if said else None
        self._before.append(said or told)
        self._stands = line is not None
        if line is not None:
            self._slot.told.append(line)
            self._summary.heard[line.text] = joined(_fitted(decoded, line.text))

    def _line(self, said: str) -> Line | None:
        """The sentence as it may stand: it says whom it means, the book bears it out, it is new."""
        if in_first_person(said):
            return None
        if points_back(said) and not self._stands:
            said = named(said, self._before, self._stretch.knows) or ""
        line = self._stretch.held(said, self._least) if said else None
        before = [*self._summary.others(self._slot), *self._slot.told]
        return line if line is not None and not line.own and not repeats(line, before) else None


def _fitted(decoded: Sequence[Piece], text: str) -> Iterator[Piece]:
    """The levels of a sentence as it stands, which may begin otherwise than what was decoded."""
    plain, same = "".join(piece.text for piece in decoded), 0
    while same < min(len(plain), len(text)) and plain[-1 - same] == text[-1 - same]:
        same += 1
    if same < len(text):
        yield Piece(text[: len(text) - same], "")
    yield from cut(decoded, len(plain) - same)
