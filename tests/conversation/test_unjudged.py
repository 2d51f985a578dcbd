"""A few words that no verifier has judged."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation.unjudged import moved
from core.events import Stats, VerificationResult
from core.evidence.support import HEDGE, Evidence
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
    assert done.text == "".join(piece.text for piece in done.pieces) == f"{HEDGE} {FEW}"
    assert "third plank" in told().text[stand.book_start : stand.book_end]


@pytest.mark.parametrize("mode", ["full", "chunked"])
def test_whole_sentences_and_other_models_answers_are_looked_up_as_ever(mode: str):
    assert answered(MANY, mode).stands == ()
    assert answered(FEW, mode, dataclasses.replace(JUDGED, verifier="")).stands == ()


@pytest.mark.parametrize("mode", ["full", "chunked"])
def test_what_no_place_has_is_no_more_than_perhaps_either(mode: str):
    done = answered("The moon.", mode)
    assert done.text == f"{HEDGE} The moon." and not done.stands[0].borne_out
    unsaid = answered(JUDGED.refusal, mode)
    assert HEDGE not in unsaid.text and unsaid.stands == ()


def test_where_plain_decoding_differs_is_counted_behind_the_hedge():
    found = VerificationResult(3, 1, 0, 0.0, 0.1, places=((2, 5),))
    assert moved(Stats(verified=found), 9).verified.places == ((11, 14),)
    assert moved(Stats(), 9) == Stats()
