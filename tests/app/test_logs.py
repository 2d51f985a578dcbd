"""The log says what went wrong, where, and nothing of what somebody reads or asks."""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import threading
from logging.handlers import RotatingFileHandler
from types import SimpleNamespace

import pytest

from app.engine.client import Runtime
from app.host import logs
from core.config import Settings
from core.errors import UserError
from core.request import Request
from tests.support.scripted_engine import BOOK, SCRIPT, last

SECRET = "the keeper hides a page"


def written() -> str:
    return "\n".join(text for _name, text in logs.log_tails())


def fail_with_words() -> None:
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise ValueError(f"cannot read {SECRET!r}") from error


def test_errors_are_logged_by_place_and_kind_without_their_words(home):
    """A parser's error quotes what it could not parse: the book."""
    with logs.kept_log():
        log = logging.getLogger("app.somewhere")
        try:
            fail_with_words()
        except ValueError as error:
            log.exception("reading failed")
            log.warning("it failed: %s", error)
        log.warning("not kept: %s", OSError(28, "No space left on device"))
        log.warning("refused: %s", UserError("Its wick is too short."))
    text = written()
    assert SECRET not in text and "ValueError" in text and "KeyError" in text
    assert "fail_with_words" in text and "which led to" in text
    assert "No space left on device" in text and "Its wick is too short." in text
    assert "started: Python" in text and text.rstrip().endswith("ended")


def test_a_thread_that_dies_is_logged_and_not_printed(home, capfd):
    before = threading.excepthook
    try:
        with logs.kept_log():
            thread = threading.Thread(target=fail_with_words)
            thread.start()
            thread.join()
    finally:
        threading.excepthook = before
    assert "a thread ended" in written() and SECRET not in written()
    assert SECRET not in capfd.readouterr().err


def test_what_ends_the_app_is_in_its_log(home):
    with pytest.raises(ZeroDivisionError), logs.kept_log():
        raise ZeroDivisionError
    assert "ended by an error" in written()


def test_the_log_has_a_bound_and_is_private(home, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES", 2000)
    before = os.umask(0o077)
    try:
        with logs.kept_log():
            for number in range(200):
                logging.getLogger("app").warning("line %d of many that are written", number)
    finally:
        os.umask(before)
    files = sorted(path for path in logs.folder().iterdir())
    assert [path.name for path in files] == ["app.log", "app.log.1"]
    assert all(path.stat().st_size <= 2000 for path in files)
    if os.name != "nt":
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_long_log_is_shown_by_its_end_in_whole_lines(home):
    (logs.folder() / "engine.log").write_text("first\n" + "a line of it\n" * 9000 + "last\n")
    ((name, text),) = logs.log_tails()
    assert name == "engine.log" and text.endswith("last\n") and len(text) <= logs.SHOWN_BYTES
    assert text.startswith("a line of it\n")


@pytest.mark.wide
def test_an_engine_that_fails_over_a_question_does_not_write_it_down(home, monkeypatch):
    """Its error may quote the prompt, with the book in it."""
    monkeypatch.setenv("SCRIPT_QUOTE", "1")
    runtime = Runtime(Settings(), worker=(sys.executable, str(SCRIPT)))
    try:
        failed = last(runtime.ask(Request(SECRET, book=BOOK, conversation_id="c")))
    finally:
        runtime.close()
    assert SECRET in failed.message, "the script quotes the prompt"
    assert "ask failed" in written() and "RuntimeError" in written()
    assert SECRET not in written() and "keeper came" not in written()


def test_a_log_that_the_disk_has_no_room_for_is_no_traceback_in_the_terminal(home, capsys):
    """A start on a full disk ended in pages of “--- Logging error ---”."""
    with logs.kept_log():
        (handler,) = [one for one in logging.getLogger().handlers if isinstance(one, RotatingFileHandler)]

        def full(*_given) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        handler.stream.close()
        handler.stream = SimpleNamespace(
            write=full, flush=lambda: None, tell=lambda: 0, seek=full, close=full
        )
        logging.getLogger("app.desk").warning("it rains")
        handler.stream = None
    assert "Logging error" not in capsys.readouterr().err
