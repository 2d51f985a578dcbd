"""The app's side of the engine process, with real processes and a scripted engine."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.engine.client import Runtime
from app.engine.process import why_ended
from core import paths
from core.cache.disk import SnapshotFolder
from core.config import Settings
from core.conversation.part_summaries import PartSummaryStore, SummaryLine
from core.errors import UserError
from core.events import Delta, Failed, Finished, Loading
from core.request import HistoryTurn, Request
from core.wire import CARD_LOST
from tests.support.fake_runtime import wait_until
from tests.support.said import values, worded_by
from tests.support.scripted_engine import BOOK, SCRIPT, last


@pytest.fixture
def make() -> Iterator[Callable[[], Runtime]]:
    made: list[Runtime] = []

    def runtime() -> Runtime:
        made.append(Runtime(Settings(), worker=(sys.executable, str(SCRIPT))))
        return made[-1]

    yield runtime
    for one in made:
        one.close()


def ask(runtime: Runtime, question: str | None = "one", **options) -> Iterator:
    return runtime.ask(Request(question, conversation_id="c", **options))


def gone(pid: int, within_s: float = 300) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_first_question_waits_for_the_engine_and_tells(make):
    """A question asked while the model loads must neither fail nor be silent."""
    runtime = make()
    events = list(ask(runtime))
    assert isinstance(events[0], Loading)
    assert events[-1].text == "You asked 'one'."
    assert (runtime.state, runtime.model_name, runtime.plan["model"]) == ("ready", "fake", "fake")


@pytest.mark.wide
def test_state_is_busy_while_an_answer_is_written(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_SLOW", "0.01")
    runtime = make()
    events = ask(runtime)
    next(e for e in events if isinstance(e, Delta))
    assert runtime.state == "busy"
    assert "written" in last(ask(runtime, "two")).message
    runtime.stop()
    assert last(events).reason == "user"
    assert runtime.state == "ready"


def test_caller_that_stops_listening_stops_the_engine(make, monkeypatch):
    """A closed page must not leave the engine writing for nobody."""
    monkeypatch.setenv("SCRIPT_SLOW", "0.02")
    runtime = make()
    events = ask(runtime)
    next(e for e in events if isinstance(e, Delta))
    events.close()
    assert last(ask(runtime, "two")).text.startswith("You asked 'two'.")


@pytest.mark.wide
def test_card_is_answered_while_an_answer_is_written(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_SLOW", "0.02")
    runtime = make()
    events = ask(runtime)
    next(e for e in events if isinstance(e, Delta))
    card = runtime.card(BOOK)
    assert card["title"] == "B" and card["tokens"] > 0 and runtime.state == "busy"
    runtime.stop()
    assert last(events).reason == "user"


@pytest.mark.wide
def test_room_is_told_while_an_answer_is_written_and_refused_without_an_engine(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_SLOW", "0.02")
    runtime = make()
    events = ask(runtime)
    next(e for e in events if isinstance(e, Delta))
    said = (HistoryTurn("Who?", "He.", (7, 8, 9)),)
    room = runtime.room(Request("And?", BOOK, "c", history=said, params={"max_new_tokens": 9}))
    assert room["answer"] == 9 and len(room["turns"]) == 1 and room["text"] > 0
    runtime.stop()
    assert last(events).reason == "user"
    runtime.close()
    with pytest.raises(UserError, match="not running"):
        runtime.room(Request("And?", BOOK, "c"))
    with pytest.raises(UserError, match="not running"):
        runtime.card(BOOK)


def test_whoever_asks_an_engine_that_is_gone_hears_so_at_once(make):
    """An app that was closed twice waited a minute for what nobody could store."""
    runtime = make()
    runtime.close()
    runtime.save(3600)
    assert isinstance(failed := last(ask(runtime)), Failed) and "running" in failed.message


def test_while_a_long_book_is_counted_a_question_stands_and_stop_ends_it_at_once(make, monkeypatch):
    """After a restart of the engine the page took no question for 14 s, and Stop did nothing."""
    monkeypatch.setenv("SCRIPT_COUNT", "60")
    runtime = make()
    asked = ask(runtime, book=BOOK)

    def counted(one: Loading) -> object:
        return (getattr(one.stage, "values", None) or {}).get("count")

    told = next(counted(one) for one in asked if isinstance(one, Loading) and counted(one))
    assert told == f"{BOOK.words:,}", "what is waited for"
    with pytest.raises(UserError, match="in time"):
        runtime.room(Request("And?", BOOK, "c"), 0.05)
    stopped = time.monotonic()
    runtime.stop()
    assert last(asked).reason == "user" and runtime.state == "ready"
    assert time.monotonic() - stopped < 20
    behind = ask(runtime, book=BOOK)
    said = next(one for one in behind if isinstance(one, Loading) and runtime.state == "busy")
    assert not counted(said), "the one that was left is counted, and not this one"
    behind.close()


@pytest.mark.wide
def test_killed_engine_is_started_again_and_the_conversation_goes_on(make, monkeypatch):
    """kill -9 in the middle of an answer: a message, a new engine, the same history."""
    monkeypatch.setenv("SCRIPT_SLOW", "0.05")
    runtime = make()
    events = ask(runtime, book=BOOK)
    next(e for e in events if isinstance(e, Delta))
    old = runtime.pid
    os.kill(old, signal.SIGKILL)
    failed = last(events)
    assert isinstance(failed, Failed) and failed.fatal and "9" not in values(failed.message)["how"]
    monkeypatch.delenv("SCRIPT_SLOW")
    history = (HistoryTurn("one", "kept", (110, 111)),)
    os.kill(runtime.pid, signal.SIGKILL)  # the restarted one as well, while it loads
    done = last(ask(runtime, "two", book=BOOK, history=history))
    assert isinstance(done, Finished) and "two" in done.text
    assert runtime.pid != old


def test_a_failed_card_is_begun_anew_and_the_conversation_goes_on(make):
    """An illegal address, a driver's reset, a night asleep: one question is lost and no other."""
    runtime = make()
    assert isinstance(last(ask(runtime)), Finished)
    old = runtime.pid
    failed = last(ask(runtime, "fault", book=BOOK))
    assert isinstance(failed, Failed) and failed.fatal
    assert failed.message == why_ended(f"exit code {CARD_LOST}", {})
    done = last(ask(runtime, "two", book=BOOK, history=(HistoryTurn("one", "kept", (110, 111)),)))
    assert isinstance(done, Finished) and "two" in done.text and runtime.pid != old


