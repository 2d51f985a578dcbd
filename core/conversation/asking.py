"""What a question brings with it: its wording, its settings, the turns before it, and what a conversation
remembers of them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from core.conversation.reading import Part, ReadingStyle
from core.documents.document import Document
from core.engine import Params
from core.text.prompt import Turn
from core.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Ask:
    """One question about a book, or the wish for a summary (`question` None). `history`: the turns before it,
    oldest first.
    """

    book: Document | None
    book_id: str
    conversation_id: str
    question: str | None
    chapters: tuple[int, int] | None = None
    fit: str = "auto"
    params: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    fresh: bool = False  # read every part again, even when its summary is known


@dataclass(slots=True)
class Memory:
    """What a conversation leaves behind in this process. Losing it costs time, never content."""

    # answer ids -> question ids
    questions: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    # the part the last answer was about
    part: Part | None = None
    # by turn, so that "again" differs
    attempts: Counter[int] = field(default_factory=Counter)


class Conversations:
    """The memories of all conversations, and what follows from them for the next answer. `defaults`:
    settings, None where left open.
    """

    def __init__(self, tokenizer: Tokenizer, style: ReadingStyle, defaults: Mapping[str, Any]) -> None:
        self._tokenizer, self._style, self._defaults = tokenizer, style, dict(defaults)
        self._memories: dict[str, Memory] = {}

    def memory(self, ask: Ask) -> Memory:
        """What the conversation of `ask` remembers."""
        return self._memories.setdefault(ask.conversation_id, Memory())

    def forget(self, conversation_id: str) -> None:
        """Drop what is remembered about a conversation."""
        self._memories.pop(conversation_id, None)

    def turns(self, ask: Ask) -> list[Turn]:
        """The history as ids: answers as they were produced, questions as they were asked."""
        turns, question = [], None
        for entry in ask.history:
            if entry["role"] == "user":
                question = entry
            elif question is not None:
                ids = tuple(entry.get("ids") or self._tokenizer.encode(entry.get("text", "")))
                known = self.memory(ask).questions.get(ids)
                turns.append(
                    Turn(
                        known or tuple(self._tokenizer.encode(asked_of_text(self._style, question["text"]))),
                        ids,
                    )
                )
                question = None
        return [turn for turn in turns if turn.answer]

    def params(self, ask: Ask) -> Params:
        """Settings of the answer: asked for, else configured, else as suits the model. Without a seed each
        attempt has its own.
        """
        names = {one.name for one in fields(Params)}
        style = {name: getattr(self._style, name) for name in ("temperature", "top_p", "repetition_penalty")}
        given = {**style, **_told(self._defaults), **_told(ask.params)}
        unknown = set(given) - names
        assert not unknown, f"unknown parameters {sorted(unknown)}"
        turn = len(ask.history)
        if given.get("seed") is None:
            attempts = self.memory(ask).attempts
            given["seed"] = _seed(ask.conversation_id, turn, attempts[turn])
            attempts[turn] += 1
        return Params(**{**given, "stop": tuple(given.get("stop", ()))})

    def note_params(self, ask: Ask, number: int) -> Params:
        """Settings of the summary of one part: the model's own, and the same each time, since it is kept for
        the book.
        """
        style = self._style
        given = self.params(replace(ask, params={**ask.params, "seed": _seed(ask.book_id, number, 0)}))
        return replace(
            given,
            max_new_tokens=style.note_tokens,
            temperature=style.temperature,
            top_p=style.top_p,
            repetition_penalty=style.repetition_penalty,
            stop=(),
        )


def asked(style: ReadingStyle, question: str) -> str:
    """A question as the model gets it."""
    return style.answer_prompt.replace("{question}", question.strip())


def asked_of_text(style: ReadingStyle, question: str) -> str:
    """A question with the book's own words before the model: only from them can it quote, not from
    summaries.
    """
    return quoting(style, asked(style, question))


def quoting(style: ReadingStyle, prompt: str) -> str:
    """`prompt` with the wish for quotations, where the model can quote."""
    return f"{prompt}\n{style.quote_prompt}" if style.quote_prompt else prompt


def _told(params: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was left to the program: None."""
    return {name: value for name, value in params.items() if value is not None}


def _seed(name: str, turn: int, attempt: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{turn}/{attempt}".encode()).digest()[:6], "big")
