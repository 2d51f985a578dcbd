"""What a model is asked for beside the question (quotations), and where its answer ends (stop strings)."""

from __future__ import annotations

import dataclasses

import pytest

from core.events import Delta
from tests.support.fakes import CharTokenizer, FakeEngine
from tests.support.talks import STYLE, ask, book, encoded, finished, make, reply_by_prompt, turns

QUOTING = dataclasses.replace(STYLE, quote_prompt="Quote it.")


def told(engine: FakeEngine, number: int = -1) -> str:
    return CharTokenizer().decode(engine.prompts[number])


@pytest.mark.parametrize("question", [None, "Who came?"])
def test_a_model_that_can_is_asked_to_quote_the_text_before_it(question: str | None):
    asked = question or f"whole? {STYLE.page_wish}"
    for style, wanted in ((QUOTING, f"{asked}\nQuote it."), (STYLE, asked)):
        session, engine = make(style=style)
        ask(session, book(1), question)
        assert told(engine).endswith(wanted)


def test_quotes_are_asked_of_passages_not_of_summaries():
    """What is quoted from a summary stands nowhere in the book."""
    session, engine = make(reply_by_prompt, style=QUOTING)
    ask(session, book(), None)
    assert not any("Quote it." in told(engine, number) for number in range(len(engine.prompts)))
    ask(session, book(), "What about the copper magnet?")
    assert told(engine).endswith("What about the copper magnet?\nQuote it.")
    ask(session, book(), "Zzz?", conversation="other")
    assert told(engine).endswith("Zzz?")


def test_the_request_to_quote_does_not_cost_the_prefix_of_the_next_turn():
    session, engine = make(style=QUOTING)
    first = finished(ask(session, book(1), "Who came?"))
    ask(session, book(1), "And then?", history=turns("Who came?", first))
    assert engine.fed[1] == len("And then?\nQuote it.") + 3 - 1
    again, fresh = make(style=QUOTING)
    ask(again, book(1), "And then?", history=turns("Who came?", first))
    assert fresh.prompts[-1] == engine.prompts[-1], (
        "an engine that was restarted must put the question the same way"
    )


def test_an_answer_ends_before_a_stop_string():
    """No part of it is shown, kept for the next turn, or taken for a cut answer."""
    session, _ = make(lambda ids, params: encoded("It is so. THE ENDS. THE END, and more"))
    events = ask(session, book(1), "Who came?", params={"stop": ["THE END,", "never said"]})
    done = finished(events)
    shown = "".join(event.text for event in events if isinstance(event, Delta))
    assert (shown, done.text, done.reason) == ("It is so. THE ENDS. ", "It is so. THE ENDS.", "stop")
    assert list(done.token_ids) == encoded("It is so. THE ENDS. ")


def test_what_only_looked_like_a_stop_string_is_shown():
    """Held back for a while, never lost, also at the very end."""
    session, _ = make(lambda ids, params: encoded("THE EAST, THE E"))
    done = finished(ask(session, book(1), "Who came?", params={"stop": ["THE END"]}))
    assert done.text == "THE EAST, THE E" and list(done.token_ids) == encoded("THE EAST, THE E")


def test_part_summaries_know_no_stop_string():
    """They are the program's own notes; what ends an answer would cut them short."""
    session, engine = make(reply_by_prompt)
    ask(session, book(), None, params={"stop": ["e"]})
    assert [params.stop for params in engine.params[:4]] == [()] * 4
    assert {params.stop for params in engine.params[4:]} == {("e",)}
