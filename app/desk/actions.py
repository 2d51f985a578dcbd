"""What the page's buttons ask of the desk, and its choices as an Ask. What a browser sends is not trusted."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.store.allowed_folders import ticked
from core.ask import Ask, params_of
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.desk.desk import Desk

# what may be done while the data folder is on its way
WHILE_MOVING = ("decline-move", "dismiss", "look-kept")


def make_wish(desk: Desk) -> Ask:
    """The choices of the page as an Ask. What is auto is left to the model's catalogue entry; a seed is drawn
    where none is set.
    """
    settings, (first, last) = desk.preferences.settings, desk.chapters
    count = (desk.until or len(desk.book.chapters)) if desk.book else 0
    chapters = None
    if count and (first or last):
        left, right = first or 1, last or count
        chapters = (min(left, right), max(left, min(right, count)))
    ticked = tuple(one for one in desk.tree.ticked if one <= count)
    params = params_of(settings)
    params["seed"] = params.get("seed") or 1 + secrets.randbelow(2**31 - 1)
    own = "\n".join(filter(None, (settings.instructions, desk.reading.notebook.instructions)))
    return Ask(
        chapters=None if ticked else chapters,
        ticked=ticked,
        fit=desk.fit,
        params=params,
        summary_length=settings.summary_length,
        summaries=settings.summaries,
        instructions=own,
    )


def dispatch(desk: Desk, data: object) -> None:
    """One action of the page's own buttons: unknown acts and wrong types are ignored. Raises UserError."""
    items = data.items() if isinstance(data, dict) else ()
    text = {key: value for key, value in items if isinstance(value, str)}
    acts: dict[str, Callable[[], object]] = {
        **_about_books(desk, text),
        **_about_answers(desk, text),
        **_about_the_app(desk, text),
    }
    act = text.get("act", "")
    if act in acts and (act in WHILE_MOVING or not desk.storage.refuse_while_moving()):
        acts[act]()


def _about_books(desk: Desk, text: dict[str, str]) -> dict[str, Callable[[], object]]:
    return {
        "upload": lambda: desk.intake.upload(
            text.get("path", ""), text.get("name", "book")[:200], text.get("title", "")
        ),
        "refused": lambda: desk.intake.refuse(text.get("name", "")[:200], _refusal(text.get("limit", ""))),
        "sample": lambda: desk.intake.sample(text.get("name", "")),
        "book": lambda: desk.select_book(text.get("id", "")),
        "search": lambda: desk.shelf.look_for(text.get("text", "")),
        "said": lambda: desk.shelf.open_said(text.get("book", ""), text.get("id", "")),
        "place": lambda: desk.shelf.open_place(
            text.get("book", ""), _number(text.get("offset")), _number(text.get("length"))
        ),
        "forget": lambda: desk.shelf.forget(text.get("id", "")),
        "cancel-opening": desk.intake.cancel,
        "read-pictures": desk.intake.read_pictures,
        "install-ocr": desk.intake.install_ocr,
        "tick": lambda: desk.tree.tick(_number(text.get("id"))),
        "untick": lambda: desk.tree.tick(0),
        "tell": lambda: desk.tree.summarize(make_wish(desk), [_number(text.get("value"))]),
        "tell-ticked": lambda: desk.tree.summarize(make_wish(desk), desk.tree.ticked),
        "tell-up-to": lambda: desk.tree.summarize(
            make_wish(desk), range(1, _number(text.get("value")) % 10_000 + 1)
        ),
        "cite": lambda: desk.reading.show(_number(text.get("offset")), _number(text.get("length"))),
        "goto": lambda: desk.reading.show(_number(text.get("value"))),
        "turn": lambda: desk.reading.turn(-1 if text.get("value") == "back" else 1),
        "stand": lambda: desk.reading.stand(_number(text.get("value"))),
        "find": lambda: desk.reading.look_for(text.get("text", ""), exact=bool(text.get("exact"))),
        "unfold": lambda: desk.reading.unfold(_number(text.get("value"))),
        "mark": lambda: desk.reading.mark(_number(text.get("offset")), text.get("text", "")),
        "note": lambda: desk.reading.note(_number(text.get("offset")), text.get("text", "")),
        "unmark": lambda: desk.reading.unmark(_number(text.get("offset"))),
    }


