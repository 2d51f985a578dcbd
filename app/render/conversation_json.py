"""A conversation as JSON, to take to another computer and bring in again.

What is brought in may come from anybody: every value is checked, and what the engine would believe unseen
(token ids, levels, places in the book) is not taken. Doubts are: nobody gains by one that is made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from app.render.carried_messages import said_in, text_in_pieces, with_messages
from app.render.export import ConversationFile, Noted
from app.store.notebook import NOTE_CHARS, WORDS_CHARS, Bookmark
from app.store.turns import StoredTurn
from core.config import LENGTHS, READING_MODES
from core.errors import UserError
from core.request import MOST_INSTRUCTIONS
from core.text.packing import packed
from core.text.renamed import renamed
from core.text.words import size
from core.text.words import translated as _

FORMAT = "triforce-chat conversation"
VERSION = 1
MOST_BYTES, MOST_TURNS, MOST_CHARS, MOST_LINES = 20_000_000, 2000, 500_000, 200
MOST_NOTES, MOST_OFFSET = 5000, 1 << 31
# what reading another form ends in; OverflowError: 1e999 as a number of a chapter
_NOT_OURS = (OSError, ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError)
STATES = ("finished", "stopped", "failed")
_LINES = ("sources", "notes", "reason", "error")  # beside an answer, where the program's words are messages
_ITEM = re.compile(r"^  (?=\{)", re.M)  # where a turn or a note begins, as `as_json` sets them

_Turn = tuple[str, str, str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    """A conversation out of a file: (role, text, state, extra) of each turn, in order, the bookmarks of its
    book, and how far that may be read in it. `damaged`: the file held more.
    """

    book_id: str
    book_title: str
    title: str
    turns: tuple[_Turn, ...]
    bookmarks: tuple[Bookmark, ...] = ()
    spoiler_limit: int | None = None
    damaged: bool = False


def as_json(talk: ConversationFile) -> str:
    """The conversation with the choices around its questions, and the book's bookmarks and notes."""
    book = talk.book
    known = {"title": book.title, "author": book.author, "sha256": book.sha256} if book else {}
    whole = {"format": FORMAT, "version": VERSION, "book": known, "title": talk.title, "made": talk.made}
    whole |= {"title_said": packed(talk.title), "spoiler_limit": talk.spoiler_limit}
    whole["turns"] = _written(talk.turns)
    whole["notes"] = [_noted(one, noted) for one, noted in zip(talk.bookmarks, talk.notes, strict=True)]
    return json.dumps(whole, ensure_ascii=False, indent=1)


def brought(path: Path) -> ImportedConversation:
    """The conversation in a file; of one that is damaged or cut short, the questions that can be read with
    their answers. Raises UserError where there is none.
    """
    text = ""
    try:
        if (amount := path.stat().st_size) > MOST_BYTES:
            raise _too_large(amount)
        content = path.read_bytes()
        text = content.decode("utf-8-sig", "replace")
        content.decode()
        return _whole(json.loads(text))
    except _NOT_OURS as error:
        if f'"{FORMAT}"' not in text and not text.startswith('{\n "format": '):
            words = _(
                "That file is no conversation of TriForce Chat. Choose a JSON file that Export has made."
            )
            raise UserError(words) from error
    try:
        return _rest(text)
    except _NOT_OURS as error:
        raise UserError(_("That file is damaged: nothing of it can be read. Export it anew.")) from error


def _too_large(amount: int) -> UserError:
    words = _(
        "That file has {amount}, over the limit of {limit} for a conversation. Where it comes from, fork it "
        "at an earlier answer and export that."
    )
    return UserError(words.format(amount=size(amount), limit=size(MOST_BYTES)))


def _whole(given: dict[str, Any]) -> ImportedConversation:
    if given["format"] != FORMAT:
        raise ValueError("another format")
    version = given["version"]
    if isinstance(version, int) and version > VERSION:
        raise UserError(_("That conversation was saved by a newer version. Update this one to open it."))
    book, turns, notes = given["book"], _turns(given["turns"]), _bookmarks(given.get("notes", []))
    title = with_messages(_line(given["title"]), given.get("title_said"))
    names = (_line(book["sha256"]), _line(book["title"]), title)
    spoiler_limit = _limit(given.get("spoiler_limit", _last_limit(turns)))
    return ImportedConversation(*names, turns, notes, spoiler_limit)


def _rest(text: str) -> ImportedConversation:
    """What can be read of a damaged file, a line or an item at a time."""
    items = [_item(one) for one in _ITEM.split(text)[1:]]
    turns = _readable(_turns, pairwise(items), MOST_TURNS)
    bookmarks = _readable(_bookmarks, ([one] for one in items), MOST_NOTES)
    names = [_said_in(text, begins) for begins in ('  "sha256": ', '  "title": ', ' "title": ')]
    if not turns or not names[0]:
        raise ValueError("no question with its answer, or no book")
    return ImportedConversation(*names, turns, bookmarks, _last_limit(turns), damaged=True)


def _item(text: str) -> Any:
    """A turn or a note from where it begins; None where it does not end, or is none."""
    with suppress(*_NOT_OURS):
        return json.loads(text.partition("\n  }")[0] + "}")
    return None


def _readable(
    read: Callable[[Sequence[Any]], tuple[Any, ...]], given: Iterable[Sequence[Any]], most: int
) -> tuple[Any, ...]:
    found: list[Any] = []
    for one in given:
        with suppress(*_NOT_OURS):
            found += read(one)
    return tuple(found[:most])


def _said_in(text: str, begins: str) -> str:
    """The text in the first line that begins so; empty where none can be read."""
    found = re.search(rf"^{re.escape(begins)}(\".*\"),?$", text, re.M)
    with suppress(*_NOT_OURS):
        return _line(json.loads(found[1] if found else '""'))
    return ""


