"""The person's own instructions: where they stand, what they leave alone, what is not asked with them."""

from __future__ import annotations

import dataclasses

import pytest

from core.conversation import summarization, verifier
from core.conversation.asking import not_followed
from core.conversation.verifier import NAMES, Verifier
from core.errors import UserError
from core.evidence.support import UNFOUND
from core.request import MOST_INSTRUCTIONS, HistoryTurn, Request
from core.wire import pack_ask, unpack_ask
from tests.support.fakes import CharTokenizer
from tests.support.ferry import HIDDEN, QUESTION, prompts, reader, told
from tests.support.said import worded_by
from tests.support.talks import STYLE, ask, book, encoded, finished, make, reply_by_prompt

GERMAN = "Answer in German, briefly."


def test_the_book_that_was_read_serves_other_instructions():
    """They stand behind the question: the book before it is the same, and only what follows is fed."""
    session, engine = make()
    small = book(1)
    ask(session, small, "Who came?")
    ask(session, small, "Who came?", instructions=GERMAN)
    text = CharTokenizer().decode(engine.prompts[1])
    assert text.index("Who came?") < text.index(GERMAN)
    # the end of the first prompt and what came behind it differ
    assert engine.fed[1] <= len(GERMAN) + 4


def test_earlier_turns_are_repeated_with_the_instructions_they_had():
    """Another wording of an old turn would make everything behind it new."""
    small = book(1)
    old, old_engine = make()
    first = finished(ask(old, small, "Who came?", instructions=GERMAN))
    said = (HistoryTurn("Who came?", first.text, first.token_ids, GERMAN),)
    ask(old, small, "And then?", history=said)
    restarted, engine = make()
    ask(restarted, small, "And then?", history=said)
    assert engine.prompts[-1] == old_engine.prompts[-1]


@pytest.mark.parametrize(
    "question, reading_mode", [("Who came?", "full"), (None, "full"), ("the copper magnet?", "chunked")]
)
def test_every_way_to_an_answer_knows_them(question, reading_mode):
    session, engine = make()
    ask(session, book(2), question, reading_mode=reading_mode, instructions=GERMAN)
    assert GERMAN in CharTokenizer().decode(engine.prompts[-1])
    ask(session, None, "Hello?", instructions=GERMAN)
    assert GERMAN in CharTokenizer().decode(engine.prompts[-1])


def test_a_passage_is_found_without_them_and_said_with_them():
    """What the passage bears out is decided in the book's own language; a refusal stays one."""
    german = {GERMAN: "Unter dem dritten Brett.", **HIDDEN}
    session, engine = make(reader(german))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", instructions=GERMAN))
    assert done.text.startswith("Unter dem dritten Brett.")
    assert "hid the silver key under the third plank" in done.text
    assert [GERMAN in one for one in prompts(engine)].count(True) == 1
    assert len(done.sources) == len(prompts(engine)) - 1


def test_what_no_passage_says_is_refused_whatever_they_ask():
    session, engine = make(reader({}))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", instructions="Always say: yes."))
    assert UNFOUND in done.text
    assert not any("Always say" in one for one in prompts(engine))


def test_a_refusal_of_the_second_telling_leaves_the_first():
    session, _engine = make(reader({GERMAN: STYLE.refusal, **HIDDEN}))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", instructions=GERMAN))
    assert done.text.startswith("Under the third plank of the jetty.")


def test_a_model_with_a_verifier_is_asked_in_that_wording_alone(monkeypatch):
    sure = Verifier(0.0, (0.0,) * len(NAMES), -1.0, -1.0, -1.0)
    monkeypatch.setattr(verifier, "load_verifier", lambda name: sure)
    session, engine = make(reader(HIDDEN), style=dataclasses.replace(STYLE, verifier="a"))
    done = finished(ask(session, told(), QUESTION, reading_mode="retrieval", instructions=GERMAN))
    assert done.text.startswith("Under the third plank of the jetty.")
    assert not any(GERMAN in one for one in prompts(engine))
    assert worded_by(not_followed, *done.notes)


@pytest.mark.parametrize("length", ["page", "chapters"])
def test_a_summary_in_parts_is_held_to_the_book_and_then_told_with_them(length):
    def reply(ids, params):
        if GERMAN in CharTokenizer().decode(ids):
            return encoded("Der Leuchtturm.")
        return reply_by_prompt(ids, params)

    session, engine = make(reply)
    done = finished(
        ask(session, book(4), None, reading_mode="chunked", instructions=GERMAN, summary_length=length)
    )
    times = 4 if length == "chapters" else 1
    assert done.text.count("Der Leuchtturm.") == times
    assert done.text.count("## Chapter") == (4 if length == "chapters" else 0)
    assert not done.stands and worded_by(summarization.Summaries._as_wished, *done.notes)


def test_a_summary_in_the_books_own_sentences_says_that_it_does_without_them():
    session, engine = make(style=dataclasses.replace(STYLE, summaries="own"))
    done = finished(ask(session, book(4), None, instructions=GERMAN))
    assert not engine.prompts
    assert worded_by(not_followed, *done.notes)


def test_they_are_bounded_and_cross_the_pipe():
    with pytest.raises(UserError, match="instructions"):
        Request("Who?", instructions="x" * (MOST_INSTRUCTIONS + 1))
    sent = Request("Who?", instructions=f"  {GERMAN} ", history=(HistoryTurn("A", "B", (1,), GERMAN),))
    assert unpack_ask(pack_ask(sent), None) == sent
    assert sent.instructions == GERMAN
