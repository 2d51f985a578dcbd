"""An answer beside plain decoding: its tokens are judged by a plain pass, and a timed plain run answers the
same question again. At temperature 0 both texts are the same; above it they are two draws of one
distribution.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.desk.books import OpenBooks
from app.desk.store import Store
from app.desk.values import ComparisonRun
from app.errors import guarded
from app.store.history import History
from app.store.turns import StoredTurn, answered_limit, asked_again, exchanges, turn_instructions, within
from core.config import PLAIN_MODES
from core.errors import UserError
from core.events import Delta, Failed, Finished
from core.request import Request
from core.stats import AnswerStats
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

log = logging.getLogger(__name__)


def comparable(turns: list[StoredTurn]) -> tuple[StoredTurn | None, str]:
    """The last answer, where it was decoded with drafts, in one go; else, where there is one that was decoded
    with drafts, why it is not compared.
    """
    last = turns[-1] if len(turns) > 1 else None
    stats = last.extra.get("stats") or {} if last is not None else {}
    if last is None or not stats.get("new_tokens") or stats.get("mode") in PLAIN_MODES:
        return None, ""
    if last.state != "finished":
        return None, _("An answer that was stopped is not compared with plain decoding: it has no end.")
    if last.extra.get("parts") or last.extra.get("stands") and not last.extra.get("decoded"):
        words = _(
            "A summary is put together from several texts: only an answer that is written in one go can be "
            "compared with plain decoding."
        )
        return None, words
    return (last, "") if last.extra.get("ids") else (None, "")


class Comparison:
    """Compares the last answer of the open conversation; nothing else is answered meanwhile."""

    def __init__(
        self,
        store: Store,
        engine: Runtime,
        history: History,
        books: OpenBooks,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called behind every comparison."""
        self._store, self._engine, self._history, self._books = store, engine, history, books
        self._ended = ended

    def begin(self) -> None:
        """Starts, where there is something to compare. Raises UserError, so where plain decoding would read
        behind the conversation's limit.
        """
        turns, spoiler_limit = self._books.turns, self._store.state.spoiler_limit
        turn, _why = comparable(turns)
        if turn is None or self._store.refuse_while_busy():
            return
        if self._engine.state != "ready":
            raise UserError(_("The engine is not ready yet. Compare in a moment."))
        if not within(answered_limit(turns[-2], turn), spoiler_limit):
            words = _(
                "This answer was given with more of the book than the limit, chapter {number}, lets be read "
                "now. Regenerate it, then compare the new one."
            )
            raise UserError(words.format(number=spoiler_limit))
        talk, ask = self._store.state.conversation_id, self._asked(turns)
        self._store.update(comparing=ComparisonRun())
        threading.Thread(target=self._run, args=(talk, ask, turns[-1]), name="compare", daemon=True).start()

    def stop(self) -> None:
        """Ends it; nothing is kept."""
        if self._store.state.comparing:
            self._engine.stop()

    def _run(self, talk: str, ask: Request, answer: StoredTurn) -> None:
        try:
            guarded(lambda: self._compare(talk, ask, answer), self._store.say, None)
        finally:
            self._store.update(comparing=None)
        guarded(self._ended, self._store.say, None)

    def _asked(self, turns: list[StoredTurn]) -> Request:
        """The last question of the open conversation, for plain decoding."""
        question, answer = turns[-2:]
        return Request(
            **asked_again(question),
            book=self._books.current,
            conversation_id=self._store.state.conversation_id,
            params={**answer.extra.get("params", {}), "mode": "autoregressive"},
            history=exchanges(turns[:-2], self._store.state.spoiler_limit),
            spoiler_limit=answered_limit(question, answer),
            instructions=turn_instructions(question, answer),
            compare=tuple(answer.extra.get("decoded") or answer.extra["ids"]),
            drawn=answer.extra.get("drawn") or {},
        )

    def _compare(self, talk: str, ask: Request, answer: StoredTurn) -> None:
        figures = AnswerStats()
        for event in self._engine.ask(ask):
            figures.take(event)
            if isinstance(event, Delta) and (stats := figures.stats()):
                more = len(ask.compare) - stats.new_tokens
                left_s = more * stats.tbt_mean_ms / 1e3 if more > 0 and stats.tbt_mean_ms else None
                self._store.update(comparing=ComparisonRun(stats.new_tokens, left_s))
            elif isinstance(event, Failed):
                self._store.say(event.message)
            elif isinstance(event, Finished) and event.reason != "user":
                self._history.note(talk, answer.number, compared=_found(event, answer))


def _found(plain: Finished, answer: StoredTurn) -> dict[str, Any]:
    """What is kept of it with the answer."""
    return {
        "text": plain.text,
        "same": plain.text.strip() == answer.text.strip(),
        "tokens_per_s": plain.stats.tokens_per_s,
        "temperature": plain.stats.temperature,
        "chosen": plain.stats.answers > 1,
        "verified": asdict(plain.stats.verified) if plain.stats.verified else None,
    }
