"""A model that was taught to say of a passage that it does not say it says so of whatever it has read. A
person is told in the program's words. No model here.
"""

from __future__ import annotations

from dataclasses import replace

from core.conversation.answering import Answer, Answering
from core.events import Delta, Piece
from core.evidence.support import UNSAID, UNSAID_HERE, UNSAID_SO_FAR
from core.request import Request


def unsaid(ask: Request) -> str:
    """What is told where all that may be read for a question was, and does not say it."""
    if ask.chapters or ask.selected_chapters:
        return UNSAID_HERE
    return UNSAID if ask.spoiler_limit is None and ask.end is None else UNSAID_SO_FAR


def reworded_refusal(answer: Answering, taught: str, told: str) -> Answering:
    """The events of an answer, and the answer; of one that is the refusal the model was `taught`, and nothing
    else, what is `told` instead. What may become it waits.
    """
    waiting: list[Delta] | None = []
    while True:
        try:
            event = next(answer)
        except StopIteration as finished:
            done: Answer = finished.value
            break
        if waiting is None or not isinstance(event, Delta):
            yield event
            continue
        waiting.append(event)
        if not taught.startswith("".join(one.text for one in waiting).strip()):
            yield from waiting
            waiting = None
    rounds = tuple(one for delta in waiting or () for one in delta.rounds)
    if waiting and done.text.strip() == taught:
        yield Delta((Piece(told, ""),), rounds)
        return replace(done, pieces=(Piece(told, ""),), token_ids=())
    yield from waiting or ()
    return done
