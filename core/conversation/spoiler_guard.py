"""Of an answer under a spoiler limit only what the book up to it bears out is said: a model knows a famous
book from elsewhere, too. No model here.

A sentence waits until it is complete; core.evidence.allowed_sentences says which of them may be said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from core.conversation.answering import Answer, Answering
from core.documents.document import Document
from core.events import AttentionEvidence, Delta, Event, Finished, ReadingStep, RoundStats
from core.evidence.allowed_sentences import SpoilerGuard
from core.evidence.passages import sentence_spans
from core.evidence.support import UNSAID_SO_FAR
from core.request import Request
from core.text.levelled import LevelledText
from core.text.words import translated as _
from core.text.words import translated_count as _n


def allowed_text(ask: Request) -> Document | None:
    """What may be told of the book (`ask.book` ends at its limit already); None where all of it may. Chapters
    that somebody chose to be read are no limit to what may be told.
    """
    return ask.book if ask.spoiler_limit is not None else None


def guarded_answer(answer: Answering, guard: SpoilerGuard | None) -> Answering:
    """The events of an answer, and the answer, with what the guard allows alone; as they are without one."""
    if guard is None:
        return (yield from answer)
    waiting, said, left_out = LevelledText(), LevelledText(), False

    def ready(*, to_the_end: bool) -> LevelledText:
        """Of what waits, the complete sentences that may be said."""
        nonlocal waiting, left_out
        spans = sentence_spans(waiting.text, 0, len(waiting.text))
        whole = spans if to_the_end else spans[:-1]
        found, at = LevelledText(), 0
        for number, (start, end) in enumerate(whole):
            alone = to_the_end and len(spans) == 1 and not said.text.strip()
            following = spans[number + 1][0] if number + 1 < len(spans) else len(waiting.text)
            if guard.allows(waiting.text[start:end], alone=alone):
                found += waiting[at:following]
            else:
                left_out = True
            at = following
        waiting = LevelledText() if to_the_end else waiting[at:]
        return found

    while True:
        try:
            event = next(answer)
        except StopIteration as finished:
            done: Answer = finished.value
            break
        if isinstance(event, Delta):
            waiting += LevelledText.of(event.pieces)
            found = ready(to_the_end=False)
            said += found
            yield Delta(found.pieces, event.rounds)
        elif not (isinstance(event, AttentionEvidence) and left_out):
            yield event
    found = ready(to_the_end=True)
    said += found
    if not left_out:
        yield from _told(found)
        return done
    note = _("What the chapters that may be read do not bear out was left out of this answer.")
    if not said.text.strip():
        found = said = LevelledText.plain(_(UNSAID_SO_FAR))
        note = _("What the model said instead, the chapters that may be read do not bear out.")
    yield from _told(found)
    return replace(done, pieces=said.pieces, token_ids=(), notes=(*done.notes, note))


def _told(text: LevelledText, rounds: tuple[RoundStats, ...] = ()) -> Iterator[Delta]:
    if text.text:
        yield Delta(text.pieces, rounds)


def named_up_to(events: Iterator[Event], limit: int, chapters: int) -> Iterator[Event]:
    """The events of an answer under a limit: what is read is called the book up to there, never the whole."""
    counted = _n("its {count} chapter", "all {count} chapters", chapters).format(count=chapters)
    whole = (str(_("the whole book")), str(counted))
    so_far = _("the book up to chapter {number}").format(number=limit)
    for event in events:
        if isinstance(event, ReadingStep) and str(event.label) in whole:
            event = replace(event, label=so_far)
        elif isinstance(event, Finished):
            sources = tuple(so_far if str(one) in whole else one for one in event.sources)
            event = replace(event, sources=sources)
        yield event


def told_so_far(events: Iterator[Event]) -> Iterator[Event]:
    """The events of a summary that ends where the book stood open: the last of what was read for it did."""
    for event in events:
        if isinstance(event, Finished) and event.sources:
            *before, last = event.sources
            last = _("{place}, up to where the book stood open").format(place=last)
            event = replace(event, sources=(*before, last))
        yield event
