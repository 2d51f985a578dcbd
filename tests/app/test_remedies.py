"""Refusals on the page have buttons that resolve them; what is chosen for one book holds for that alone."""

from __future__ import annotations

import dataclasses

import pytest

from app.desk.questions import Questions
from app.web.page import Page
from core.conversation.reading import ReadingStyle, plan_reading
from core.errors import UserError
from core.events import Failed
from core.wire import pack, unpack
from tests.support.desks import done
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.said import worded_by


def act(desk, **fields: str) -> None:
    desk.actions.dispatch(fields)


class Refusing(FakeRuntime):
    """Refuses a text that is to be read whole."""

    def ask(self, ask):
        if ask.reading_mode == "full":
            self.asked.append(ask)
            yield Failed("It does not fit.", refused=True, ways=("retrieval", "chunked"))
        else:
            yield from super().ask(ask)


@pytest.fixture
def refused(make_desk, book):
    """A desk on which a question was refused."""
    engine = Refusing(pace=0.001)
    engine.start()
    desk = make_desk(engine)
    desk.library.add(book)
    desk.books.select(book.sha256)
    act(desk, act="reading-mode", value="full")
    desk.questions.ask("Who?")
    done(desk)
    return desk


def shown(desk, region: str) -> str:
    return "".join(Page(desk).render()[region])


def _is_down_said(desk) -> str:
    (said,) = worded_by(Questions._is_down, desk.state.notice.text)
    return said


def test_why_the_engine_is_stopped_stands_there_whatever_else_is_said(desk):
    """What was pressed next took its place, and “Restart it” went round in a circle without a reason."""
    desk.engine.state, desk.engine.error = "failed", "The model needs more room."
    assert "The model needs more room." in shown(desk, "notice")
    desk.questions.summarize()
    message = shown(desk, "notice")
    assert _is_down_said(desk) in message and "The model needs more room." in message
    assert message.count('data-act="restart"') == 1 and 'data-toggle="settings"' in message


def test_a_text_that_does_not_fit_is_refused_with_the_ways_that_answer(refused):
    answer = shown(refused, "turns")
    assert "It does not fit." in answer
    assert answer.count('data-act="ask-as"') == 2 and 'data-value="chunked"' in answer
    act(refused, act="ask-as", value="chunked")
    done(refused)
    assert [ask.reading_mode for ask in refused.engine.asked] == ["full", "chunked"]
    turns = refused.books.turns
    assert len(turns) == 2 and turns[1].state == "finished"
    assert 'data-act="ask-as"' not in shown(refused, "turns")


def test_what_resolved_it_holds_for_the_next_question_and_when_it_is_asked_again(refused):
    act(refused, act="ask-as", value="chunked")
    done(refused)
    refused.questions.regenerate()
    done(refused)
    refused.questions.ask("And then?")
    done(refused)
    assert [ask.reading_mode for ask in refused.engine.asked[1:]] == ["chunked"] * 3


def test_only_a_refused_question_is_asked_in_another_way(desk):
    desk.questions.ask("Who?")
    done(desk)
    act(desk, act="ask-as", value="chunked")
    done(desk)
    assert len(desk.engine.asked) == 1


def test_the_session_names_the_ways_where_a_text_does_not_fit(book):
    class Letters:
        def count(self, text: str) -> int:
            return len(text)

    with pytest.raises(UserError) as refusal:
        plan_reading(book, Letters(), context_tokens=900, style=ReadingStyle(), reading_mode="full")
    assert refusal.value.ways == ("retrieval", "chunked")
    event = Failed("No.", refused=True, ways=refusal.value.ways)
    assert unpack(pack(event)) == event


def test_reading_and_range_chosen_for_one_book_do_not_carry_over(desk, book):
    other = dataclasses.replace(book, title="Other", sha256="b" * 64)
    desk.library.add(other)
    act(desk, act="reading-mode", value="full")
    act(desk, act="from", value="1")
    act(desk, act="to", value="1")
    wish = desk.requests.make()
    assert (wish.reading_mode, wish.chapters) == ("full", (1, 1))
    act(desk, act="book", id=other.sha256)
    wish = desk.requests.make()
    assert (wish.reading_mode, wish.chapters) == ("auto", None)
    assert '<option value="auto" selected>' in shown(desk, "ways")
    act(desk, act="book", id=book.sha256)
    assert desk.requests.make().reading_mode == "full" and '<option value="full" selected>' in shown(
        desk, "ways"
    )


def test_an_engine_that_is_down_is_restarted_where_it_is_said(desk, engine):
    engine.error, engine.state = "The model does not fit.", "failed"
    said = shown(desk, "notice")
    assert "The model does not fit." in said
    assert 'data-act="restart"' in said and 'data-toggle="settings"' in said
    desk.questions.ask("Who?")
    assert _is_down_said(desk) in shown(desk, "notice") and 'data-act="restart"' in shown(desk, "notice")
    act(desk, act="restart")
    assert 'data-act="restart"' not in shown(desk, "notice"), "it runs again, and the message said no"


def test_an_engine_that_stands_still_is_named_with_a_way_out(desk, engine):
    """The page waited without a word."""
    desk.engine.state = "busy"
    assert 'data-act="restart"' not in shown(desk, "header")
    engine.still = True
    assert 'data-act="restart"' in shown(desk, "header") and 'data-act="restart"' in shown(desk, "notice")
    desk.store.say("Something else.")
    assert "Something else." in shown(desk, "notice") and 'data-act="restart"' in shown(desk, "notice")
    act(desk, act="restart")
    wait_until(lambda: not engine.still)
    assert 'data-act="restart"' not in shown(desk, "notice")


def test_the_book_that_a_question_names_is_opened_where_it_is_said(desk, book):
    desk.library.add(dataclasses.replace(book, title="Emma", sha256="b" * 64))
    assert not desk.questions.ask("What does Emma say?")
    said = shown(desk, "notice")
    assert f'data-act="book" data-id="{"b" * 64}"' in said and "Open “Emma”" in said
