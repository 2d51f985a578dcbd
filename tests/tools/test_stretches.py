"""Stretches of a book for questions of their own."""

from __future__ import annotations

from core.evidence.passages import book_passages
from tests.support.ferry import FACTS, QUESTION, told
from tools.embedded_reader.candidates import shard
from tools.embedded_reader.stretches import book_stretches, stretch_text

BOOK = told((FACTS[0], *["Nothing came to pass."] * 20, "The silver key is not here."))


def test_a_stretch_holds_the_answer_or_none_of_it():
    """A question put to a stretch without its answer must not count as answerable."""
    asked = [{"question": QUESTION, "keywords": ["third plank"]} for _ in range(8)]
    found = list(book_stretches("b", BOOK, asked))
    texts = [BOOK.text[one.start : one.end] for one in found]
    assert [one.keywords is not None for one in found] == ["third plank" in text for text in texts]
    assert [one.keywords is not None for one in found] == [True, True, True, False] * 2
    assert found == list(book_stretches("b", BOOK, asked)), "the same each time"


def test_where_the_book_does_not_say_no_stretch_does():
    (one,) = book_stretches("b", BOOK, [{"question": QUESTION, "keywords": None}])
    assert one.keywords is None


def test_a_stretch_is_a_short_text_of_its_own():
    (one,) = book_stretches("b", BOOK, [{"question": QUESTION, "keywords": ["third plank"]}])
    text = stretch_text(BOOK, (one.start, one.end))
    assert text.text == BOOK.text[one.start : one.end] and text.sha256 != BOOK.sha256
    assert 5 <= len(book_passages(text)) <= 8


def test_the_parts_of_a_recipe_are_all_of_it_in_order():
    """Each process of several asks its part; one after the other they must be what one alone asks."""
    cases = list(range(11))
    assert [case for part in range(4) for case in shard(cases, part, 4)] == cases
    assert {len(shard(cases, part, 4)) for part in range(4)} == {2, 3}