@pytest.mark.wide
def test_engine_that_dies_while_loading_is_given_up_with_a_reason(make, monkeypatch):
    """Starting for ever would burn the machine; the person must get the reason and a way out."""
    monkeypatch.setenv("SCRIPT_DIE", "1")
    runtime = make()
    failed = last(ask(runtime))
    assert isinstance(failed, Failed) and "engine.log" in failed.message
    assert runtime.state == "failed"
    monkeypatch.delenv("SCRIPT_DIE")
    runtime.start()
    assert last(ask(runtime)).text == "You asked 'one'."


@pytest.mark.wide
def test_user_error_while_loading_is_told_and_not_retried(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_FAIL", "1")
    runtime = make()
    runtime.start()
    assert not runtime.wait_ready(20)
    assert runtime.error == "The model does not fit. Buy memory."
    with pytest.raises(UserError, match="Buy memory"):
        runtime.card(BOOK)


@pytest.mark.wide
def test_another_model_is_loaded_in_a_process_of_its_own(make):
    """The old one's memory is only free when its process is gone."""
    runtime = make()
    assert last(ask(runtime)).text == "You asked 'one'."
    before = runtime.pid
    runtime.use("other")
    assert gone(before) and runtime.wait_ready(20) and runtime.model_name == "other"
    assert last(ask(runtime, "two")).text == "You asked 'two'."


@pytest.mark.wide
def test_another_model_is_the_way_out_of_one_that_does_not_load(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_FAIL", "1")
    runtime = make()
    assert isinstance(last(ask(runtime)), Failed) and runtime.state == "failed"
    monkeypatch.delenv("SCRIPT_FAIL")
    runtime.use("smaller")
    assert runtime.wait_ready(20) and (runtime.state, runtime.error) == ("ready", "")


def test_close_leaves_no_process(make):
    runtime = make()
    runtime.start()
    assert runtime.wait_ready(20)
    pid = runtime.pid
    runtime.close()
    assert gone(pid)
    assert runtime.pid is None


@pytest.mark.wide
def test_close_ends_waiting_threads(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_SLOW", "0.05")
    runtime = make()
    got: list = []
    thread = threading.Thread(target=lambda: got.extend(ask(runtime)))
    thread.start()
    while not any(isinstance(e, Delta) for e in got):
        time.sleep(0.05)
    runtime.close()
    thread.join()
    assert not thread.is_alive()
    assert isinstance(got[-1], Failed)


@pytest.mark.parametrize("how", ["timeout", "stop"])
@pytest.mark.wide
def test_the_wait_for_storing_has_an_end(make, monkeypatch, tmp_path, how):
    """Quitting takes as long as it may, or until the person has no patience left; the engine then gives
    way.
    """
    told = tmp_path / "told"
    monkeypatch.setenv("SCRIPT_SAVE", str(told))
    monkeypatch.setenv("SCRIPT_SAVE_S", "3600")
    runtime = make()
    assert last(ask(runtime, book=BOOK)).reason == "stop"
    if how == "stop":
        threading.Timer(0.5, runtime.stop).start()
    runtime.save(3600 if how == "stop" else 0.5)
    runtime.close()
    assert "saved" not in told.read_text() and told.read_text().endswith("stopped\n")


@pytest.mark.wide
def test_a_book_is_forgotten_on_disk_with_and_without_an_engine(make):
    """What was computed from a book is as private as its text."""
    folder = SnapshotFolder(paths.subdir("snapshots"))
    runtime = make()
    for started in (False, True):
        if started:
            runtime.start()
            assert runtime.wait_ready(20)
        kept = folder.of("any model", "book") / "x.kv"
        kept.parent.mkdir(parents=True)
        kept.write_bytes(b"rows")
        notes = PartSummaryStore(paths.subdir("notes"))
        notes.put([SummaryLine("The part tells.", 0, 4)], "book", "model", "prompt", "passage")
        runtime.forget_book("book")
        assert not kept.parent.exists()
        assert list(paths.subdir("notes").rglob("*.json")) == []


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.wide
def test_killed_app_leaves_no_engine_behind():
    """kill -9 of the app in the middle of an answer."""
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(SCRIPT.parents[2])!r})\n"
        "from app.engine.client import Runtime\nfrom core.request import Request\n"
        "from core.config import Settings\nfrom core.events import Delta\n"
        f"r = Runtime(Settings(), worker=(sys.executable, {str(SCRIPT)!r}))\n"
        "for e in r.ask(Request('one')):\n"
        "    if isinstance(e, Delta):\n        print(r.pid, flush=True)\n"
    )
    app = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "SCRIPT_SLOW": "0.05"}
    )
    pid = int(app.stdout.readline())
    app.kill()
    app.wait(5)
    assert gone(pid)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")
