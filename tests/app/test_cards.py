"""How a book fits, asked of the engine beside everything else."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.desk.book_cards import AGAIN_S, BookEstimates
from app.engine.client import Runtime
from app.web.page import Page
from core.config import Settings
from core.errors import UserError
from tests.support.desks import card
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.scripted_engine import BOOK, SCRIPT


class Failing(FakeRuntime):
    """An engine that cannot tell, until it can."""

    broken: Exception | None = UserError("The engine did not answer in time.")
    tries = 0

    def card(self, book, spoiler_limit=None, **scope):
        self.tries += 1
        if self.broken:
            raise self.broken
        return super().card(book, spoiler_limit, **scope)


@pytest.fixture
def failing() -> Failing:
    made = Failing()
    made.state = "ready"
    return made


@pytest.mark.parametrize("broken", [UserError("The engine did not answer in time."), KeyError("a mistake")])
@pytest.mark.parametrize("how", ["later", "engine was away"])
def test_a_card_that_failed_is_asked_for_again(failing, book, broken, how):
    """One bad moment of the engine must not hide for good how the book fits; nor may every look ask anew."""
    now, failing.broken = [0.0], broken
    cards = BookEstimates(failing, lambda: None, clock=lambda: now[0])
    wait_until(lambda: cards.of(book) is not None)
    assert cards.of(book).get("notes", []) == ([str(broken)] if isinstance(broken, UserError) else [])
    for _ in range(20):
        cards.of(book)
    assert failing.tries == 1
    failing.broken = None
    if how == "later":
        now[0] = AGAIN_S
    else:
        failing.state = "loading"
        cards.of(book)
        failing.state = "ready"
    wait_until(lambda: cards.of(book).get("title") == book.title)
    assert failing.tries == 2


def test_a_book_with_another_text_is_asked_about_anew(failing, book):
    """It was read again with OCR."""
    failing.broken = None
    cards = BookEstimates(failing, lambda: None)
    wait_until(lambda: cards.of(book))
    longer = replace(book, text=book.text + " And so on.")
    assert cards.of(longer) is None
    wait_until(lambda: cards.of(longer))
    assert failing.tries == 2


def test_a_card_says_after_an_answer_how_much_is_left(desk):
    """A reading that was paused would be promised at its full length; the old card stands meanwhile."""
    wait_until(lambda: card(desk))
    whole, said = card(desk), []
    desk.engine.card = lambda book, spoiler_limit=None, **scope: (
        said.append(1) or {**whole, "prefill_s_estimate": 1.0}
    )
    desk.engine.pace = 0.05
    desk.questions.ask("Who?")
    wait_until(lambda: desk.engine.state == "busy")
    assert card(desk) == whole
    wait_until(lambda: card(desk)["prefill_s_estimate"] == 1.0)
    for _ in range(5):
        card(desk)
    assert said == [1], "once"


def test_what_an_answer_measured_is_said_of_other_books_too(failing, book):
    """Cards from before it promised 9.8 s for good, and answers took 24 to 48."""
    failing.broken = None
    cards, other = BookEstimates(failing, lambda: None), replace(book, text=book.text + " And so on.")
    for one in (book, other):
        wait_until(lambda one=one: cards.of(one))
    failing.state = "busy"
    cards.of(book)
    failing.state = "ready"
    for one, tries in ((other, 3), (book, 4)):
        wait_until(lambda one=one, tries=tries: cards.of(one) and failing.tries == tries)


def test_the_card_is_of_the_chapters_that_are_chosen_and_of_how_they_are_read(desk):
    """With one chapter of 400 tokens chosen it said what all 5,200 take, and both "fits" and "in 6 parts"."""
    page, engine = Page(desk), desk.engine
    wait_until(lambda: card(desk))
    page.render()
    desk.books.choose_chapters(2, 2)
    desk.choices.reading("full")
    page.render()
    wait_until(lambda: engine.scopes[-1] == {"chapters": (2, 2), "whole": True})
    desk.actions.dispatch({"act": "tick", "id": "1"})
    page.render()
    wait_until(lambda: engine.scopes[-1] == {"selected_chapters": (1,), "whole": True})


def test_a_card_comes_by_itself_once_the_engine_has_counted_a_longer_book(monkeypatch):
    """For good the card of a book of 219 words said that the engine had not answered in time, while another
    was counted; nothing asked again.
    """

    class Impatient(queue.Queue):
        """Every time that is set to a wait is over at once."""

        def get(self, block=True, timeout=None):
            return super().get(block, None if timeout is None else 0.05)

    monkeypatch.setattr("app.engine.process.queue", SimpleNamespace(Queue=Impatient))
    monkeypatch.setenv("SCRIPT_COUNT", "1")
    came = threading.Event()
    with contextlib.closing(Runtime(Settings(), worker=(sys.executable, str(SCRIPT)))) as runtime:
        runtime.start()
        assert runtime.wait_ready(60)
        cards = BookEstimates(runtime, came.set)
        assert cards.of(BOOK) is None and came.wait(60)
        assert cards.of(BOOK)["tokens"] > 0
