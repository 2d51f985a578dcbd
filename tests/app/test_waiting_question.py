"""While one answers: other books and conversations are looked at, and one question waits for its turn."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace

import pytest

from app.errors import in_words
from app.store.turns import SHORT_CHARS, in_short, wording
from app.web.page import Page
from core.request import Request
from tests.support.desks import card, done, put
from tests.support.fake_runtime import ANSWER, FakeRuntime, wait_until

FINISHED, CROWDED = 'data-phase="finished"', 'data-phase="crowded"'


@pytest.fixture
def other(book):
    return replace(book, sha256="c" * 64, title="The Sea")


@pytest.fixture
def answering(opened, book, other):
    """A desk that answers “Who?” about the book until it is told to stop, with another book on the shelf."""
    desk, engine = opened(pace=30.0, prefill_steps=1)
    desk.library.add(other)
    desk.books.select(book.sha256)
    assert desk.questions.ask("Who?")
    wait_until(lambda: desk.state.answer.prefill or engine.asked)
    return desk


def go_on(desk) -> None:
    """The answer ends, and what comes now is quick."""
    desk.engine.pace = 0.001
    desk.stop()
    done(desk)


def shown(desk, region: str) -> str:
    return "".join(Page(desk).render()[region])


def test_another_book_and_its_conversations_are_looked_at_meanwhile(answering, book, other):
    talk = answering.state.conversation_id
    answering.books.select(other.sha256)
    assert answering.books.current == other and answering.state.answer.running
    wait_until(lambda: card(answering))  # how it fits is said meanwhile
    page = Page(answering).render()
    assert page["live"] == () and page["progress"] == ("",) and "disabled" not in page["ways"][0]
    assert 'data-act="stop"' in page["queue"][0] and "Who?" in page["queue"][0]
    answering.search.look_for("lamp")
    answering.books.limit(1)
    assert answering.state.spoiler_limit == 1
    answering.actions.dispatch({"act": "said", "id": talk, "book": book.sha256})
    assert answering.state.conversation_id == talk and shown(answering, "queue") == ""
    assert shown(answering, "progress")


def test_an_answer_that_ended_elsewhere_is_told_until_it_is_seen(answering, book, other):
    talk = answering.state.conversation_id
    answering.books.select(other.sha256)
    answering.questions.ask("Where?")
    go_on(answering)
    assert FINISHED not in shown(answering, "queue")
    answering.books.select(book.sha256)
    assert answering.state.conversation_id == talk
    assert [turn.state for turn in answering.books.turns] == ["finished", "stopped"]
    assert shown(answering, "queue") == ""


def test_a_question_about_another_book_is_answered_next_and_pulls_nobody_there(answering, book, other):
    answering.books.select(other.sha256)
    assert answering.questions.ask("Where?")
    talk = answering.state.conversation_id
    answering.books.select(book.sha256)
    words = shown(answering, "queue")
    assert 'data-act="drop-queued"' in words and "Where?" in words and "The Sea" in words
    go_on(answering)
    assert answering.books.current == book and answering.engine.asked[-1].book == other
    assert FINISHED in shown(answering, "queue")
    answering.actions.dispatch({"act": "said", "id": talk, "book": other.sha256})
    assert [turn.text for turn in answering.books.turns] == ["Where?", ANSWER]
    assert shown(answering, "queue") == ""


def test_it_gets_what_was_said_before_it(answering):
    """It is asked with the end of the answer that was written meanwhile, not with what stood there then."""
    engine = answering.engine
    engine.pace = 0.001
    answering.stop()
    done(answering)
    engine.pace = 0.02
    answering.questions.ask("Who now?")
    assert answering.questions.ask("And then?")
    done(answering)
    assert [one.question for one in engine.asked[-1].history] == ["Who now?"]
    assert engine.asked[-1].history[0].answer == ANSWER


def test_it_is_asked_as_the_page_said_when_it_was_typed(answering, other):
    answering.books.select(other.sha256)
    answering.books.limit(1)
    assert answering.questions.ask("Where?")
    answering.books.begin_conversation()
    answering.books.limit(0)
    go_on(answering)
    assert answering.engine.asked[-1].spoiler_limit == 1


def test_one_waits_and_no_more_and_a_dropped_one_is_not_asked(answering):
    assert answering.questions.ask("And then?")
    assert not answering.questions.ask("And why?")
    assert "waits" in answering.state.notice.text
    assert answering.state.queued.question == "And then?"
    assert 'data-text="And then?"' in shown(answering, "queue")
    answering.actions.dispatch({"act": "drop-queued"})
    assert answering.state.queued is None
    go_on(answering)
    assert [one.question for one in answering.engine.asked] == ["Who?"]


def test_what_is_deleted_is_not_asked_about(answering, other):
    answering.books.select(other.sha256)
    answering.questions.ask("Where?")
    answering.trash.throw_book(other.sha256)
    assert answering.state.queued is None and answering.state.answer.running
    go_on(answering)
    assert len(answering.engine.asked) == 1


def test_a_summary_waits_too_and_an_answer_is_made_anew_later(answering, other):
    answering.questions.summarize()
    assert answering.state.queued.question is None and "data-text" not in shown(answering, "queue")
    answering.questions.regenerate()
    assert "written" in answering.state.notice.text
    go_on(answering)
    assert answering.engine.asked[-1].question is None


def test_a_question_that_cannot_be_written_down_is_handed_back_in_words(answering, monkeypatch):
    """It stood there as waiting for ever, and no model could be chosen any more."""
    assert answering.questions.ask("And then?")

    error = sqlite3.OperationalError("database or disk is full")

    def full(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(answering.history, "ask", full)
    go_on(answering)
    assert answering.state.queued is None
    assert "And then?" in answering.state.notice.text and in_words(error) in answering.state.notice.text


def test_what_has_no_room_when_its_turn_comes_waits_for_a_choice_and_says_so_elsewhere(
    make_desk, book, other
):
    engine = FakeRuntime(pace=0.001, prefill_steps=1, answer=" ".join([ANSWER] * 8))
    engine.start()
    wait_until(lambda: engine.state == "ready")
    desk = make_desk(engine)
    desk.library.add(other)
    desk.library.add(book)
    desk.books.select(book.sha256)
    desk.questions.ask("Who?")
    done(desk)
    engine.pace = 30.0
    desk.questions.ask("Where?")
    assert desk.questions.ask("And then?")
    talk = desk.state.conversation_id
    room = engine.room(desk.requests.make("And then?", desk.books.turns[:2]))
    engine.context_tokens = room["text"] + room["question"] + room["answer"] + 1
    desk.books.select(other.sha256)
    go_on(desk)
    assert desk.state.queued is None and len(engine.asked) == 2
    assert CROWDED in shown(desk, "queue") and shown(desk, "crowded") == ""
    desk.actions.dispatch({"act": "said", "id": talk, "book": book.sha256})
    assert "And then?" in shown(desk, "crowded") and shown(desk, "queue") == ""
    desk.books.select(other.sha256)  # a look elsewhere, which threw it away
    assert CROWDED in shown(desk, "queue")
    desk.books.select(book.sha256)
    assert not desk.questions.ask("And why?")
    assert "“And then?” waits for a choice first" in desk.state.notice.text
    (there,) = desk.state.notice.remedies
    desk.actions.dispatch({"act": there.act, "id": there.id, "book": there.book})
    assert desk.state.notice is None, "it covered what it leads to"
    desk.close()
    again = make_desk(FakeRuntime())
    again.resume()
    assert again.state.conversation_id == talk and again.books.turns[-2].text == "And then?"
    assert 'data-reason="waited"' in shown(again, "turns") and again.state.notice is None, "it is in view"


def test_a_long_question_is_spoken_of_by_its_first_words():
    """One of 709 words covered the conversation, and more than the window."""
    long = Request("Where did the keeper of the lamp go, and why? " * 40)
    assert in_short(Request("Where?")) == "Where?"
    assert in_short(long).startswith("Where did the keeper") and len(in_short(long)) <= SHORT_CHARS
    assert in_short(Request(None)) == wording(Request(None))


def test_a_file_dropped_meanwhile_comes_on_the_shelf(answering, other, tmp_path):
    """It was thrown away with “Stop it first”."""
    new = replace(other, sha256="d" * 64, title="The Hill")
    readers = answering.imports._readers
    answering.imports._readers = replace(readers, read=lambda *_args, **_more: new)
    answering.actions.dispatch({"act": "upload", "path": str(put(tmp_path)), "name": "hill.txt"})
    wait_until(lambda: answering.state.opening is None and answering.state.arrivals)
    assert "The Hill" in {entry.title for entry in answering.library.entries()}
    assert answering.books.current.title == "The Lamp" and answering.state.answer.running


def test_the_end_of_the_app_waits_for_no_question(answering):
    answering.questions.ask("And then?")
    answering.close()
    assert len(answering.engine.asked) == 1


@pytest.fixture
def again(make_desk):
    """A function that starts the app anew on the same folders, whether the one before ended or was killed."""

    def start():
        engine = FakeRuntime(pace=0.001)
        engine.start()
        wait_until(lambda: engine.state == "ready")
        desk = make_desk(engine)
        desk.resume()
        return desk

    return start


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_what_waited_stands_unasked_in_its_conversation_at_the_next_start(answering, other, again, closed):
    """It was lost with the app."""
    answering.books.select(other.sha256)
    answering.questions.ask("Where?")
    talk = answering.state.conversation_id
    if closed:
        answering.close()
    desk = again()
    assert "“Where?”" in shown(desk, "notice")
    assert not desk.engine.asked
    desk.actions.dispatch({"act": "said", "id": talk, "book": other.sha256})
    assert [turn.text for turn in desk.books.turns] == ["Where?", ""]
    assert 'data-reason="waited"' in shown(desk, "turns")
    assert "Regenerate" not in shown(desk, "turns"), "nothing was generated"
    desk.questions.regenerate()
    done(desk)
    assert "Regenerate" in shown(desk, "turns")
    assert [turn.text for turn in desk.books.turns] == ["Where?", ANSWER]
    assert desk.engine.asked[-1].question == "Where?"


def test_what_the_end_of_the_app_broke_off_is_asked_with_a_press_where_another_stands_behind_it(
    answering, again
):
    """Only the last question had a button; the way on was a copy of the conversation."""
    talk = answering.state.conversation_id
    assert answering.questions.ask("And then?")
    desk = again()
    assert desk.state.conversation_id == talk and desk.state.notice is None, "it is in view"
    assert [turn.text for turn in desk.books.turns] == ["Who?", "", "And then?", ""]
    press = re.compile(r'data-act="ask-again" data-value="(\d+)"')
    (number,) = press.findall(shown(desk, "turns"))
    desk.actions.dispatch({"act": "ask-again", "value": number})
    done(desk)
    assert [turn.text for turn in desk.books.turns[-2:]] == ["Who?", ANSWER]
    assert len(press.findall(shown(desk, "turns"))) == 2, "what waited is no longer the last, either"


def test_what_had_its_turn_or_was_dropped_is_told_at_no_start(answering, other, again):
    answering.questions.ask("And then?")
    answering.questions.drop()
    answering.books.select(other.sha256)
    answering.questions.ask("Where?")
    go_on(answering)
    answering.questions.ask("Why?")
    done(answering)
    answering.close()
    assert again().state.notice is None


def test_a_summary_that_waited_is_asked_with_its_choices(answering, other, again):
    answering.books.select(other.sha256)
    answering.books.limit(1)
    answering.questions.summarize_chapter(1)
    talk = answering.state.conversation_id
    answering.close()
    desk = again()
    desk.actions.dispatch({"act": "said", "id": talk, "book": other.sha256})
    assert desk.state.spoiler_limit == 1
    desk.questions.regenerate()
    done(desk)
    asked = desk.engine.asked[-1]
    assert (asked.question, asked.chapters, asked.summary_length) == (None, (1, 1), "chapters")


def test_what_waited_about_a_book_that_was_deleted_is_gone_with_it(answering, other, again):
    answering.books.select(other.sha256)
    answering.questions.ask("Where?")
    answering.trash.throw_book(other.sha256)
    answering.close()
    assert again().state.notice is None
