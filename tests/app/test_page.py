"""The page's regions: rendered when what they show has changed, and not before."""

from __future__ import annotations

import errno

import pytest

from app.web import values
from app.web.page import PANEL_S, Page
from core.request import Request
from tests.support.desks import card
from tests.support.fake_runtime import SUMMARY, wait_until


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def writing(desk, engine):
    """The desk while a long answer is being written."""
    engine.pace, engine.prefill_steps, engine.answer = 0.01, 2, "\n\n".join([SUMMARY] * 8)
    desk.questions.ask("What does the keeper hide?")
    wait_until(lambda: desk.state.answer.stats and len(desk.state.answer.text) > 200)
    yield desk
    desk.stop()
    desk.answers.job.join(10)


def test_an_answer_that_has_just_been_begun_does_not_stand_there_as_an_empty_one(desk):
    """For a moment the page said that it was stopped before its first word."""
    talk = desk.history.create(desk.state.book_id).id
    desk.history.ask(talk, Request("What does the keeper hide?"))
    desk.history.add(talk, "assistant", "", state="writing")
    desk.books.open_conversation(talk)
    (asked,) = Page(desk).render()["turns"]
    assert "What does the keeper hide?" in asked


def test_what_has_not_changed_is_not_rendered_again(desk):
    """Ten templates twenty times a second would be what streaming costs."""
    wait_until(lambda: card(desk))
    page = Page(desk)
    first, second = page.render(), page.render()
    assert all(one is other for name in first for one, other in zip(first[name], second[name], strict=True))
    desk.store.say("Something.")
    third = page.render()
    assert {name for name in third if third[name] != second[name]} == {"notice"}


def test_a_conversation_is_not_read_again_for_every_update(writing, monkeypatch):
    """A long one holds megabytes of pieces on disk."""
    reads: list[str] = []
    turns = writing.history.turns
    monkeypatch.setattr(writing.history, "turns", lambda ident: reads.append(ident) or turns(ident))
    page, shown = Page(writing), set()

    def another() -> bool:
        shown.add(page.render()["live"])
        return len(shown) > 4

    wait_until(another)
    assert len(reads) == 1


def test_the_numbers_change_a_few_times_a_second(writing):
    """Nobody reads faster, and they cost more than the letters; the newest are always shown in the end."""
    clock = Clock()
    page = Page(writing, clock=clock)
    first = page.render()["panel"]
    stats = writing.state.answer.stats
    wait_until(lambda: writing.state.answer.stats != stats)
    clock.now += PANEL_S / 2
    assert page.render()["panel"] == first
    assert page.due_s() is not None and page.due_s() <= PANEL_S / 2
    clock.now += PANEL_S
    assert page.render()["panel"] != first


def test_the_end_of_an_answer_is_shown_at_once(writing):
    clock = Clock()
    page = Page(writing, clock=clock)
    live = page.render()
    writing.stop()
    assert writing.answers.job.join(10)
    ended = page.render()
    assert live["live"] != () and ended["live"] == () and page.due_s() is None
    assert len(ended["turns"]) == len(live["turns"]) + 1 and ended["panel"] != live["panel"]
    assert ended["turns"][0] is live["turns"][0]


def test_letters_still_to_come_keep_the_page_awake(writing, monkeypatch):
    monkeypatch.setattr(type(writing.answers.job), "visible", property(lambda job: 10))
    page = Page(writing)
    page.render()
    assert page.due_s() == 0.0


def test_what_cannot_be_read_stays_as_it_was_and_the_rest_goes_on(writing, monkeypatch):
    """The drive of the data folder was gone, and the answer stood still with all of the page."""
    page = Page(writing)
    before, kept = page.render(), values.kept_of_books

    def gone(_library, _stored_as):
        raise OSError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(values, "kept_of_books", gone)
    writing.library.touch(writing.state.book_id)
    grown = len(writing.state.answer.text) + 100
    wait_until(lambda: len(writing.state.answer.text) > grown)
    during = page.render()
    assert during["library"] == before["library"] and during["live"] != before["live"]
    assert "No such file" in during["notice"][0] and page.due_s() is not None
    writing.store.say("Something else.")
    assert "Something else." in page.render()["notice"][0], "what was said last goes first"
    writing.store.update(notice=None)
    monkeypatch.setattr(values, "kept_of_books", kept)
    assert page.render()["notice"] == before["notice"]


def test_the_panel_shows_no_figures_of_the_answer_before(opened):
    """Under "Live" stood what the last answer had taken, while the next was still read for."""
    desk, engine = opened(pace=0.001)
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy)
    page = Page(desk)
    assert 'id="stat-speed">–<' not in "".join(page.render()["panel"])
    engine.pace = 30.0  # reads for the next, until it is stopped
    desk.questions.ask("And who else?")
    wait_until(lambda: desk.state.answer.running)
    panel = "".join(Page(desk).render()["panel"])
    assert ">Live<" in panel and 'id="stat-speed">–<' in panel and 'id="stat-ttft">–<' in panel
    desk.stop()
    wait_until(lambda: not desk.state.busy)


def test_the_panel_shows_no_earlier_answers_figures_for_one_that_failed(opened):
    desk, engine = opened(pace=0.001)
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy)
    engine.fail = "It broke."
    desk.questions.ask("And who else?")
    wait_until(lambda: not desk.state.busy)
    assert 'id="stat-speed">–<' in "".join(Page(desk).render()["panel"])
