"""How long an answer about a book takes: what is timed, and of how much of the book."""

from __future__ import annotations

from benchmarks.speed.answer_time import answer_table, answer_time, first_chapters
from core.documents.word_count import count_words
from tests.support.ferry import HIDDEN, QUESTION, reader, told
from tests.support.talks import make


def test_of_a_book_so_many_chapters_are_taken_that_they_have_the_words():
    book = told()
    words = count_words(first_chapters(book, 300).text)
    assert 300 <= words < 700 and first_chapters(book, 10**6) is book


def test_each_question_is_asked_cold():
    """The second would find its passages read."""
    session, engine = make(reader(HIDDEN))
    first = answer_time(session, told(), QUESTION)
    read = len(engine.fed)
    second = answer_time(session, told(), QUESTION)
    assert engine.fed[read:] == engine.fed[:read]
    assert first["given"] and second["passages"] == first["passages"] > 0
    assert 0 <= first["first_s"] <= first["whole_s"]


def test_the_table_ends_in_the_median_and_the_longest_wait():
    row = {"question": "Who?", "passages": 8, "given": True}
    rows = [{**row, "first_s": wait, "whole_s": wait + 1} for wait in (1.0, 2.0, 9.0)]
    table = answer_table(rows, pages=300, threads=2)
    assert table.rows[-2:] == (("median", None, 2.0, 3.0, None), ("longest", None, 9.0, 10.0, None))
