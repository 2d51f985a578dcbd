"""What the page's buttons ask of the desk, and its choices as an Ask. What a browser sends is not trusted."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from app.handlers import Desk
from core.ask import Ask
from core.text.words import translated as _

WHOLE, PAGE = 0, "page"  # no first or last chapter chosen; no length of a summary
SUITS = "suits_model"  # ticked: the three below are left to the model's catalogue entry
SAMPLING = ("temperature", "top_p", "repetition_penalty")
WHOLE_NUMBERS = ("max_new_tokens", "seed")


def make_wish(choice: tuple, params: dict[str, Any], desk: Desk) -> Ask:
    """The choices of the page as an Ask; `choice` is (first chapter or 0, last chapter or 0, length of a
    summary).
    """
    first, last, length = choice
    book = desk.book
    count = (desk.until or len(book.chapters)) if book else 0
    chapters = None
    if count and (first or last):
        left, right = int(first or 1), int(last or count)
        chapters = (min(left, right), max(left, min(right, count)))
    left_open = (SUITS, *SAMPLING) if params.get(SUITS) else (SUITS,)
    params = {name: value for name, value in params.items() if name not in left_open}
    whole = {
        name: int(value) if name in WHOLE_NUMBERS else value
        for name, value in params.items()
        if value is not None
    }
    whole["seed"] = whole.get("seed") or 1 + secrets.randbelow(2**31 - 1)
    return Ask(chapters=chapters, fit=desk.fit, params=whole, summary_length=length or PAGE)


def dispatch(desk: Desk, data: object, wish: Ask) -> None:
    """One action of the page's own buttons: unknown acts and wrong types are ignored."""
    items = data.items() if isinstance(data, dict) else ()
    text = {key: value for key, value in items if isinstance(value, str)}
    acts: dict[str, Callable[[], object]] = {
        "upload": lambda: desk.intake.upload(text.get("path", ""), text.get("name", "book")[:200]),
        "refused": lambda: desk.intake.refuse(text.get("name", "")[:200], _refusal(text.get("limit", ""))),
        "sample": lambda: desk.intake.sample(text.get("name", "")),
        "book": lambda: desk.select_book(text.get("id", "")),
        "forget": lambda: desk.forget_book(text.get("id", "")),
        "talk": lambda: desk.select_conversation(text.get("id", "")),
        "forget-talk": lambda: desk.forget_conversation(text.get("id", "")),
        "new": desk.new_conversation,
        "clear": desk.clear,
        "suggest": lambda: desk.ask(text.get("text", "")[:200], wish),
        "regenerate": lambda: desk.regenerate(wish),
        "stop": desk.stop,
        "cancel-opening": desk.intake.cancel,
        "read-pictures": desk.intake.read_pictures,
        "fetch-model": lambda: desk.models.fetch(text.get("name", "")),
        "pause-model": desk.models.pause,
        "use-model": lambda: desk.use_model(text.get("name", "")),
        "dismiss": desk.dismiss,
        "restart": desk.restart_engine,
        "cite": lambda: desk.reading.show(_number(text.get("offset")), _number(text.get("length"))),
        "fit": lambda: desk.choose_fit(text.get("value", "")),
        "limit": lambda: desk.limit(_number(text.get("value"))),
        "goto": lambda: desk.reading.show(_number(text.get("value"))),
        "turn": lambda: desk.reading.turn(-1 if text.get("value") == "back" else 1),
        "stand": lambda: desk.reading.stand(_number(text.get("value"))),
        "find": lambda: desk.reading.look_for(text.get("text", ""), exact=bool(text.get("exact"))),
        "mark": lambda: desk.reading.mark(_number(text.get("offset")), text.get("text", "")),
        "note": lambda: desk.reading.note(_number(text.get("offset")), text.get("text", "")),
        "unmark": lambda: desk.reading.unmark(_number(text.get("offset"))),
    }
    if action := acts.get(text.get("act", "")):
        action()


def _refusal(limit: str) -> str:
    """Why the page did not take a file: larger than so many MB, or lost on the way."""
    if _number(limit):
        return _("It is larger than the limit of {limit} MB.").format(limit=_number(limit))
    return _("It could not be copied into the app.")


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0
