"""The engine's process, spoken to over its pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.conversation.session import Session
from core.documents.document import Document, Section
from core.events import (
    Acceptance,
    AttentionEvidence,
    DecodingStarted,
    Delta,
    Failed,
    Finished,
    Loading,
    Piece,
    Prefill,
    ReadingStep,
    RoundStats,
    Stats,
    VerificationResult,
)
from core.request import HistoryTurn, Request
from core.wire import CARD_LOST, RANK_LOST, from_line, pack, pack_ask, to_line, unpack, unpack_ask
from tests.support.fake_runtime import wait_until
from tests.support.said import worded_by

HERE = Path(__file__).resolve().parent


BOOK = Document("B", "", "txt", "Once upon a time.", (Section("One", 0, 17),), sha256="B")


class Pipe:
    """A worker process and its two pipes."""

    def __init__(self, parent: int | None = None, **environ: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(HERE / "support" / "scripted_worker.py"),
                "--parent",
                str(parent or os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environ},
        )

    def send(self, **message) -> None:
        self.process.stdin.write(to_line(message))
        self.process.stdin.flush()

    def read(self) -> dict:
        line = self.process.stdout.readline()
        assert line, "the worker ended"
        return from_line(line)

    def load(self) -> dict:
        self.send(do="load", id=1, settings={})
        while "ready" not in (message := self.read()):
            pass
        return message["ready"]

    def ask(self, number: int, question: str | None, book: Document | None = None) -> None:
        self.send(do="ask", id=number, ask=pack_ask(Request(question, book)))

    def saved(self, number: int) -> None:
        while "stored" in (message := self.read()):  # idle time before it
            pass
        assert message == {"id": number, "saved": True}

    def answer(self, number: int):
        while True:
            message = self.read()
            if "stored" in message:  # idle time, between two answers
                continue
            event = unpack(message["event"])
            assert message["id"] == number
            if isinstance(event, (Finished, Failed)):
                return event


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with contextlib.ExitStack() as stack:
        made = Pipe()
        stack.callback(made.process.wait, 5)
        stack.callback(made.process.kill)
        made.load()
        yield made


def test_events_survive_the_wire():
    """What the panel shows must be what the engine said, to the last field."""
    stats = Stats(
        mode="triforce",
        acceptance_draft=Acceptance(3, 4),
        tbt_series_ms=(1.0, 2.5),
        acceptance_series=(0.5,),
        verified=VerificationResult(9, 1, 0, 0.01, 0.1),
    )
    for event in (
        Loading("x", None),
        ReadingStep(1, 2, "A", "part summary"),
        Prefill(1, 2, 0.5, None),
        Failed("no", fatal=True),
        DecodingStarted("triforce", "m", 9, 5, 4, 1, 0.5, None),
        Delta(
            (Piece("é\n\u2028🙂", "draft"),), (RoundStats(3, 0.1, Acceptance(1, 2), Acceptance(2, 3), 4, 5),)
        ),
        AttentionEvidence(None, ((5, 0.5), (0, 0.25))),
        AttentionEvidence(3, ()),
        Finished("stop", "t", stats, (1, 2), ("s",), ("n",), {"a": [1]}),
    ):
        assert unpack(from_line(to_line({"event": pack(event)}))["event"]) == event


def test_a_question_survives_the_wire():
    """A field that is lost on the way is answered by its default, and nobody sees why."""
    ask = Request(
        "Who?",
        BOOK,
        "c",
        chapters=(2, 3),
        reading_mode="chunked",
        params={"seed": 7, "stop": ["END"]},
        history=(HistoryTurn("And?", "So.", (1, 2)),),
        ignore_cache=True,
    )
    sent = from_line(to_line({"ask": pack_ask(ask)}))["ask"]
    assert sent["book"] == "B" and unpack_ask(sent, BOOK) == ask
    assert unpack_ask(from_line(to_line(pack_ask(Request()))), None) == Request()


def test_a_question_is_bound_to_its_book_when_it_is_heard():
    """A second book may come before the first question is answered: it must not lose its book."""
    pipe = Pipe(SCRIPT_SLOW="0.005")
    try:
        pipe.load()
        other = replace(BOOK, sha256="C", title="C")
        pipe.send(do="book", book_id="B", data=BOOK.packed)
        pipe.ask(2, "one", BOOK)
        pipe.ask(3, "two", BOOK)
        pipe.send(do="book", book_id="C", data=other.packed)
        assert pipe.answer(2).reason == "stop"
        assert "You asked 'two'." in getattr(pipe.answer(3), "text", "")
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


def test_answer_goes_over_the_pipe(pipe: Pipe):
    pipe.ask(2, "one")
    assert pipe.answer(2).text == "You asked 'one'."
    pipe.ask(3, "two")
    assert pipe.answer(3).text == "You asked 'two'."


@pytest.mark.wide
def test_mistake_of_ours_is_one_failed_answer(pipe: Pipe):
    pipe.ask(2, "crash")
    failed = pipe.answer(2)
    assert isinstance(failed, Failed) and "ZeroDivisionError" in failed.message and not failed.fatal
    pipe.ask(3, "two")
    assert isinstance(pipe.answer(3), Finished)


@pytest.mark.parametrize(("question", "code"), [("fault", CARD_LOST), ("rank", RANK_LOST)])
def test_a_card_that_failed_for_good_ends_the_process(pipe: Pipe, question: str, code: int):
    """Every later question would fail in it until somebody restarts the engine; so where another process with
    a part of the model is gone.
    """
    pipe.ask(2, question)
    assert not [line for line in pipe.process.stdout if b"Failed" in line]
    assert pipe.process.wait(30) == code


def test_a_kernel_that_kills_the_card_on_trial_is_begun_anew():
    """The next process leaves it out; this one would only say that nothing can be loaded."""
    pipe = Pipe(SCRIPT_LOST="1")
    pipe.send(do="load", id=1, settings={})
    assert not [line for line in pipe.process.stdout if b"Failed" in line]
    assert pipe.process.wait(30) == CARD_LOST


@pytest.mark.wide
def test_user_error_keeps_its_words(pipe: Pipe):
    pipe.ask(2, None)
    assert worded_by(Session._talk, pipe.answer(2).message)


@pytest.mark.wide
def test_printing_libraries_do_not_break_the_pipe():
    """One stray print on stdout and every message after it is garbage."""
    pipe = Pipe(SCRIPT_NOISE="1")
    try:
        pipe.load()
        pipe.ask(2, "one")
        assert pipe.answer(2).text == "You asked 'one'."
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


def test_stop_is_heard_while_an_answer_is_written():
    pipe = Pipe(SCRIPT_SLOW="0.02")
    try:
        pipe.load()
        pipe.ask(2, "one")
        pipe.read()
        pipe.send(do="stop", id=2)
        assert pipe.answer(2).reason == "user"
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


@pytest.mark.parametrize("scope", [{"chapters": [1, 1]}, {"selected_chapters": [1], "whole": True}])
def test_a_card_of_chosen_chapters_comes_over_the_pipe(scope):
    """What was chosen arrives as a list, and lists are no keys: the card said that the engine erred."""
    pipe = Pipe()
    try:
        pipe.load()
        pipe.send(do="book", book_id="B", data=BOOK.packed)
        pipe.send(do="card", id=2, book_id="B", spoiler_limit=None, scope=scope)
        while (heard := pipe.read()).get("id") != 2:
            pass
        assert "card" in heard, heard
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


def test_a_question_and_stop_are_heard_while_a_long_book_is_counted():
    """Its card was worked out where commands are heard: for 14 s nothing was."""
    pipe = Pipe(SCRIPT_COUNT="20")
    try:
        pipe.load()
        long = replace(BOOK, text=BOOK.text * 60, sections=(Section("One", 0, 17 * 60),))
        pipe.send(do="book", book_id="B", data=long.packed)
        pipe.send(do="card", id=2, book_id="B", spoiler_limit=None, scope={})
        pipe.send(do="room", id=3, ask=pack_ask(Request("one", long)))
        pipe.ask(4, "one")
        assert pipe.answer(4).text == "You asked 'one'."
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


def test_a_question_that_was_left_before_its_turn_costs_nothing():
    """A text of 28 MB was counted for it, and the next question waited four minutes for that."""
    pipe = Pipe(SCRIPT_COUNT="3600")
    try:
        pipe.load()
        long = replace(BOOK, text=BOOK.text * 60, sections=(Section("One", 0, 17 * 60),))
        pipe.send(do="book", book_id="B", data=long.packed)
        pipe.send(do="stop", id=4)
        pipe.send(do="ask", id=4, ask=pack_ask(Request("one", long, reading_mode="full")))
        assert pipe.answer(4).reason == "user"
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


@pytest.mark.wide
def test_closed_pipe_ends_the_process_in_the_middle_of_an_answer():
    pipe = Pipe(SCRIPT_SLOW="0.05")
    pipe.load()
    pipe.ask(2, "one")
    pipe.read()
    pipe.process.stdin.close()
    assert pipe.process.wait(300) == 0


@pytest.mark.skipif(
    os.name != "posix", reason="Windows keeps a dead parent's number; there the pipe alone tells"
)
@pytest.mark.wide
def test_pipe_held_open_by_a_stranger_does_not_keep_an_orphan():
    """A forked reader may hold the pipe's other end when the app is killed: the parent's number tells as
    well.
    """
    code = (
        "import subprocess, sys, os, time\n"
        f"script = {str(HERE / 'support' / 'scripted_worker.py')!r}\n"
        "p = subprocess.Popen([sys.executable, script, '--parent', str(os.getpid())], stdin=0)\n"
        "print(p.pid, flush=True)\ntime.sleep(60)"
    )
    reading, held_open = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        pid = int(parent.stdout.readline())
        time.sleep(1.5)
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait(5)
        assert gone(pid, within_s=300)
    finally:
        parent.kill()
        os.close(held_open)
        os.close(reading)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def gone(pid: int, *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


# ---- storing what was read ---------------------------------------------------------------------------------


@pytest.fixture
def storing(tmp_path: Path) -> Iterator[tuple[Pipe, Path]]:
    """A worker that has read a book and is storing it for an hour, and the file in which it says so."""
    with stored_in(tmp_path / "told", seconds=3600) as pipe:
        wait_until((tmp_path / "told.begun").exists)
        yield pipe, tmp_path / "told"


@contextlib.contextmanager
def stored_in(told: Path, *, seconds: float) -> Iterator[Pipe]:
    """A worker that has read a book, which takes so long to store."""
    told.write_text("")
    pipe = Pipe(SCRIPT_SAVE=str(told), SCRIPT_SAVE_S=str(seconds))
    try:
        pipe.load()
        pipe.send(do="book", book_id="B", data=BOOK.packed)
        pipe.ask(2, "one", BOOK)
        pipe.answer(2)
        yield pipe
    finally:
        pipe.process.kill()
        pipe.process.wait(5)


def test_storing_gives_way_to_a_question(storing: tuple[Pipe, Path]):
    """The answer is complete before the book is stored, and the next one does not wait for it."""
    pipe, told = storing
    pipe.ask(3, "two")
    pipe.answer(3)
    assert told.read_text() == "stopped\n"


@pytest.mark.wide
def test_whoever_is_about_to_close_can_wait_for_it(tmp_path: Path):
    told = tmp_path / "told"
    with stored_in(told, seconds=0.5) as pipe:
        pipe.send(do="save", id=3)
        pipe.saved(3)
    assert told.read_text().splitlines()[-1] == "saved"


@pytest.mark.wide
def test_an_app_that_goes_away_leaves_nothing_half_written(storing: tuple[Pipe, Path]):
    """A closed pipe ends the process, but not between two layers of a block: storing gives way and cleans up
    first.
    """
    pipe, told = storing
    pipe.process.stdin.close()
    assert pipe.process.wait(300) == 0
    assert told.read_text() == "stopped\n"


@pytest.mark.wide
def test_a_forgotten_book_is_not_stored_afterwards(storing: tuple[Pipe, Path]):
    """The order of what happens on the thread that stores: give way, forget, nothing more."""
    pipe, told = storing
    pipe.send(do="forget_book", book_id="B")
    pipe.send(do="save", id=3)
    pipe.saved(3)
    assert told.read_text().splitlines() == ["stopped", "forgotten"]


CYCLES = """
import gc, io, types
from core.config import Settings
from core.worker import Worker

kept = []

def open_session(settings, hear):
    kept.extend([at] for at in range(200_000))  # a model and its libraries
    return types.SimpleNamespace(facts={})

Worker(io.BytesIO(), io.BytesIO(), open_session)._load({"id": 1, "settings": Settings().to_json()})
for _turn in range(50):
    for _at in range(1000):
        cycle = []
        cycle.append(cycle)
print(len(gc.get_objects()))
"""


@pytest.mark.wide
def test_what_answers_leave_in_cycles_goes_soon():
    """It waited until it was a quarter of all there is: the process grew for a hundred turns."""
    done = subprocess.run(
        [sys.executable, "-c", CYCLES],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert int(done.stdout) < 20_000, done.stderr