@pytest.mark.parametrize("way", ["goes on", "restarted"])
def test_an_engine_that_stands_still_is_named_and_can_be_started_again(make, monkeypatch, way):
    """A stopped engine was waited for without a word, and nothing but the end of the app helped."""
    monkeypatch.setattr("app.engine.standstill.LOOK_S", 0.02)
    monkeypatch.setattr("app.engine.process._CLOSE_WAIT_S", 0.1)
    monkeypatch.setenv("SCRIPT_SLOW", "0.01")
    runtime, seen = make(), []
    events = ask(runtime)
    next(event for event in events if isinstance(event, Delta))
    stopped = runtime.pid
    os.kill(stopped, signal.SIGSTOP)
    runtime.watch(lambda: seen.append((runtime.state, runtime.still)))
    wait_until(lambda: runtime.still, 120.0)
    assert seen[-1] == ("busy", True)
    if way == "goes on":
        os.kill(stopped, signal.SIGCONT)
        assert last(events).text.endswith("n39")
        assert not runtime.still and runtime.pid == stopped
        return
    runtime.restart()
    failed = last(events)
    assert isinstance(failed, Failed) and worded_by(Runtime.restart, failed.message)
    assert runtime.wait_ready() and not runtime.still and gone(stopped)
    monkeypatch.delenv("SCRIPT_SLOW")
    pid = runtime.pid
    runtime.restart()
    assert runtime.pid == pid, "one that works is left alone"


