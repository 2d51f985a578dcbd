"""The refusal that a model was taught, in the program's words."""

from __future__ import annotations

import dataclasses

import pytest

from core.events import Delta
from core.evidence.support import REFUSALS, UNSAID, UNSAID_HERE, UNSAID_SO_FAR, Evidence
from tests.support.ferry import shown, told
from tests.support.talks import STYLE, ask, encoded, finished, make

TAUGHT = STYLE.refusal
WHOLE = dataclasses.replace(STYLE, whole_tokens=None)


@pytest.mark.parametrize(("mode", "told_so"), [("full", UNSAID), ("chunked", UNSAID_HERE)])
def test_what_was_not_found_is_said_in_the_programs_words_and_nothing_else_first(mode: str, told_so: str):
    """ "The passage does not say." stood there, in English, of a book that was read in parts."""
    session, _ = make(lambda ids, params: encoded(TAUGHT), style=WHOLE, context_tokens=12_000)
    events = ask(session, told(), "Where is the silver key?", reading_mode=mode)
    assert shown(events) == finished(events).text == told_so and told_so in REFUSALS
    assert sum(len(one.rounds) for one in events if isinstance(one, Delta)) > 1, "the figures know all of it"
    assert Evidence(told()).marks(told_so) == (), "it is no sentence to be borne out"


@pytest.mark.parametrize(
    ("read", "told_so"),
    [
        ({"spoiler_limit": 2}, UNSAID_SO_FAR),
        ({"end": 90}, UNSAID_SO_FAR),
        ({"chapters": (1, 1)}, UNSAID_HERE),
    ],
)
def test_of_a_part_of_the_book_nothing_is_said_of_all_of_it(read: dict, told_so: str):
    """Under a limit at chapter 3 "the book" did not say what stands in chapter 7."""
    session, _ = make(lambda ids, params: encoded(TAUGHT), style=WHOLE, context_tokens=12_000)
    done = finished(ask(session, told(), "Where is the silver key?", reading_mode="full", **read))
    assert done.text == told_so


@pytest.mark.parametrize("said", [TAUGHT + " It is lost.", TAUGHT[:-3], "The passage.", "It is lost."])
def test_all_else_is_shown_as_it_was_written(said: str):
    session, _ = make(lambda ids, params: encoded(said), style=WHOLE, context_tokens=12_000)
    events = ask(session, told(), "Where is the silver key?", reading_mode="full")
    assert shown(events) == finished(events).text == said