def same(made: ImportedConversation, turns: Iterable[StoredTurn]) -> bool:
    """Whether these turns say what those of the file say. What is told beside an answer is in the language
    that the file was written in.
    """
    try:
        here = _turns(_written(turns))
    except _NOT_OURS:
        return False
    return _said(here) == _said(made.turns)


def _said(turns: Sequence[_Turn]) -> list[tuple]:
    return [(*said, extra if said[0] == "user" else None) for *said, extra in turns]


def _written(turns: Iterable[StoredTurn]) -> list[dict[str, Any]]:
    return [
        {
            "role": one.role,
            "text": one.text,
            "state": one.state,
            "extra": _carried(one.role, one.extra),
            "said": said_in(one.extra, _LINES),
        }
        for one in turns
        if one.state != "writing"
    ]


def _noted(one: Bookmark, noted: Noted) -> dict[str, Any]:
    place = {"place": noted[1], "offset": one.offset, "length": one.length}
    return {"words": one.words, "note": one.note, **place}


def _bookmarks(given: Any) -> tuple[Bookmark, ...]:
    """Where their words stand is looked for: a place alone is not believed."""
    found = []
    for one in given[:MOST_NOTES]:
        words, note = _text(one["words"])[:WORDS_CHARS], _text(one["note"])[:NOTE_CHARS]
        offset, length = one.get("offset", 0), one.get("length", len(words))
        if not all(type(place) is int and 0 <= place <= MOST_OFFSET for place in (offset, length)):
            raise ValueError("a place")
        if words:
            found.append(Bookmark(offset, max(length, len(words)), words, note))
    return tuple(found)


def _turns(given: Any) -> tuple[_Turn, ...]:
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= MOST_TURNS or len(given) % 2:
        raise ValueError("turns")
    found = []
    for at, one in enumerate(given):
        role = ("user", "assistant")[at % 2]
        if one["role"] != role or one["state"] not in STATES:
            raise ValueError("turn")
        text = _text(one["text"])[:MOST_CHARS]
        extra = _in_any_language(text, _carried(role, one["extra"]), one.get("said"))
        found.append((role, text, one["state"], extra))
    return tuple(found)


def _in_any_language(text: str, extra: dict[str, Any], said: Any) -> dict[str, Any]:
    """A turn's extra with the messages that its lines and its text were."""
    if not isinstance(said, dict) or not said:
        return extra
    told = {name: with_messages(extra[name], said.get(name)) for name in _LINES if extra.get(name)}
    if pieces := text_in_pieces(text, said.get("pieces")):
        told["level_pieces"] = pieces
    return extra | told


def _last_limit(turns: Sequence[_Turn]) -> int | None:
    """How far the book could be read at the last question: earlier files say no more."""
    (*_question, asked), (*_answer, told) = turns[-2:]
    return told.get("spoiler_limit", asked.get("spoiler_limit"))


def _limit(given: Any) -> int | None:
    return None if given is None else max(1, min(int(given), MOST_OFFSET))


def _carried(role: str, given: dict[str, Any]) -> dict[str, Any]:
    """What of a turn's extra goes along. Raises ValueError or TypeError for another type than it has."""
    extra = renamed(given)
    if role == "user":
        kept: dict[str, Any] = {"summary": extra.get("summary") is True}
        mode = extra.get("reading_mode")
        kept["reading_mode"] = mode if mode in READING_MODES else "auto"
        length = extra.get("summary_length")
        kept["summary_length"] = length if length in LENGTHS else "page"
        kept["summaries"] = "own" if extra.get("summaries") == "own" else "auto"
        if extra.get("instructions"):
            kept["instructions"] = _text(extra["instructions"])[:MOST_INSTRUCTIONS].strip()
        if extra.get("chapters"):
            kept["chapters"] = _chapters(extra["chapters"])
        if extra.get("selected_chapters"):
            kept["selected_chapters"] = _selected(extra["selected_chapters"])
    else:
        kept = {
            name: [_line(one) for one in extra.get(name) or ()][:MOST_LINES] for name in ("sources", "notes")
        }
        kept["reason"] = _line(extra.get("reason") or "")
        kept["model"] = _line(extra.get("model") or "")
        if doubts := [_doubt(one) for one in extra.get("stands") or () if one.get("borne_out") is False]:
            kept["stands"] = doubts[:MOST_LINES]
        if extra.get("error"):
            kept["error"] = _line(extra["error"])
    if (spoiler_limit := _limit(extra.get("spoiler_limit"))) is not None:
        kept["spoiler_limit"] = spoiler_limit
    return kept


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    value.encode()  # half a character, which JSON can hold, cannot be stored: UnicodeEncodeError
    return value


def _doubt(given: dict[str, Any]) -> dict[str, Any]:
    """That a sentence is not borne out by the place nearest to it (core.events.SourceSpan)."""
    places = {name: max(0, int(given[name])) for name in ("start", "end", "book_start", "book_end")}
    return {**places, "quoted": False, "borne_out": False}


def _chapters(given: Any) -> list[int]:
    if not isinstance(given, list):
        raise ValueError("chapters")
    first, last = map(int, given)
    return [max(1, first), max(1, last)]


def _selected(given: Any) -> list[int]:
    if not isinstance(given, list) or not all(isinstance(one, int) for one in given):
        raise ValueError("selected_chapters")
    return sorted({max(1, one) for one in given[:MOST_LINES]})


def _lines(given: Any) -> list[str]:
    if not isinstance(given, list):
        raise ValueError("lines")
    return [_line(one) for one in given[:MOST_LINES]]


def _line(value: Any) -> str:
    return " ".join(_text(value).split())[:2000]
