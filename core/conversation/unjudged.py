"""What bears out the few words of a model whose answers a verifier judges, where it had no part: nothing.
Some place of a book has almost any three words near the question's. No model here.

What may be wrong is said as what it is, before its first word: a sign behind it is overlooked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.conversation.asking import AnswerRun
from core.conversation.books import BookCache
from core.conversation.reading import ReadingStyle
from core.documents.word_count import count_words
from core.events import Finished, Piece, SourceSpan, Stats
from core.evidence.support import FRAGMENT_WORDS, HEDGE
from core.text.words import translated as _

HEDGE_CHARS = len(HEDGE) + 1


def hedged(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """A short answer that nothing bears out as no more than that: it begins at `HEDGE_CHARS` then."""
    return (Piece(_(HEDGE), ""), Piece(" ", ""), *pieces)


def moved(stats: Stats, by: int) -> Stats:
    """Figures of an answer whose text begins `by` characters later."""
    if stats.verified is None:
        return stats
    places = tuple((start + by, end + by) for start, end in stats.verified.places)
    return replace(stats, verified=replace(stats.verified, places=places))


def doubted(done: Finished, run: AnswerRun, style: ReadingStyle, books: BookCache) -> Finished:
    """The end of an answer, with the place nearest to a short one as one that does not bear it out; as it is
    for an answer in sentences, in the book's own words, or of a model without a verifier.
    """
    ask = run.ask
    if not style.verifier or ask.question is None or count_words(done.text) > FRAGMENT_WORDS:
        return done
    marks = books.evidence(ask.book).marks(done.text, ask.question)
    if len(marks) != 1 or marks[0].state == "quoted":
        return done
    (mark,) = marks
    place = mark.place or (mark.nearest and (mark.nearest.start, mark.nearest.end))
    if place is None:
        return done
    doubt = SourceSpan(mark.start + HEDGE_CHARS, mark.end + HEDGE_CHARS, *place, borne_out=False)
    pieces = hedged(done.pieces)
    return replace(
        done,
        text="".join(piece.text for piece in pieces),
        pieces=pieces,
        stats=moved(done.stats, HEDGE_CHARS),
        stands=(doubt,),
        decoded=done.token_ids,
    )
