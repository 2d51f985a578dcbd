"""What is known of an answer at one moment, while it is made and when it is complete."""

from __future__ import annotations

from dataclasses import dataclass, replace

from core.events import (
    AttentionEvidence,
    Finished,
    Loading,
    Piece,
    Prefill,
    Preparing,
    ReadingStep,
    SourceSpan,
    Stats,
    SummaryDraft,
)
from core.text.words import Message


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of the answer at one moment. `phase`: starting | loading | preparing | prefill |
    streaming | finished | failed.
    """

    phase: str = "starting"
    loading: Loading | None = None
    reading: ReadingStep | None = None
    preparing: Preparing | None = None
    prefill: Prefill | None = None
    pieces: tuple[Piece, ...] = ()
    looked: tuple[AttentionEvidence, ...] = ()  # where the model looked for these pieces
    parts: tuple[tuple[str, str], ...] = ()  # (label, text) of the parts read before this one
    standing: SummaryDraft | None = None  # of a summary that is told in the place of what stands there
    stats: Stats | None = None
    finished: Finished | None = None
    error: str = ""
    whole_s: float = 0.0  # how long it takes by what was known at its first part; 0: unknown
    fatal: bool = False
    stopping: bool = False

    @property
    def running(self) -> bool:
        """Whether more is to come."""
        return self.phase not in ("finished", "failed")

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def kept(self) -> tuple[Piece, ...]:
        """What stays where the answer breaks off: what was told of the parts, and the text so far, without a
        sentence that nobody has held to the book.
        """
        told = "".join(f"## {label}\n\n{text}\n\n" for label, text in self.parts)
        said = (*self.standing.before, *self.standing.after) if self.standing else self.pieces
        return joined((Piece(told, ""),) if told else (), said)

    @property
    def telling(self) -> tuple[int, int]:
        """Where in the text the sentence stands that is not complete, or not held to the book yet."""
        if self.standing is None:
            return (0, 0)
        start, told = (sum(len(piece.text) for piece in some) for some in self._told())
        return (start, start + told)

    @property
    def stands(self) -> tuple[SourceSpan, ...]:
        """The places in the book of the sentences that stand, counted in the text."""
        start, end = self.telling
        return tuple(
            replace(one, start=one.start + end - start, end=one.end + end - start)
            if one.start >= start
            else one
            for one in (self.standing.stands if self.standing else ())
        )

    def _told(self) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        return self.standing.before, self.standing.telling


def joined(old: tuple[Piece, ...], new: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The pieces in a row, neighbours of the same level made one. What the program says stays apart."""
    joined = list(old)
    for piece in new:
        if joined and joined[-1].level == piece.level and not _said(joined[-1], piece):
            joined[-1] = Piece(joined[-1].text + piece.text, piece.level)
        else:
            joined.append(piece)
    return tuple(joined)


def _said(*pieces: Piece) -> bool:
    return any(isinstance(piece.text, Message) for piece in pieces)
