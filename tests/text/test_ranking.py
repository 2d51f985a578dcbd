"""Questions find their part."""

from __future__ import annotations

import json

import pytest

from core.text.ranking import PartIndex, Ranking, terms

PARTS = [
    "The keeper lit the lamp and wrote in the book.",
    "Nineteen crates came with the boat, and in them magnets.",
    "The inspector asked about the watch of Mr. Crane.",
]


def best(texts: list[str], question: str) -> int:
    scores = PartIndex(texts).scores(question)
    return scores.index(max(scores))


@pytest.mark.parametrize(
    ("question", "part"),
    [("How many crates were there?", 1), ("Who lights the lamps?", 0), ("What did the INSPECTORS want?", 2)],
)
def test_question_finds_its_part(question: str, part: int):
    assert best(PARTS, question) == part


def test_question_about_nothing_in_the_book_scores_nothing():
    assert PartIndex(PARTS).scores("What is it all about?") == [0.0, 0.0, 0.0]


def test_words_meet_across_endings():
    assert set(terms("He carries levers, carrying a lever")) == {"carry", "lever"}


@pytest.mark.parametrize(
    "forms",
    [
        "marry marries married marrying",
        "die dies died dying",
        "rob robs robbed robbing",
        "plan planned",
        "try tried",
        "use used using",
        "glass glasses",
        "add added adding",
        "call called calling",
        "egg eggs",
    ],
)
def test_forms_of_a_word_are_one(forms: str):
    """ "Did she marry?" was answered above a sentence of her birth: "She never married" was another word."""
    assert len(set(terms(forms))) == 1


@pytest.mark.wide
def test_a_fact_in_a_long_part_is_found(shared_data):
    """Counting words over whole parts lets long parts win: questions of the test books must reach the part of
    the answer.
    """
    from core.conversation.reading import ReadingStyle, plan_reading
    from core.documents import read_document

    class Quarter:
        def count(self, text: str) -> int:
            return len(text) // 4

    asked = found = 0
    for book in json.loads((shared_data / "books" / "facts.json").read_text(encoding="utf-8"))["books"]:
        document = read_document(shared_data / "books" / book["file"])
        plan = plan_reading(
            document, Quarter(), context_tokens=8192, style=ReadingStyle(part_tokens=1536, whole_tokens=1536)
        )
        texts = [document.text[part.start : part.end] for part in plan.parts]
        index = PartIndex(texts)
        for fact in book["facts"]:
            asked += 1
            scores = index.scores(fact["question"])
            part = texts[scores.index(max(scores))]
            found += " ".join(fact["evidence"].split()) in " ".join(part.split())
    assert asked >= 10
    assert found / asked >= 0.6


def test_a_word_weighs_less_in_a_long_text():
    """It stands there once among hundreds, by chance; the short one is about it."""
    long, short = "word " * 300 + "lantern", "The lantern burned."
    first, second = Ranking([terms(long), terms(short), terms("Nothing of it.")]).scores(
        "Where is the lantern?"
    )[:2]
    assert 0 < first < second
