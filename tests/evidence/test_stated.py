"""What a number counts, and whether a sentence states what is asked for."""

from __future__ import annotations

import pytest

from core.evidence.stated import counts_other, states

LENS = "The new lens came from Paris and weighed four tons. It had 1,008 prisms; two of these were chipped."
FIRST = "The light was first shown on the night of 1 November 1811. The oil came later."


@pytest.mark.parametrize("said", ["Four.", "four", "Four prisms."])
def test_number_of_something_else_is_told(said: str):
    """ "Four." stood there with a green mark, above the sentence that gives the number of prisms."""
    assert counts_other(said, "How many prisms had the new lens?", LENS)


LOOKED = "I was nineteen in 1887, and I have been looking for it for {}."


@pytest.mark.parametrize(
    ("said", "text", "other"),
    [
        ("Twenty-four years old.", LOOKED.format("twenty-four years"), True),
        ("24.", LOOKED.format("24 years"), True),
        ("Nineteen.", LOOKED.format("24 years"), False),
        ("Twenty-four.", "She was twenty-four years old.", False),
        ("Twenty-four.", "She was a twenty-four-year-old nurse.", False),
        ("24.", "He died aged 24 years and a day.", False),
        ("24.", "He waited 24 years, and was 24 when he came.", False),
    ],
)
def test_how_long_something_took_is_no_age(said: str, text: str, other: bool):
    """ "Twenty-four years old." had a mark, above "I have been looking for it for twenty-four years"."""
    assert counts_other(said, "How old was he when the house burned?", text) is other


@pytest.mark.parametrize(
    ("said", "question", "text"),
    [
        ("1,008.", "How many prisms had the new lens?", LENS),
        ("Two.", "How many prisms were chipped?", LENS),  # "two of these": whose cannot be told
        ("Four.", "How much did the lens weigh?", LENS),
        ("Four.", "How many tons did it weigh?", LENS),
        ("Nine.", "How many people were aboard?", "Nine sailors were aboard."),
        ("Seven.", "How many brothers and sisters had he?", "He had seven sisters."),
        (
            "Four.",
            "How many glass prisms were there?",
            "Four large prisms hung there; four men carried them.",
        ),
        ("Many.", "How many prisms had the new lens?", LENS),
        ("Four.", "How many of these were there?", LENS),
        ("four", "How many prisms had it?", "It had twenty-four, and four."),
    ],
)
def test_number_that_may_be_meant_is_not(said: str, question: str, text: str):
    assert not counts_other(said, question, text)


@pytest.mark.parametrize(
    ("said", "question", "text"),
    [
        ("On the night of 1 November 1811.", "When was the light first shown?", FIRST),
        ("1,008.", "How many prisms had the new lens?", "The new lens had 1,008 prisms."),
    ],
)
def test_sentence_with_all_words_of_question_and_answer_states_it(said: str, question: str, text: str):
    """A circle stood behind what the book says in these very words."""
    assert states(said, question, text)


@pytest.mark.parametrize(
    ("said", "question", "text"),
    [
        ("In 1812.", "When was the light first shown?", FIRST),
        (
            "In 1811.",
            "When was the light shown?",
            "In 1811 the light was shown, and again in 1840.",
        ),  # two words
        (
            "In 1811.",
            "When was the great light first shown?",
            "In 1811 and 1840 the great light was first shown.",
        ),
        ("On the night of 1 November 1811.", "When was the light not first shown?", FIRST),
        ("Four.", "How many prisms had the new lens?", "The new lens had 1,008 prisms and four doors."),
        ("Merrow.", "Who first showed the great light?", "Merrow first showed the great light."),
        ("November.", "When was the light first shown?", "The light was first shown. It was November."),
    ],
)
def test_words_alone_do_not_state_it(said: str, question: str, text: str):
    assert not states(said, question, text)
