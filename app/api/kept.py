"""Another program's conversation, put among the person's own because it asked for that (`store`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from app.store.history import History
from app.store.library import Library
from core.events import AttentionEvidence, Finished
from core.request import Request


class KeptAnswers:
    """Writes other programs' conversations into the history; `kept` is called when one was."""

    def __init__(self, library: Library, history: History, kept: Callable[[], None]) -> None:
        self._library, self._history, self._kept = library, history, kept

    def keep(self, ask: Request, answer: Finished, looked: list[AttentionEvidence]) -> None:
        """Writes question and answer behind the conversation they go on with, or what was said before with
        them as a new one. Raises sqlite3.Error where it cannot be written, and KeyError for a book that has
        gone.
        """
        history, ask = self._history, _as_sent(ask)
        if ask.book_id:
            self._library.get(ask.book_id)
        with history.together():
            talk = _going_on(history, ask) or history.create(ask.book_id, ask.spoiler_limit).id
            if not history.turns(talk):
                for said in ask.history:
                    history.add(talk, "user", said.question)
                    history.add(talk, "assistant", said.answer, extra={"spoiler_limit": ask.spoiler_limit})
            history.ask(talk, ask)
            history.add(talk, "assistant", answer.text, extra=_extra(ask, answer, looked))
        self._kept()


def _extra(ask: Request, answer: Finished, looked: list[AttentionEvidence]) -> dict[str, object]:
    """What is kept of an answer beside its text."""
    return {
        "ids": list(answer.token_ids),
        "sources": list(answer.sources),
        "notes": list(answer.notes),
        "reason": answer.reason,
        "stats": asdict(answer.stats),
        "stands": [asdict(one) for one in answer.stands],
        "looked": [asdict(one) for one in looked],
        "spoiler_limit": ask.spoiler_limit,
    }


def _as_sent(ask: Request) -> Request:
    """With the text that the first question is about in that question."""
    if not ask.text:
        return ask
    if not ask.history:
        return replace(ask, question=ask.text + ask.question, text="")
    first, *others = ask.history
    return replace(ask, history=(replace(first, question=ask.text + first.question), *others), text="")


def _going_on(history: History, ask: Request) -> str:
    """The conversation in which all was said that the program says was said before, and nothing else."""
    if not ask.history:
        return ""
    said = [(one.question, one.answer) for one in ask.history]
    for talk in history.conversations(ask.book_id):
        turns = history.turns(talk.id)
        told = [(one.text, two.text) for one, two in zip(turns[::2], turns[1::2], strict=False)]
        settled = len(turns) == 2 * len(said) and all(one.state != "writing" for one in turns)
        if settled and talk.spoiler_limit == ask.spoiler_limit and told == said:
            return talk.id
    return ""
