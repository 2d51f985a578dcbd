"""The program's own words in an answer follow the page's language; the model's and the book's never do."""

from __future__ import annotations

import re

import pytest

from app.render.markdown import blocks
from app.render.own_words import in_blocks, in_text, sources_said
from app.web.citations import Citations
from app.web.regions import answer_html
from core.text.words import in_language

NOTHING = "The book does not seem to say. Nearest passages:"
REFUSED = f"{NOTHING}\n\nChapter 1, p. 3:\n> Nobody came.\n\nThe Deacon Is Wrong:\n> The keeper lit the lamp."
ANSWERED = [("The keeper.", "target"), ("\n\nChapter 2: Home, p. xi:\n> The keeper lit the lamp.", "")]


def shown(code: str, pieces: list[tuple[str, str]]) -> str:
    """The text of the page."""
    with in_language(code):
        return " ".join(re.sub("<[^>]+>", " ", str(answer_html(pieces))).split())


@pytest.mark.parametrize(
    ("code", "words", "place"),
    [
        ("en", "The book does not seem to say. Nearest passages:", "Chapter 1, p. 3:"),
        ("de", "Das Buch scheint es nicht zu sagen. Am nächsten kommen:", "Kapitel 1, S. 3:"),
        ("zh", "书中似乎没有说。最接近的片段：", "第 1 章，第 3 页："),
    ],
)
def test_a_refusal_is_in_the_pages_language_and_what_it_quotes_is_not(code: str, words: str, place: str):
    said = shown(code, [(REFUSED, "")])
    assert said.startswith(f"{words} {place} Nobody came.")
    assert f"The Deacon Is Wrong{place[-1]} The keeper lit the lamp." in said, "a title is the book's"


def test_places_of_quotations_follow_and_the_models_words_stay():
    assert shown("de", ANSWERED) == "The keeper. Kapitel 2: Home, S. xi: The keeper lit the lamp."
    model = [(NOTHING, "target"), ("\n\nChapter 2:", "target"), ("\n> x", "target")]
    assert shown("de", model) == f"{NOTHING} Chapter 2: x"
    assert shown("de", [("Chapter 2:\n\nThe book ends.", "")]) == "Chapter 2: The book ends."


def test_what_is_copied_and_exported_reads_the_same():
    with in_language("de"):
        told = in_text(REFUSED)
        assert told.splitlines()[:4] == [
            "Das Buch scheint es nicht zu sagen. Am nächsten kommen:",
            "",
            "Kapitel 1, S. 3:",
            "> Nobody came.",
        ]
        assert sources_said(["Chapter 1"]) == "Kapitel 1"
    assert in_text(REFUSED) == REFUSED


def test_no_sign_stands_behind_a_refusal_in_any_language(book):
    """It was known by its words in the page's language, and the answer is kept in English."""
    for code in ("en", "de", "zh"):
        with in_language(code):
            cited = Citations()(REFUSED, book, "Who came?")
        assert not any(one.kind for one in cited.citations), code


def test_blocks_without_words_of_the_program_are_the_same():
    made = blocks([("# One\n\n- a\n- b\n\n> c", "")])
    with in_language("de"):
        assert in_blocks(made) == made
        assert in_blocks(()) == (), "an answer that has not begun"


def test_how_often_somebody_is_named_is_said_in_the_pages_language():
    """A person's name stays, a chapter's number does not, and the sentence of the book is left alone."""
    answer = (
        "Mr. Ansell is named 35 times, in 11 of 12 chapters. Chapter 1, p. 3:\n> He came in March.\n\n"
        "Oddo is named 3 times, in 1 of 1 chapter. February: Crates:\n> Oddo, the ferryman."
    )
    with in_language("de"):
        assert in_text(answer) == (
            "Mr. Ansell wird 35-mal genannt, in 11 von 12 Kapiteln. Kapitel 1, S. 3:\n> He came in March.\n\n"
            "Oddo wird 3-mal genannt, in 1 von 1 Kapitel. February: Crates:\n> Oddo, the ferryman."
        )
