"""What a question brings with it: its wording, parameters and turns, and what a conversation remembers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.conversation.answer_language import in_its_language
from core.conversation.books import LruCache
from core.conversation.reading import ReadingPart, ReadingStyle
from core.request import Params, Request
from core.text.prompt import PromptTurn
from core.text.tokenizer import Tokenizer
from core.text.words import translated as _

_CONVERSATIONS = 64  # whose memories are kept
_QUESTIONS = 256  # of each


@dataclass(slots=True)
class ConversationMemory:
    """What a conversation leaves behind in this process. Losing it costs time, never content."""

    # (question, None for a summary; answer ids) -> question ids, of the newest answers
    questions: dict[tuple[str | None, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    # the part the last answer was about
    part: ReadingPart | None = None
    # by turn, so that "again" differs
    attempts: Counter[int] = field(default_factory=Counter)

    def asked(self, ask: Request, question: Sequence[int], answer: tuple[int, ...]) -> None:
        """The answer is to `ask`, whose question has these ids: a later turn repeats both."""
        self.questions.pop((ask.question, answer), None)
        self.questions[ask.question, answer] = tuple(question)
        while len(self.questions) > _QUESTIONS:
            del self.questions[next(iter(self.questions))]


@dataclass(frozen=True, slots=True)
class AnswerRun:
    """One question on its way: how its answer is generated, and whether somebody wants it to end."""

    ask: Request
    params: Params
    should_stop: Callable[[], bool]


class ConversationMemories:
    """The memories of all conversations, and what follows from them for the next answer."""

    def __init__(self, tokenizer: Tokenizer, style: ReadingStyle) -> None:
        self._tokenizer, self._style = tokenizer, style
        self._memories: LruCache[ConversationMemory] = LruCache(_CONVERSATIONS)

    def memory(self, ask: Request) -> ConversationMemory:
        """What the conversation of `ask` remembers."""
        return self._memories.get(ask.conversation_id, ConversationMemory)

    def forget(self, conversation_id: str) -> None:
        """Drop what is remembered about a conversation."""
        self._memories.drop(lambda key: key == conversation_id)

    def turns(self, ask: Request) -> list[PromptTurn]:
        """The history as ids: answers as they were produced, questions as they were asked."""
        known, encode = self.memory(ask).questions, self._tokenizer.encode
        turns = []
        for said in ask.history:
            ids = said.ids or tuple(encode(said.answer))
            plain = ask.book is None
            words = said.question if plain else asked_of_text(self._style, said.question)
            words = with_instructions(words, said.instructions)
            # two questions may have one answer, "Yes."
            question = known.get((said.question, ids)) or known.get((None, ids)) or tuple(encode(words))
            turns.append(PromptTurn(question, ids))
        return [turn for turn in turns if turn.answer]

    def params(self, ask: Request) -> Params:
        """Settings of the answer: those that came with the question, else as suits the model. Without a seed
        each attempt has its own.
        """
        style = {name: getattr(self._style, name) for name in ("temperature", "top_p", "repetition_penalty")}
        given = {**style, **_told(ask.params)}
        turn = len(ask.history)
        if given.get("seed") is None:
            attempts = self.memory(ask).attempts
            given["seed"] = _seed(ask.conversation_id, turn, attempts[turn])
            attempts[turn] += 1
        return Params(**given)

    def likeliest(self, ask: Request) -> bool:
        """Whether it was asked for to take the likeliest token always."""
        return ask.params.get("temperature") == 0

    def passage_params(self, ask: Request, params: Params) -> Params:
        """`params` for a few words from one passage. What keeps a model from circling in long texts, its own
        penalty on repeating, would keep it from the passage's words: it counts where it was asked for.
        """
        given = _told(ask.params)
        return replace(
            params,
            max_new_tokens=min(params.max_new_tokens, self._style.note_tokens),
            repetition_penalty=given.get("repetition_penalty", 1.0),
            # a refusal is known by its first words
            stop=(*params.stop, self._style.refusal.rsplit(" ", 1)[0]),
        )

    def note_params(self, ask: Request, number: int) -> Params:
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


def part_key(ask: Request, part: ReadingPart) -> tuple:
    """What the context of a part is kept under."""
    return ask.book_id, part.start, part.end


def notes_key(ask: Request) -> tuple:
    """What the context of summaries is kept under."""
    return ask.book_id, "notes"


def asked(style: ReadingStyle, question: str) -> str:
    """A question as the model gets it."""
    return style.answer_prompt.replace("{question}", in_its_language(style, question))


def asked_of_text(style: ReadingStyle, question: str) -> str:
    """A question about the book's own words: only from them can a model quote, not from summaries."""
    return quoting(style, asked(style, question))


def asked_of_passage(style: ReadingStyle, question: str) -> str:
    """A question about one passage, which stands before it with a blank line between."""
    return style.passage_prompt.replace("{question}", in_its_language(style, question))


def with_instructions(prompt: str, instructions: str) -> str:
    """`prompt` with the person's own instructions behind it. They never stand before the book: what was read
    of it serves whatever they are.
    """
    return f"{prompt}\n\n{instructions}" if instructions else prompt


def told_of(style: ReadingStyle, sentence: str) -> str:
    """What a model is asked behind a part of a book whose `sentence` it tells."""
    return style.sentence_prompt.replace("{sentence}", sentence)


def not_followed() -> str:
    """What is told where the model got no instructions of the person's."""
    return _(
        "Your own instructions were not used here: what this model says is only known to keep to the book in "
        "the wording it was tested with."
    )


def quoting(style: ReadingStyle, prompt: str) -> str:
    """`prompt` with the wish for quotations, where the model can quote."""
    return f"{prompt}\n{style.quote_prompt}" if style.quote_prompt else prompt


def _told(params: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was left to the program: None."""
    return {name: value for name, value in params.items() if value is not None}


def _seed(name: str, turn: int, attempt: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{name}/{turn}/{attempt}".encode()).digest()[:6], "big")
