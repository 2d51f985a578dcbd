"""Lays a conversation about a book out as token ids, so that everything said earlier stays a prefix of what
is said later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.text.tokenizer import Frame


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One question and its answer as ids: the text's alone, and exactly what the model produced."""

    question: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PackedPrompt:
    """All ids before the answer; the first `head_tokens` are the same whatever is asked about this text."""

    ids: list[int]
    head_tokens: int
    dropped_turns: int = 0  # the oldest turns, left out because they no longer fit


def build_prompt(
    frame: Frame, head: Sequence[int], turns: Sequence[PromptTurn], question: Sequence[int], *, room: int
) -> PackedPrompt:
    """System text, then `head` (the book), then the turns, then the question, in at most `room` ids.

    When they do not fit, the oldest turns go first and `dropped_turns` says how many. Raises ValueError when
    the head and the question alone are too long: the caller chooses what to read.
    """
    start = [*frame.opening, *head]
    for dropped in range(len(turns) + 1):
        ids = [*start, *_conversation(frame, turns[dropped:], question)]
        if len(ids) <= room:
            return PackedPrompt(ids, len(start), dropped)
    raise ValueError(f"the text and the question take {len(ids)} tokens, {room} are free")


def _conversation(frame: Frame, turns: Sequence[PromptTurn], question: Sequence[int]) -> list[int]:
    ids: list[int] = []
    for turn in turns:
        ids += [*turn.question, *frame.ask, *turn.answer, *frame.bridge]
    return [*ids, *question, *frame.ask]
