"""One question as one value: what is asked about which book, and how its answer is generated.

App, wire, worker and session pass it whole. Knows nothing of models; no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from core.config import INSTRUCTIONS_CHARS, RULES, Settings, checked
from core.errors import UserError
from core.text.words import translated as _

if TYPE_CHECKING:
    from core.documents.document import Document

MOST_INSTRUCTIONS = 2 * INSTRUCTIONS_CHARS + 1  # those for all books, and those for one


@dataclass(frozen=True, slots=True)
class Params:
    """How one answer is generated. What is a setting, too, keeps to its rule in core.config: UserError.

    `stop` are texts before which the answer ends. The engine knows no text: whoever calls it turns them into
    `ends` (core.conversation.answering). Draft lengths and budgets are the plan's.
    """

    max_new_tokens: int = 512
    temperature: float = 0.3
    top_p: float = 0.9
    repetition_penalty: float = 1.0
    seed: int = 0
    mode: str = "triforce"
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in PER_QUESTION:
            object.__setattr__(self, name, checked(name, getattr(self, name)))


# the settings that a question carries: no engine is told of them in another way
PER_QUESTION = tuple(one.name for one in fields(Params) if one.name in RULES)


def params_of(settings: Settings) -> dict[str, Any]:
    """What the settings say of an answer, for `Request.params`; what they leave open is left to the model."""
    values = {name: getattr(settings, name) for name in PER_QUESTION}
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """What was asked before and answered; `ids`: the answer's tokens as they were produced, where known;
    `instructions`: those it was asked with.
    """

    question: str
    answer: str
    ids: tuple[int, ...] = ()
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One question, or the wish for a summary (`question` None), about a book, or without one.

    `params`: fields of Params, those of the settings by `params_of`; what is left open is the model's own.
    `history`: what was said before, oldest first. `chapters`: the first and the last that are read;
    `selected_chapters`: these alone are (1-based). `ignore_cache`: read every part again, even when its
    summary is known. `spoiler_limit`: the last chapter that may be read or shown (1-based), as if the book
    ended with it; None: there is no limit. `end`: the same for a place in characters. `summary_length`: one
    of core.config.LENGTHS. `low_priority`: another program asks, and what it reads gives way to what the
    person reads. `instructions`: the person's own, for every answer ("answer in German, briefly"). UserError
    where they are too long. `text`: what stands before the first question of a conversation without a book,
    as it is; the reading of it is kept as a book's. `forbid_truncation`: nothing is answered rather than that
    the oldest of the history is left out. `compare`: the tokens of an answer that was given to this question
    before: they are judged by plain decoding (Stats.verified) beside the answer. `drawn`: how that was, by
    its Finished. `summaries`: one of core.config.SUMMARIES. `again`: another telling is wanted than the one
    that is known.
    """

    question: str | None = None
    book: Document | None = None
    conversation_id: str = ""
    chapters: tuple[int, int] | None = None
    selected_chapters: tuple[int, ...] = ()
    reading_mode: str = "auto"
    params: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[HistoryTurn, ...] = ()
    ignore_cache: bool = False
    spoiler_limit: int | None = None
    end: int | None = None
    summary_length: str = "page"
    summaries: str = "auto"
    again: bool = False
    low_priority: bool = False
    instructions: str = ""
    text: str = ""
    forbid_truncation: bool = False
    compare: tuple[int, ...] = ()
    drawn: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "instructions", self.instructions.strip())
        if len(self.instructions) > MOST_INSTRUCTIONS:
            words = _("Your instructions have {count} characters; up to {most} are read. Make them shorter.")
            raise UserError(words.format(count=len(self.instructions), most=MOST_INSTRUCTIONS))

    @property
    def book_id(self) -> str:
        """The book by name; "" without one."""
        return self.book.sha256 if self.book is not None else ""

    @property
    def text_id(self) -> str:
        """The text by name; "" without one."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest() if self.text else ""
