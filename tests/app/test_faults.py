"""What fails while a person uses the page becomes words, and nothing of theirs is lost by it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.requests import Request

from app.desk.exports import Exports
from app.errors import guarded, in_words
from app.host.secrets import Keys
from app.server.server import Server
from app.store import library as library_module
from app.store.history import History
from app.web.page import Page
from core.config import Settings
from core.documents.document import Section
from tests.support.fake_runtime import ANSWER, FakeRuntime, wait_until
from tests.support.full_disks import Unreachable, full, roomy
from tests.support.said import worded_by

ROOT = Path(__file__).resolve().parents[2]
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FULL, "disk was full"),
        (sqlite3.OperationalError("database or disk is full"), "disk was full"),
        (OSError(errno.EROFS, "Read-only file system"), "cannot be written"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "cannot be written"),
        (sqlite3.DatabaseError("database disk image is malformed"), "damaged"),
        (sqlite3.OperationalError("disk I/O error"), "disk I/O error"),
        (ZeroDivisionError("division by zero"), "Something went wrong"),
    ],
)
def test_each_error_is_told_by_cause_and_remedy(error, words):
    said: list[str] = []

    def fail() -> str:
        raise error

    assert guarded(fail, said.append, "otherwise") == "otherwise"
    assert len(said) == 1 and words in said[0] and said[0] == in_words(error)
    assert "division" not in said[0]


def test_a_question_that_cannot_be_stored_is_asked_and_leaves_nothing_half_done(desk):
    """The question alone in the file would shift every answer behind it by one."""
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy)
    full(desk.history)
    desk.questions.ask("And why? " * 2000)
    wait_until(lambda: not desk.state.busy)
    assert [bool(turn.unstored) for turn in desk.books.turns] == [False, False, False, True]
    roomy(desk.history)
    assert desk.questions.ask("And then?")
    wait_until(lambda: not desk.state.busy)
    asked = ["Who?", ("And why? " * 2000).strip(), "And then?"]
    assert [turn.text for turn in desk.books.turns[::2]] == asked
    assert [turn.text for turn in desk.books.turns[1::2]] == [ANSWER] * 3
    assert not any(turn.unstored for turn in desk.books.turns)


def test_a_start_on_a_full_disk_after_a_crash_says_so(make_desk, tmp_path, book):
    """The app was killed in an answer, and its disk is still full: the start ended in a traceback, and then
    what had been written of the answer was not shown.
    """
    with contextlib.closing(History(tmp_path / "chats.db")) as history:
        talk = history.create(book.sha256).id
        history.add(talk, "user", "Who?")
        history.add(talk, "assistant", "Weena and", state="writing")
        refuse = "BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        history._db.execute(f"CREATE TRIGGER full BEFORE UPDATE ON turns {refuse}")
    desk = make_desk(FakeRuntime())
    desk.library.add(book)
    desk.resume()
    assert in_words(FULL) in desk.state.notice.text
    assert [(turn.text, turn.state) for turn in desk.books.turns][1:] == [("Weena and", "stopped")]
    page = "".join(Page(desk).render()["turns"])
    assert "Weena and" in page and 'data-reason="interrupted"' in page and "unstored" not in page


def test_an_answer_that_cannot_be_stored_is_shown_and_stored_later(opened):
    """The page said "Working" for ever, and the answer was gone."""
    desk, engine = opened(pace=0.01, prefill_steps=2, answer="It is told. " * 3000)
    desk.questions.ask("Who?")
    full(desk.history)
    engine.pace = 1e-6
    wait_until(lambda: not desk.state.busy)
    assert in_words(FULL) in desk.state.notice.text
    assert desk.books.turns[-1].text == engine.answer and desk.books.turns[-1].state == "finished"
    assert "told" in "".join(Page(desk).render()["turns"])
    roomy(desk.history)
    engine.answer, engine.context_tokens = "Shortly.", 1_000_000
    assert desk.questions.ask("And then?")
    wait_until(lambda: not desk.state.busy)
    stored = desk.history._db.execute("SELECT text FROM turns WHERE role = 'assistant' ORDER BY number")
    assert [text for (text,) in stored] == ["It is told. " * 3000, "Shortly."]


def test_what_fails_in_the_library_does_not_keep_a_book_from_opening(desk, book, monkeypatch):
    def fail(*_args) -> None:
        raise FULL

    monkeypatch.setattr(library_module, "write_whole", fail)
    desk.books.begin_conversation()
    desk.books.select(book.sha256)
    assert desk.books.current == book and desk.state.notice is None
    other = type(book)(
        title="Another",
        author="",
        format="txt",
        text="Once.",
        sha256="b" * 64,
        sections=(Section("I", 0, 5),),
    )
    desk.shelf.put(other, cover=b"", again=False)
    assert desk.books.current == other and in_words(FULL) in desk.state.failures[0]


@pytest.fixture
def server(desk):
    made = Server(desk, Settings(port=0), keys=Keys("s" * 43, "triforce-0123456789abcdef.localhost"))
    yield made
    made.broadcast.close()


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/export", "html"),
        ("/export", "json"),
        ("/export", "tsv"),
        *(("/export/summaries", one) for one in ("md", "html", "json", "epub")),
    ],
)
def test_an_export_from_a_drive_that_is_away_is_told_and_makes_no_file(server, desk, tmp_path, path, form):
    """It was an error of the server, or a file with nothing in it."""
    desk.history._db = Unreachable(desk.history._db)
    for one in tmp_path.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    query = f"form={form}".encode()
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": []}
    answer = asyncio.run(server._export(Request(scope)))
    assert answer.status_code == 204 and answer.body == b"", "the page stays"
    said = desk.state.notice.text
    assert worded_by(in_words, said) or worded_by(Exports.summaries, said)


def test_a_page_that_cannot_be_rendered_says_so_and_keeps_the_rest(desk, monkeypatch):
    """It stood still without a word."""
    page = Page(desk)
    before = page.render()
    monkeypatch.setattr(desk.history, "conversations", lambda _book: 1 / 0)
    desk.history.create(desk.state.book_id)
    after = page.render()
    assert {name for name in after if after[name] != before[name]} == {"notice"}
    assert "notice-error" in after["notice"][0]
    monkeypatch.undo()
    assert page.render()["notice"] == before["notice"]


# root may write everywhere, unless it gives up the right to before the program begins (CAP_DAC_OVERRIDE)
LIKE_OTHERS = """
import ctypes, os, sys
if os.geteuid() == 0:
    assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "app.cli", "serve"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="rights are given up by a call of Linux")
def test_a_data_folder_that_cannot_be_written_to_is_one_sentence(tmp_path):
    """It ended in a traceback."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o500)
    ended = subprocess.run(
        [sys.executable, "-c", LIKE_OTHERS],
        cwd=ROOT,
        env={**os.environ, "TRIFORCE_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1 and ended.stderr.strip()
    assert str(folder) in ended.stderr and "Traceback" not in ended.stderr
