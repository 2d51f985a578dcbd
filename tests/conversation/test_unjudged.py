"""A few words that no verifier has judged."""

from __future__ import annotations

import dataclasses

import pytest

from core.evidence.support import Evidence
from tests.support.ferry import QUESTION, told
from tests.support.talks import STYLE, ask, encoded, finished, make

JUDGED = dataclasses.replace(STYLE, whole_tokens=None, verifier="any")
FEW = "Under the third plank."
MANY = "The ferryman Oddo hid the silver key under the third plank of the jetty and told the priest a lie."


def answered(said: str, mode: str, style=JUDGED):
    session, _ = make(lambda ids, params: encoded(said), style=style, context_tokens=12_000)
    return finished(ask(session, told(), QUESTION, reading_mode=mode))


@pytest.mark.parametrize("mode", ["full", "chunked"])
def test_they_bear_no_mark_though_some_place_has_them(mode: str):
    """ "John Jacob Astor." of the master of Bartleby had a green mark: three words stand somewhere."""
    assert [one.state for one in Evidence(told()).marks(FEW, QUESTION)] == ["agrees"]
    done = answered(FEW, mode)
    (stand,) = done.stands
    assert done.decoded == done.token_ids, "it was written in one go, and can be compared"
    assert not stand.borne_out and done.text[stand.start : stand.end] == FEW
    assert "third plank" in told().text[stand.book_start : stand.book_end]


@pytest.mark.parametrize("mode", ["full", "chunked"])
def test_whole_sentences_and_other_models_answers_are_looked_up_as_ever(mode: str):
    assert answered(MANY, mode).stands == ()
    assert answered(FEW, mode, dataclasses.replace(JUDGED, verifier="")).stands == ()
    assert answered("The moon.", mode).stands == (), "what no place has bears the circle anyway"
