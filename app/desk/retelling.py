"""What was said so far in short, and then the answer: where the context has no room for all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.store.turns import retelling
from core.events import Delta, Event, Failed, Finished, Loading, Prefill, Preparing
from core.request import HistoryTurn, Request
from core.stats import AnswerStats
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

RETOLD_TOKENS = 256  # of a summary of what was said
TRANSCRIPT = (
    "This was asked about a book, and answered:\n\n{said}\n\nTell in short what was asked and answered, so "
    "that the conversation can go on from there."
)


def retold(
    engine: Runtime, ask: Request, left: Sequence[HistoryTurn], *, keep: Callable[[str], None]
) -> Iterator[Event]:
    """The events of a summary of what is `left` out, as progress, and then those of the answer. `keep` gets
    the summary. Nothing is answered where that is stopped.
    """
    before, told = "\n\n".join(f"- {one.question}\n{one.answer}" for one in left), ""
    short = Request(
        TRANSCRIPT.format(said=before),
        params={**ask.params, "max_new_tokens": RETOLD_TOKENS},
        instructions=ask.instructions,
    )
    stage = _("Telling in short what was said so far")
    yield Loading(stage)
    figures = AnswerStats()
    for event in engine.ask(short):
        figures.take(event)
        if isinstance(event, Failed) or isinstance(event, Finished) and event.reason == "user":
            yield event
            return
        if isinstance(event, Finished):
            told = event.text.strip()
        elif isinstance(event, Prefill) and event.total_tokens:
            yield Loading(stage, event.done_tokens / event.total_tokens, event.eta_s)
        elif isinstance(event, Preparing):
            yield Loading(_("Preparing memory"), event.done_bytes / event.total_bytes, event.eta_s)
        elif isinstance(event, Delta) and (stats := figures.stats()):
            more = max(0, RETOLD_TOKENS - stats.new_tokens)
            left_s = more * stats.tbt_mean_ms / 1e3 if stats.tbt_mean_ms else None  # after one round
            yield Loading(stage, 1 - more / RETOLD_TOKENS, left_s)
    keep(told)
    first = (HistoryTurn(retelling(), told),) if told else ()
    yield from engine.ask(replace(ask, history=first + ask.history))
