"""The layout of a conversation: everything said stays a prefix."""

from __future__ import annotations

import pytest

from core.text.prompt import PromptTurn, build_prompt
from core.text.tokenizer import Frame

FRAME = Frame(opening=(1, 50), ask=(2,), bridge=(3, 4))
BOOK = list(range(100, 140))


def test_next_turn_continues_the_last_prompt_and_answer():
    """A follow-up must feed only what is new: prompt + answer is a prefix of the next prompt."""
    first = build_prompt(FRAME, BOOK, (), [60, 61], room=1000)
    answered = [*first.ids, 70, 71, 72]
    second = build_prompt(FRAME, BOOK, [PromptTurn((60, 61), (70, 71, 72))], [62], room=1000)
    assert second.ids[: len(answered)] == answered
    assert second.ids[len(answered) :] == [3, 4, 62, 2]


def test_conversations_about_a_book_share_system_and_book():
    one, other = (build_prompt(FRAME, BOOK, (), [question], room=1000) for question in (60, 61))
    assert one.head_tokens == other.head_tokens == 2 + len(BOOK)
    assert one.ids[: one.head_tokens] == other.ids[: other.head_tokens]


def test_oldest_turns_go_first_and_are_counted():
    turns = [PromptTurn((60 + i,), (80 + i,) * 10) for i in range(5)]
    prompt = build_prompt(FRAME, BOOK, turns, [99], room=2 + 40 + 2 * 14 + 2)
    assert prompt.dropped_turns == 3
    assert 63 in prompt.ids and 62 not in prompt.ids
    assert prompt.ids[:42] == [1, 50, *BOOK]


def test_text_that_does_not_fit_at_all_is_an_error():
    with pytest.raises(ValueError, match="45 tokens, 44 are free"):
        build_prompt(FRAME, BOOK, [PromptTurn((1,), (2,))], [60, 61], room=44)
