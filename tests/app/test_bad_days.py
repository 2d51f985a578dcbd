"""Faults of a person's computer in the middle of things: killed, asleep, slow, gone. Nothing said is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time

import pytest

from app.desk.answer_job import AnswerJob
from app.desk.books import OpenBooks
from app.engine.client import Runtime
from app.engine.process import log_path, why_ended
from app.host.secrets import Keys
from app.store.history import History
from app.web.page import Page
from core.config import Settings
from core.events import Delta, Failed, Finished, Prefill
from core.request import Request
from tests.support.fake_runtime import ANSWER, wait_until
from tests.support.said import worded_by
from tests.support.scripted_engine import BOOK, SCRIPT, last

POSIX = pytest.mark.skipif(os.name == "nt", reason="processes are stopped and killed by signals")


@pytest.fixture
def runtime(monkeypatch):
    monkeypatch.setenv("SCRIPT_SLOW", "0.02")
    made = Runtime(Settings(), worker=(sys.executable, str(SCRIPT)))
    yield made
    made.close()


@POSIX
@pytest.mark.wide
def test_an_engine_killed_in_prefill_costs_one_answer(runtime):
    events = runtime.ask(Request("one", book=BOOK, conversation_id="c"))
    next(event for event in events if isinstance(event, Prefill))
    os.kill(runtime.pid, signal.SIGKILL)
    rest = list(events)
    assert isinstance(rest[-1], Failed) and worded_by(why_ended, rest[-1].message)
    assert isinstance(last(runtime.ask(Request("two", book=BOOK, conversation_id="c"))), Finished)


@pytest.mark.wide
def test_a_disk_that_fills_up_while_a_reading_is_stored_costs_no_answer(runtime, monkeypatch):
    """It is not said to be stored, the engine stays, and neither the next answer nor Quit waits."""
    monkeypatch.setenv("SCRIPT_SLOW", "0")
    monkeypatch.setenv("SCRIPT_FULL", "1")
    runtime.start()
    wait_until(lambda: runtime.stored, 60.0)  # nothing yet, and that was stored
    engine, before = runtime.pid, runtime.stored
    ended = [last(runtime.ask(Request("one", book=BOOK, conversation_id="c")))]
    ended.append(last(runtime.ask(Request("two", book=BOOK, conversation_id="c"))))
    assert [one.text for one in ended] == ["You asked 'one'.", "You asked 'two'."]
    runtime.save(3600.0)
    assert (runtime.pid, runtime.stored) == (engine, before)
    assert "No space left" in log_path().read_text(encoding="utf-8")


@POSIX
@pytest.mark.wide
def test_an_answer_goes_on_after_a_sleep(runtime):
    """All processes stand still and the pipes stay: what a sleep is to them."""
    events = runtime.ask(Request("one", book=BOOK, conversation_id="c"))
    before = next(event for event in events if isinstance(event, Delta))
    os.kill(runtime.pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(runtime.pid, signal.SIGCONT)
    rest = list(events)
    told = "".join(
        piece.text for event in (before, *rest) if isinstance(event, Delta) for piece in event.pieces
    )
    assert isinstance(rest[-1], Finished) and rest[-1].text == told.strip() and "n39" in told


@pytest.mark.wide
def test_a_slow_drive_costs_nothing_but_time(opened, monkeypatch):
    """A stick or a network folder takes seconds for a write."""
    desk, _engine = opened(pace=0.01, prefill_steps=2)
    monkeypatch.setattr("app.desk.answer_job.SAVE_EVERY_S", 0.0)
    write = History.update

    def slowly(*given, **more):
        time.sleep(0.3)
        return write(*given, **more)

    monkeypatch.setattr(History, "update", slowly)
    desk.questions.ask("Who?")
    page = Page(desk)
    while desk.state.busy:
        page.render()
        time.sleep(0.02)
    assert [turn.text for turn in desk.books.turns] == ["Who?", ANSWER] and desk.books.turns[
        -1
    ].state == "finished"


@POSIX
def test_a_data_folder_that_vanishes_costs_no_answer_and_is_said(opened, tmp_path, book):
    """Its drive was pulled out: the answer is shown, and a click that needs the folder is told of."""
    from app.errors import guarded

    desk, _engine = opened(pace=0.005, prefill_steps=2)
    desk.questions.ask("Who?")
    for one in tmp_path.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    wait_until(lambda: not desk.state.busy)
    shown = re.sub(r"<[^>]*>", "", "".join(Page(desk).render()["turns"]))
    assert desk.books.turns[-1].text == ANSWER and ANSWER[:40] in shown
    guarded(lambda: desk.actions.dispatch({"act": "book", "id": "b" * 64}), desk.store.say, None)
    assert worded_by(OpenBooks.select, desk.state.notice.text)
    assert desk.books.current == book, "the open book is still there to be read"


def test_conversations_that_were_moved_away_are_said_behind_the_next_answer(opened):
    """Two questions were asked without a word on the page."""
    desk, _engine = opened(pace=0.001)
    desk.history.path.rename(desk.history.path.with_suffix(".away"))
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy and desk.state.notice)
    assert worded_by(AnswerJob._save, desk.state.notice.text) and desk.books.turns[-1].unstored


def test_a_clock_that_jumps_changes_no_wait(opened, monkeypatch):
    """Codes, pacing and saving go by a clock that nobody sets."""
    keys = Keys("s" * 43, "triforce-0123456789abcdef.localhost")
    code = keys.code()
    desk, _engine = opened(pace=0.005, prefill_steps=2)
    desk.questions.ask("Who?")
    now = time.time()
    for jump in (10**8, -(10**8)):
        monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
        Page(desk).render()
    wait_until(lambda: not desk.state.busy)
    assert desk.books.turns[-1].text == ANSWER and keys.redeem(code)
