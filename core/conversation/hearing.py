"""A part's telling, sentence by sentence as it is decoded: which of them may stand in a summary. No model
here.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        said = " ".join("".join(piece.text for piece in decoded).split())
        line = self._line(said)
        self._before.append(said)
        self._stands = line is not None
        if line is not None:
            self._slot.told.append(line)
            self._summary.heard[line.text] = joined(_fitted(decoded, said, line.text))

    def _line(self, said: str) -> Line | None:
        """The sentence as it may stand: it says whom it means, the book bears it out, it is new."""
        if in_first_person(said):
            return None
        if points_back(said) and not self._stands:
            said = named(said, self._before, self._stretch.knows) or ""
        line = self._stretch.held(said, self._least) if said else None
        before = [*self._summary.others(self._slot), *self._slot.told]
        return line if line is not None and not line.own and not repeats(line, before) else None


def _fitted(decoded: Sequence[Piece], said: str, text: str) -> tuple[Piece, ...]:
    """The levels of a sentence as it stands, which may begin with a name instead of what was decoded."""
    if text == said == "".join(piece.text for piece in decoded):
        return tuple(decoded)
    same = 0
    while same < min(len(said), len(text)) and said[-1 - same] == text[-1 - same]:
        same += 1
    plain = "".join(piece.text for piece in decoded)
    if plain[len(plain) - same :] != text[len(text) - same :]:
        return (Piece(text, ""),)
    return (Piece(text[: len(text) - same], ""), *cut(decoded, len(plain) - same))
