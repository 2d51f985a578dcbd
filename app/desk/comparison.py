"""An answer beside plain decoding: its tokens are judged by a plain pass, and a timed plain run answers the
same question again. At temperature 0 both texts are the same; above it they are two draws of one law.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from app.errors import guarded
from app.store.turns import Turn, answered_until, asked_again, exchanges, instructed, within
from core.errors import UserError
from core.events import Delta, Failed, Finished
from core.stats import AnswerStats
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

log = logging.getLogger(__name__)


def comparable(turns: list[Turn]) -> tuple[Turn | None, str]:
    """The last answer, where it was decoded with drafts, in one go; else, where there is one that was decoded
    with drafts, why it is not compared.
    """
    last = turns[-1] if len(turns) > 1 else None
    stats = last.extra.get("stats") or {} if last is not None else {}
    if last is None or not stats.get("new_tokens") or stats.get("mode") == "autoregressive":
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


class Comparing:
    """Compares the last answer of a desk's conversation; nothing else is answered meanwhile."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.tokens = 0  # of the plain run so far
        self.left_s: float | None = None  # if that becomes as long as the answer
        self.running = False

    def begin(self) -> None:
        """Starts, where there is something to compare. Raises UserError, so where plain decoding would read
        behind the conversation's limit.
        """
        desk = self._desk
        turn, _why = comparable(desk.turns)
        if turn is None or desk.refuse_while_busy():
            return
        if desk.engine.state != "ready":
            raise UserError(_("The engine is not ready yet. Compare in a moment."))
        if not within(answered_until(desk.turns[-2], turn), desk.until):
            words = _(
                "This answer was given with more of the book than the limit, chapter {number}, lets be read "
                "now. Regenerate it, then compare the new one."
            )
            raise UserError(words.format(number=desk.until))
        self.running, self.tokens, self.left_s = True, 0, None
        run = threading.Thread(
            target=self._run, args=(desk.conversation_id, desk.turns), name="compare", daemon=True
        )
        run.start()
        desk.change()

    def stop(self) -> None:
        """Ends it; nothing is kept."""
        if self.running:
            self._desk.engine.stop()

    def _run(self, talk: str, turns: list[Turn]) -> None:
        try:
            guarded(lambda: self._compare(talk, turns), self._desk.say, None)
        finally:
            self.running = False
            self._desk.change()

    def _compare(self, talk: str, turns: list[Turn]) -> None:
        desk, question, answer = self._desk, turns[-2], turns[-1]
        ask = replace(
            asked_again(question),
            book=desk.book,
            conversation_id=talk,
            params={**answer.extra.get("params", {}), "mode": "autoregressive"},
            history=exchanges(turns[:-2], desk.until),
            until=answered_until(question, answer),
            instructions=instructed(question, answer),
            compare=tuple(answer.extra.get("decoded") or answer.extra["ids"]),
            drawn=answer.extra.get("drawn") or {},
        )
        figures = AnswerStats()
        for event in desk.engine.ask(ask):
            figures.take(event)
            if isinstance(event, Delta) and (stats := figures.stats()):
                self.tokens = stats.new_tokens
                more = len(ask.compare) - self.tokens
                self.left_s = more * stats.tbt_mean_ms / 1e3 if more > 0 and stats.tbt_mean_ms else None
                desk.change()
            elif isinstance(event, Failed):
                desk.say(event.message)
            elif isinstance(event, Finished) and event.reason != "user":
                desk.history.compare(talk, answer.number, _found(event, answer))


def _found(plain: Finished, answer: Turn) -> dict[str, Any]:
    """What is kept of it with the answer."""
    return {
        "text": plain.text,
        "same": plain.text.strip() == answer.text.strip(),
        "tokens_per_s": plain.stats.tokens_per_s,
        "temperature": plain.stats.temperature,
        "chosen": plain.stats.answers > 1,
        "verified": asdict(plain.stats.verified) if plain.stats.verified else None,
    }
