"""What bears out the few words of a model whose answers a verifier judges, where it had no part: nothing.
Some place of a book has almost any three words near the question's. No model here.
"""

from __future__ import annotations

from dataclasses import replace

from core.conversation.asking import AnswerRun
from core.conversation.books import BookCache
from core.conversation.reading import ReadingStyle
from core.documents.word_count import count_words
from core.events import Finished, SourceSpan
from core.evidence.support import FRAGMENT_WORDS


def doubted(done: Finished, run: AnswerRun, style: ReadingStyle, books: BookCache) -> Finished:
    """The end of an answer, with the place nearest to a short one as one that does not bear it out; as it is
    for an answer in sentences, in the book's own words, or of a model without a verifier.
    """
    ask = run.ask
    if not style.verifier or ask.question is None or count_words(done.text) > FRAGMENT_WORDS:
        return done
    marks = books.evidence(ask.book).marks(done.text, ask.question)
    if len(marks) != 1 or marks[0].state != "agrees":
        return done
    (mark,) = marks
    doubt = SourceSpan(mark.start, mark.end, *mark.place, borne_out=False)
    return replace(done, stands=(doubt,), decoded=done.token_ids)
