"""What counts as an answer to a question, before it is held against its passage."""

from __future__ import annotations

import pytest

from core.conversation.answer_validation import is_answer, is_refusal

PASSAGE = "The inn was The Spouter, kept by Peter Coffin. Al, a boy of twelve, swept it. Hope was small."


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ("The passage does not say.", True),
        (" The text doesn't mention him.\nThe Spouter.", True),
        ("Her name is not given.", True),
        ("The Spouter.\nThe text does not say more.", False),
        ("He did not say.", False),
    ],
)
def test_a_refusal_is_known_in_words_of_the_models_own(said: str, refusal: bool):
    assert is_refusal(said) == refusal
    assert not (refusal and is_answer(said, "Where was it?", PASSAGE))


@pytest.mark.parametrize(
    ("question", "said", "counts"),
    [
        ("What is the name of the inn?", "The Spouter.", True),
        ("What is the name of the inn?", "Peter Coffin.", True),  # a name, if not the right one
        ("What is the name of the inn?", "A small house.", False),
        ("What is the name of the inn?", "The house.", False),
        ("What is the name of the inn?", "The Try Pots.", False),  # not of this passage
        ("What is the keeper's real name?", "a keen man", False),
        ("What was his name?", "Al.", True),
        ("What was the boy called?", "Al.", True),
        ("What was the boy called?", "Swept.", False),
        ("What was the boy called?", "Small.", False),
        ("By what wrong name does he go?", "a lad", False),
        ("What do they call the keeper?", "Coffin", True),
        ("What do they call the keeper?", "a keen man", False),
        ("What was the boy called for?", "To sweep.", True),
        ("What did he call out?", "swept well", True),
        ("Why was the doctor called?", "a fever", True),
        ("How many boys were there?", "A lad.", True),
        ("How many boys were there?", "Small.", False),
        ("How many boys were there?", "Twenty-one.", True),
        ("How old was Al?", "12", True),
        ("How old was Al?", "fourteen", True),
        ("How old was Al?", "Peter Coffin.", False),
        ("How long did he stay?", "Until winter.", True),
        ("Where is the ship?", "The ship.", False),
        ("Did he sweep or sing?", "Sing.", True),
        ("Where is it?", "  ", False),
    ],
)
def test_an_answer_is_of_the_kind_that_was_asked_for(question: str, said: str, counts: bool):
    assert is_answer(said, question, PASSAGE) == counts
