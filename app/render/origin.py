"""Where an exported file comes from, for whoever finds it years later: book, models and date; and which of
its answers are not whole, or hold only so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from app.store.turns import StoredTurn
from core.documents.document import Document
from core.model.store.catalogue import title_of
from core.text.words import Message, localized
from core.text.words import translated as _

WITHHELD = "withheld"  # the state of an answer that is left out under a spoiler limit


def origin(book: Document | None, models: Iterable[str], day: date) -> str:
    """One line: the book's title and author, the models that wrote, as far as that was kept, and the day."""
    named = [book.title, book.author] if book else []
    titles = ", ".join(dict.fromkeys(title_of(name) for name in models if name))
    told = [_("answers by {models}").format(models=titles)] if titles else []
    exported = _("exported on {date} from TriForce Chat").format(date=day.isoformat())
    return " · ".join(filter(None, [*named, *told, exported]))


def models_of(turns: Iterable[StoredTurn]) -> list[str]:
    """The models that wrote these answers, in order; answers of earlier versions do not say it."""
    return [str(one.extra.get("model") or "") for one in turns if one.role == "assistant"]


def incomplete(turn: StoredTurn) -> str:
    """What is to be said of an answer that is not whole; empty for one that is, and for a question."""
    if turn.role != "assistant":
        return ""
    if turn.state == WITHHELD:
        return _("Left out: told with more of the book than the spoiler limit allows.")
    if turn.state == "failed":  # why, and what to do then, was for that moment
        return _("This answer broke off before its end.")
    return _said(turn.state, turn.extra.get("reason", ""))


def held(turn: StoredTurn) -> list[str]:
    """How far an answer holds, a line each: that it is not whole, and what the page says below it. Nothing of
    a question.
    """
    notes = turn.extra.get("notes", ()) if turn.role == "assistant" else ()
    return [localized(one) for one in (incomplete(turn), *notes) if one]


def _said(state: str, reason: str) -> Message | str:
    if state == "writing":
        return _("This answer was still being written.")
    if reason in ("length", "context_full"):
        return _("This answer ended at its length limit, before its end.")
    if reason == "looping":
        return _("This answer was ended where it began to repeat itself.")
    return _("This answer was stopped before its end.") if state == "stopped" else ""