def _about_answers(desk: Desk, text: dict[str, str]) -> dict[str, Callable[[], object]]:
    return {
        "talk": lambda: desk.talks.select(text.get("id", "")),
        "forget-talk": lambda: desk.talks.forget(text.get("id", "")),
        "undo": lambda: desk.removal.restore(text.get("id", "")),
        "rename-talk": lambda: desk.talks.rename(text.get("id", ""), text.get("text", "")),
        "pin-talk": lambda: desk.talks.pin(text.get("id", "")),
        "fork": lambda: desk.talks.fork(_number(text.get("value"))),
        "ask-otherwise": lambda: desk.talks.ask_otherwise(_number(text.get("value"))),
        "version": lambda: desk.talks.use_version(_number(text.get("id")), _number(text.get("value"))),
        "bring-in": lambda: desk.talks.bring_in(text.get("path", "")),
        "new": desk.talks.begin,
        "clear": lambda: desk.talks.forget(desk.conversation_id),
        "instruct": lambda: desk.choose("instructions", text.get("value", "")),
        "instruct-book": lambda: desk.reading.instruct(text.get("value", "")),
        "compare": desk.comparing.begin,
        "drop-oldest": desk.asking.drop_oldest,
        "retell-oldest": desk.asking.retell_oldest,
        "start-fresh": desk.asking.start_fresh,
        "not-now": desk.asking.cancel,
        "summarize": lambda: desk.summarize(make_wish(desk)),
        "suggest": lambda: desk.ask(text.get("text", "")[:200], make_wish(desk)),
        "regenerate": lambda: desk.regenerate(make_wish(desk)),
        "stop": desk.stop,
        "from": lambda: desk.choose_chapters(_number(text.get("value")), desk.chapters[1]),
        "to": lambda: desk.choose_chapters(desk.chapters[0], _number(text.get("value"))),
        "limit": lambda: desk.limit(_number(text.get("value"))),
        "fit": lambda: desk.choose("fit", text.get("value", "")),
        "length": lambda: _choose_summary(desk, text.get("value", "")),
    }


def _about_the_app(desk: Desk, text: dict[str, str]) -> dict[str, Callable[[], object]]:
    return {
        "fetch-model": lambda: desk.models.fetch(text.get("name", "")),
        "pause-model": desk.models.pause,
        # not "path": Gradio takes what has one for an upload, and refuses it
        "look-into": lambda: desk.used.look_into(text.get("file", "")),
        "look-elsewhere": desk.used.look_elsewhere,
        "search-below": lambda: desk.used.search_below(text.get("file", "")),
        "forget-folder": lambda: desk.used.forget_folder(text.get("file", "")),
        "dropped-model": lambda: desk.used.dropped(text.get("name", "")[:200], _size(text.get("text"))),
        "place-for": lambda: desk.used.place_for(text.get("name", "")),
        "move-here": lambda: desk.used.move_to(text.get("file", "")),
        "open-dialog": desk.used.open_dialog,
        "stop-copying": desk.used.copies.stop,
        "stop-looking": desk.used.stop_looking,
        "stop-searching": desk.used.stop_searching,
        "done-choosing": desk.used.done_choosing,
        "use-file": lambda: desk.used.file(text.get("file", "")),
        "forget-file": lambda: desk.used.forget(text.get("file", "")),
        "later-model": desk.models.decline,
        "delete-model": lambda: desk.used.delete(text.get("name", "")),
        "use-model": lambda: desk.used.use(text.get("name", "")),
        "dismiss": desk.dismiss,
        "restart": desk.running.restart,
        "cancel-loading": desk.running.cancel_loading,
        "set": lambda: _set(desk, text.get("id", ""), text.get("value", "")[:2000]),
        "tick-folder": lambda: _tick(desk, text.get("value", "")[:2000]),
        "reset": lambda: desk.reset(text.get("id", "")),
        "apply": desk.running.apply,
        "look-kept": desk.storage.look,
        "empty-kept": desk.storage.empty,
        "move-data": lambda: desk.storage.propose(text.get("text", "")[:4000]),
        "begin-move": desk.storage.begin,
        "decline-move": desk.storage.decline,
    }


def _choose_summary(desk: Desk, value: str) -> None:
    """How long a summary is to be, or "own": in the book's own sentences, as long as before."""
    wanted = "own" if value == "own" else "auto"
    if wanted != desk.preferences.settings.summaries:
        desk.choose("summaries", wanted)
    if value != "own":
        desk.choose("summary_length", value)


def _set(desk: Desk, key: str, value: str) -> None:
    """A setting that lets text of books leave this computer says so when it is switched on."""
    before = desk.preferences.settings.mcp
    desk.choose(key, value)
    if desk.preferences.settings.mcp and not before:
        words = _(
            "Assistants on this computer may now ask about every book on the shelf. One that runs in the "
            "cloud gets the passages and answers it asks for: they leave this computer. Settings, mcp, ends "
            "it."
        )
        desk.say(words, "info")


def _tick(desk: Desk, folder: str) -> None:
    chosen = ticked(folder, desk.preferences.settings.mcp_folders)
    desk.choose("mcp_folders", json.dumps(chosen))


def _refusal(limit: str) -> str:
    """Why the page did not take a file: larger than so many MB, or lost on the way."""
    if _number(limit):
        return _("It is larger than the limit of {limit} MB.").format(limit=_number(limit))
    return _("It could not be copied into the app.")


def _size(text: str | None) -> int:
    """Bytes of a file."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else 0


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0
