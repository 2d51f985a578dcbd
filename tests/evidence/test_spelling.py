"""Names that were meant."""

from __future__ import annotations

import dataclasses

import pytest

from core.evidence.spelling import written_like
from core.evidence.support import UNFOUND
from tests.support.ferry import HIDDEN, reader, told
from tests.support.said import values
from tests.support.talks import STYLE, ask, finished, make

NAMES = ("Balthasar", "Gr\u00fcn", "Queequeg", "Maria", "Emil", "Clara")


@pytest.mark.parametrize(
    "heard, meant",
    [
        ("Balthasr", "Balthasar"),
        ("Grun", "Gr\u00fcn"),
        ("QUEEQUAG", "Queequeg"),
        ("Marius", ""),
        ("Emma", ""),
    ],
)
def test_a_name_is_known_again_by_its_letters(heard: str, meant: str):
    asked = f"Did {heard} see {heard}?"
    assert written_like([heard, heard], asked, NAMES) == [one for one in (meant,) if one]
    assert written_like([heard], asked, ()) == []


def test_a_name_of_two_words_is_known_again_by_both_and_a_month_is_no_name():
    """For "Dr. Hilda Marsh" it offered March, in a book that has the month."""
    asked = "Did Dr. Hilda Marsh see Emil Grun or Clara Grun?"
    assert written_like(["Hilda", "Marsh"], asked, ["Marshe", "Emil"]) == []
    assert written_like(["Marsh"], "Who was Marsh?", ["March", "Marshe"]) == ["Marshe"]
    assert written_like(["Marsh"], "Who was Marsh?", ["March"]) == []
    for name, month in (
        ("M\u00e4rzl", "M\u00e4rz"),
        ("Mais", "Mai"),
        ("Junis", "Juni"),
        ("Freitas", "Freitag"),
    ):
        assert written_like([name], name, [month]) == [], "nor is a German one"
    assert written_like(["Grun", "Grun"], asked, NAMES) == ["Gr\u00fcn"], "the first name is known"
    assert written_like(["Emill", "Grun"], "Who is Emill Grun?", NAMES) == ["Emil", "Gr\u00fcn"]


PASSAGES = dataclasses.replace(STYLE, passages=True)


def test_a_name_that_the_book_has_not_asks_back_for_the_one_it_has():
    """ "Who is Odo?" was answered from the beginning of the book, and nobody said whom it knows."""
    session, _ = make(reader({}), style=PASSAGES, context_tokens=2000)
    done = finished(ask(session, told(), "Who is Oddoo?"))
    assert _said(done)[:2] == [UNFOUND, ["Oddo"]]
    assert "Oddo " in done.pieces[2].text + done.pieces[3].text, "the name that was meant is looked for"
    done = finished(ask(session, told(), "Where did Oddoo put the key of copper?"))
    assert _said(done)[:2] == [UNFOUND, ["Oddo"]] and len(done.pieces) > 1
    assert not any(_meant(note) == ["Oddo"] for note in done.notes), "once is enough"
    session, _ = make(reader(HIDDEN), style=PASSAGES, context_tokens=2000)
    done = finished(ask(session, told(), "Where did Oddoo put the silver key?"))
    assert done.text.startswith("Under the third plank")
    assert [_meant(note) for note in done.notes] == [["Oddo"], ["Oddoo"]]


def _said(done) -> list:
    """The sentences of an answer's first words; of one that asks back, the names."""
    return [one if one == UNFOUND else _meant(one) for one in _parts(done.pieces[0].text)]


def _meant(note) -> list[str]:
    return [*_parts(values(note)["names"])] if "names" in values(note) else []


def _parts(listed) -> list:
    return [one for name, one in values(listed).items() if name.startswith("part")]