@pytest.mark.wide
def test_who_watches_is_told_of_every_change(make):
    """A page that is not told would show a loading engine for ever."""
    runtime, seen = make(), []
    runtime.watch(lambda: seen.append((runtime.state, runtime.loading.fraction)))
    runtime.start()
    assert runtime.wait_ready(20)
    last(ask(runtime))
    wait_until(lambda: runtime.stored > 1)  # what lies on the disk is another
    states = [state for state, _ in seen if state != "loading"]
    assert [state for state, _ in itertools.groupby(states)] == ["ready", "busy", "ready"]
    assert len(states) > 4
    assert ("loading", 0.5) in seen


@pytest.mark.wide
def test_a_guest_waits_for_the_person_and_its_answer_begins_anew(make, monkeypatch):
    """Another program's answer must neither hold up the person's nor come out in half."""
    monkeypatch.setenv("SCRIPT_SLOW", "0.01")
    runtime = make()
    runtime.start()
    assert runtime.wait_ready(30)
    low_priority = Request("from elsewhere", conversation_id="api-1", low_priority=True)
    heard: list[object] = []
    thread = threading.Thread(target=lambda: heard.extend(runtime.ask(low_priority)), daemon=True)
    thread.start()
    wait_until(lambda: sum(isinstance(one, Delta) for one in heard) > 3)
    mine = list(runtime.ask(Request("mine", conversation_id="1")))
    assert isinstance(mine[-1], Finished) and "You asked 'mine'" in mine[-1].text
    thread.join(30)
    assert isinstance(heard[-1], Finished) and heard[-1].reason == "stop"
    assert heard[-1].text.startswith("You asked 'from elsewhere'") and heard[-1].text.endswith("n39")
    anew = next(index for index, one in enumerate(heard) if isinstance(one, Loading))
    assert any(isinstance(one, Delta) for one in heard[:anew]), "it had begun before"


@pytest.mark.wide
def test_a_guest_that_is_stopped_ends_and_the_person_is_not_stopped_with_it(make, monkeypatch):
    monkeypatch.setenv("SCRIPT_SLOW", "0.01")
    runtime = make()
    runtime.start()
    assert runtime.wait_ready(30)
    events = runtime.ask(Request("from elsewhere", conversation_id="api-1", low_priority=True))
    while not isinstance(next(events), Delta):
        pass
    runtime.stop_guest()
    assert list(events)[-1].reason == "user"
    mine = runtime.ask(Request("mine", conversation_id="1"))
    while not isinstance(next(mine), Delta):
        pass
    runtime.stop_guest()
    assert list(mine)[-1].reason == "stop"


@pytest.mark.wide
def test_loading_is_cancelled_and_the_model_before_is_back(make):
    """A large model that was chosen by mistake could only be waited for, or the app ended."""
    runtime = make()
    runtime.start()
    assert runtime.wait_ready(60)
    assert runtime.cancel_loading() is None and runtime.state == "ready", "nothing is loading"
    runtime.use("endless")
    wait_until(lambda: runtime.loading.left_s == 7.0)
    pid = runtime.pid
    assert runtime.cancel_loading() == Settings()
    assert runtime.wait_ready(60) and gone(pid)
    assert runtime.model_name == "fake" and last(ask(runtime)).text == "You asked 'one'."


def test_a_first_load_that_is_cancelled_waits_for_the_restart(make):
    runtime = make()
    runtime.use("endless")
    waiting = ask(runtime)
    next(waiting)
    assert runtime.cancel_loading() is None
    assert runtime.state == "failed" and "cancelled" in runtime.error and runtime.pid is None
    assert isinstance(last(waiting), Failed)
    runtime.start()
    assert runtime.state == "loading"


def test_a_closed_engine_is_asked_nothing(make):
    """Closing the app stores what was read, and may come twice."""
    runtime = make()
    runtime.start()
    assert runtime.wait_ready(300)
    runtime.close()
    runtime.save(5)
    (said,) = ask(runtime)
    assert isinstance(said, Failed)
    runtime.stop()
