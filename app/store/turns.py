"""Turns of a conversation, and what of them goes to the engine. Knows nothing of where they are kept."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from core.request import HistoryTurn, Request
from core.text.words import Message, in_language, listed_texts, localized, reread
from core.text.words import translated as _

SHORT_CHARS = 120  # of a question that is spoken of


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation about one book (`book_id` is empty without a book). `spoiler_limit`: see Request."""

    id: str
    book_id: str
    title: str
    updated: float
    spoiler_limit: int | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One turn. `state` of an answer: writing | finished | stopped | failed. `extra` is plain JSON (ids,
    pieces, stats). `versions`: (number, text) of an answer's other versions; `version_limits`: the limits
    under which these were given.
    """

    number: int
    role: str  # "user" | "assistant"
    text: str
    state: str
    extra: dict
    versions: tuple[tuple[int, str], ...] = ()
    unstored: str = ""  # why it is not on disk yet
    version_limits: tuple[int | None, ...] = ()


def new_id() -> str:
    """What no conversation is called yet."""
    return uuid.uuid4().hex


def in_short(ask: Request) -> str:
    """The same within a sentence."""
    return wording(ask) if ask.question is None else shorten(ask.question, SHORT_CHARS, placeholder=" …")


def wording(ask: Request) -> str:
    """What stands in a conversation as the question."""
    if ask.question is not None:
        return ask.question
    if ask.selected_chapters:
        return _("Summarise chapters {numbers}").format(numbers=listed_texts(map(str, ask.selected_chapters)))
    if ask.chapters is None:
        return _("Summarise this book")
    first, last = ask.chapters
    if ask.end is not None:
        words = _("Recap of chapters {first} to {last}, as far as I have read")
        if first == last:
            words = _("Recap of chapter {first}, as far as I have read")
        return words.format(first=first, last=last)
    if first == last:
        return _("Summarise chapter {number}").format(number=first)
    return _("Summarise chapters {first} to {last}").format(first=first, last=last)


def numbered_title(title: str, taken: Collection[str]) -> str:
    """The title of a conversation, with a number where others about the book have it: two summaries have."""
    name, number = title, 1
    while str(name) in taken:
        number += 1
        name = _("{title} ({number})").format(title=title, number=number)
    return name


def question_title(text: str, most: int = 60) -> str:
    """A question as the title of a conversation, cut where it is long."""
    line = " ".join(text.split())
    if line == text and len(line) <= most:
        return text  # perhaps a message
    return line if len(line) <= most else line[: most - 3].rstrip() + "…"


def fork_title(question: str) -> str:
    """What a fork is called before anything is asked in it: by the question that it goes on from."""
    return _("Fork of “{title}”").format(title=question_title(question, 48))


def is_fork_title(title: str) -> bool:
    """Whether that is such a name."""
    return isinstance(title, Message) and title.template == "Fork of “{title}”"


def displayed_text(turn: StoredTurn) -> str:
    """Its text as it is read, with what the program says in it in the language at hand: that a summary was
    asked for, or what stands in an answer between the model's words and the book's.
    """
    if turn.role == "user":
        return wording(Request(**asked_again(turn))) if turn.extra.get("summary") else turn.text
    return "".join(localized(text) for text, _level in level_pieces(turn))


def level_pieces(turn: StoredTurn) -> Sequence[tuple[str, str]]:
    """An answer's text and the level of each stretch, in which all stands where `turn.text` has it: marks
    are counted there. As it is shown, what the program says reads in the language at hand.
    """
    pieces = turn.extra.get("level_pieces") or ((turn.text, ""),)
    with in_language("en"):  # as the engine's process says it
        as_written = [(reread(text), level) for text, level in pieces]
    same = "".join(text for text, _level in as_written).strip() == turn.text.strip()
    return as_written if same else pieces


def told_chars(text: str, stands: Sequence[Mapping[str, Any]]) -> int:
    """How much of an answer is told, in characters: of a summary the sentences that are not the book's own.
    `stands`: its `extra["stands"]`.
    """
    told = [one["end"] - one["start"] for one in stands if not one.get("quoted")]
    return sum(told) if stands else len(text.strip())


def choices(ask: Request) -> dict[str, Any]:
    """The choices around a question, as plain JSON: what `asked_again` reads, and under what it was asked."""
    return {
        "summary": ask.question is None,
        "chapters": ask.chapters,
        "selected_chapters": ask.selected_chapters,
        "reading_mode": ask.reading_mode,
        "spoiler_limit": ask.spoiler_limit,
        "end": ask.end,
        "summary_length": ask.summary_length,
        "summaries": ask.summaries,
        "instructions": ask.instructions,
    }


def asked_again(question: StoredTurn) -> dict[str, Any]:
    """A question as it was asked, as fields of Ask: what is read, and how it is told."""
    chapters = question.extra.get("chapters")
    return {
        "question": None if question.extra.get("summary") else question.text,
        "chapters": tuple(chapters) if chapters else None,
        "selected_chapters": tuple(question.extra.get("selected_chapters", ())),
        "end": question.extra.get("end"),
        "reading_mode": question.extra.get("reading_mode", "auto"),
        "summary_length": question.extra.get("summary_length", "page"),
        "summaries": question.extra.get("summaries", "auto"),
    }


def exchanges(turns: Sequence[StoredTurn], spoiler_limit: int | None = None) -> tuple[HistoryTurn, ...]:
    """What was said, for the engine, see `going_on`; what was told in place of older turns comes first."""
    _since, told = since(turns, spoiler_limit)
    before = (HistoryTurn(retelling(), told),) if told else ()
    return before + tuple(
        HistoryTurn(
            question.text,
            answer.text,
            tuple(answer.extra.get("ids", ())),
            turn_instructions(question, answer),
        )
        for question, answer in going_on(turns, spoiler_limit)
    )


def going_on(
    turns: Sequence[StoredTurn], spoiler_limit: int | None = None
) -> list[tuple[StoredTurn, StoredTurn]]:
    """The questions and answers that go on: a question whose answer failed or never began would confuse the
    next, one answered from what lies behind the limit would tell it, and the oldest may have been left out.
    """
    first, _told = since(turns, spoiler_limit)
    return [
        (question, answer)
        for question, answer in zip(turns[::2], turns[1::2], strict=False)
        if question.number >= first
        and answer.state != "failed"
        and answer.text
        and within(answered_limit(question, answer), spoiler_limit)
    ]


def since(turns: Sequence[StoredTurn], spoiler_limit: int | None = None) -> tuple[int, str]:
    """The number of the first turn that still goes to the engine, and what is told in place of those before;
    the newest question at which the person chose so says it. What was told from behind the limit is not told.
    """
    for turn in reversed(turns):
        if turn.extra.get("since"):
            known = within(turn.extra.get("spoiler_limit"), spoiler_limit)
            return turn.extra["since"], turn.extra.get("told", "") if known else ""
    return 0, ""


def retelling() -> str:
    """What stands as the question before a summary of what was left out."""
    return _("What have we said so far?")


def answered_limit(question: StoredTurn | None, answer: StoredTurn) -> int | None:
    """The limit under which an answer was given. One made anew may have another than its question had."""
    extra = answer.extra if question is None or "spoiler_limit" in answer.extra else question.extra
    return extra.get("spoiler_limit")


def turn_instructions(question: StoredTurn | None, answer: StoredTurn) -> str:
    """The instructions that an answer was given with; made anew, it may have others than its question had."""
    extra = answer.extra if question is None or "instructions" in answer.extra else question.extra
    return extra.get("instructions", "")


def told_behind(question: StoredTurn | None, answer: StoredTurn, spoiler_limit: int | None) -> bool:
    """Whether an answer may tell what lies behind the limit: it was given with more of the book, and not from
    chosen chapters before it alone.
    """
    if spoiler_limit is None or answer.role != "assistant" or not (answer.text or answer.extra.get("parts")):
        return False
    extra = question.extra if question else {}
    chosen = extra.get("selected_chapters") or extra.get("chapters")
    last = max(chosen) if chosen else None
    return not within(answered_limit(question, answer), spoiler_limit) and not within(last, spoiler_limit)


def within(answered: int | None, spoiler_limit: int | None) -> bool:
    """Whether what was answered under one limit tells nothing from behind the other."""
    return spoiler_limit is None or (answered is not None and answered <= spoiler_limit)
