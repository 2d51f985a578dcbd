"""What every way of answering works with, in one place: a session makes it once and hands it to each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.conversation.asking import ConversationMemories
from core.conversation.books import BookCache
from core.conversation.reading import ReadingStyle
from core.conversation.summary import Summarizer
from core.conversation.time_estimates import TimeEstimate
from core.conversation.turns import Turns
from core.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Services:
    """`room_tokens(n)`: what a context holds of a text beside the instructions and an answer of n tokens."""

    turns: Turns
    tokenizer: Tokenizer
    style: ReadingStyle
    books: BookCache
    conversations: ConversationMemories
    summarizer: Summarizer
    expectation: TimeEstimate
    room_tokens: Callable[[int], int]


class Responder:
    """A way of answering: it has the services as attributes of its own."""

    def __init__(self, services: Services) -> None:
        self._turns, self._tokenizer, self._style = services.turns, services.tokenizer, services.style
        self._books, self._conversations = services.books, services.conversations
        self._summarizer, self._expectation = services.summarizer, services.expectation
        self._room_tokens = services.room_tokens
