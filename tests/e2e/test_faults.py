"""A person's computer on a bad day, seen from the page: each fault is told by cause and remedy, and what was
asked, answered and typed is still there.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import threading

import pytest

from app.desk.answer_job import AnswerJob
from app.engine.client import Runtime
from app.errors import in_words
from app.store.database import STEPS
from core.config import Settings
from core.documents import read_document
from core.events import Loading, Prefill
from tests.support.accessibility import problems
from tests.support.browsing import shot
from tests.support.fake_runtime import SUMMARY, FakeRuntime, wait_until
from tests.support.full_disks import Unreachable, full, roomy
from tests.support.said import worded_by
from tests.support.scripted_engine import SCRIPT

pytestmark = pytest.mark.e2e
FIRST, SECOND = "Who keeps the clocks?", "And who moved their hands?"


def quick() -> FakeRuntime:
    return FakeRuntime(pace=0.002, prefill_steps=2)


def opened(page, drop, sample) -> None:
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")


def ask(page, question: str, *, answers: int) -> None:
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(f"#turns .answer footer >> nth={answers - 1}")


def notice(page) -> str:
    page.wait_for_selector(".notice")
    return page.inner_text(".notice")


def asked(page) -> list[str]:
    return page.locator("#turns .bubble").all_inner_texts()


def test_a_full_disk_keeps_no_question_from_being_asked(serve, open_page, drop, sample):
    """Its answer says that it is not stored, and both are with room again."""
    fake = quick()
    page = open_page(serve(fake))
    opened(page, drop, sample)
    ask(page, FIRST, answers=1)
    fake.context_tokens, long = 1_000_000, SECOND * 400
    full(serve.desk.history)
    page.fill("#question textarea", long)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    page.wait_for_selector(".unstored")
    assert in_words(sqlite3.OperationalError("database or disk is full")) in notice(page)
    shot(page, "fault-disk")
    assert problems(page) == [] and page.input_value("#question textarea") == ""
    roomy(serve.desk.history)
    page.click(".unstored [data-act=check-disk]")
    page.wait_for_selector(".unstored", state="detached")
    page.reload()
    page.wait_for_selector("#turns .answer footer >> nth=1")
    first, folded = asked(page)
    assert first == FIRST and folded.startswith(SECOND * 5) and len(folded) < len(long)
    page.click("#turns details.long-question summary")
    assert long in page.inner_text("#turns details.long-question")


def test_a_data_folder_that_becomes_read_only_is_said(serve, open_page, drop, sample):
    page = open_page(serve(quick()))
    opened(page, drop, sample)
    ask(page, FIRST, answers=1)
    serve.desk.history._db.execute("PRAGMA query_only = ON")
    page.fill("#question textarea", SECOND)
    page.press("#question textarea", "Enter")
    read_only = sqlite3.OperationalError("attempt to write a readonly database")
    assert in_words(read_only) in notice(page)
    assert page.input_value("#question textarea") == SECOND
    serve.desk.history._db.execute("PRAGMA query_only = OFF")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert asked(page) == [FIRST, SECOND]


def damaged(path) -> None:
    path.write_bytes(b"what a disk that failed left behind " * 300)


def newer(path) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    db.close()


@pytest.mark.parametrize(("harm", "cause"), [(damaged, "damaged"), (newer, "newer version")])
def test_conversations_that_cannot_be_read_are_kept_aside(serve, open_page, drop, sample, home, harm, cause):
    path = home / "conversations.db"
    harm(path)
    before = path.read_bytes()
    page = open_page(serve(quick()))
    said = notice(page)
    (aside,) = home.glob("conversations.aside-*.db")
    assert cause in said and aside.name in said and aside.read_bytes() == before
    shot(page, f"fault-database-{harm.__name__}")
    page.click(".notice [data-act=dismiss]")
    opened(page, drop, sample)
    ask(page, FIRST, answers=1)
    page.reload()
    page.wait_for_selector("#turns .answer footer")
    assert asked(page) == [FIRST]


def test_settings_that_cannot_be_read_are_kept_aside(serve, open_page, home):
    broken = '{"temperature": 0.9, "top_p'
    (home / "settings.json").write_text(broken)
    page = open_page(serve(quick()))
    assert "settings.damaged.json" in notice(page)
    assert (home / "settings.damaged.json").read_text() == broken
    page.click(".topbar-tools [data-toggle=settings]")
    page.fill("#set-temperature", "0.8")
    page.press("#set-temperature", "Enter")
    page.wait_for_selector(".setting:has(#set-temperature) [data-act=reset]")
    assert json.loads((home / "settings.json").read_text()) == {"temperature": 0.8}


def test_a_model_whose_folder_is_gone_is_named_with_what_to_do(serve, browser, tmp_path):
    engine = Runtime(Settings(model=str(tmp_path / "my-model")))
    url = serve(engine)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("body[data-connected] .engine-failed", timeout=60_000)
        said = notice(page)
        assert "my-model" in said and "Traceback" not in said
        shot(page, "fault-model")
        assert problems(page) == []
        assert page.is_visible(".drop-hero"), "books can be opened all the same"
    finally:
        context.close()
        engine.close()


@pytest.fixture
def scripted(monkeypatch):
    """A real worker process whose engine says a letter in so many seconds."""
    made = []

    def start(slow_s: float) -> Runtime:
        monkeypatch.setenv("SCRIPT_SLOW", str(slow_s))
        made.append(Runtime(Settings(), worker=(sys.executable, str(SCRIPT))))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.skipif(os.name == "nt", reason="killed by a signal")
@pytest.mark.parametrize("when", ["while it reads", "in an answer"])
def test_an_engine_that_is_killed_costs_one_answer(
    serve, open_page, drop, sample, scripted, monkeypatch, when
):
    engine = scripted(3.0 if when == "while it reads" else 0.05)
    page = open_page(serve(engine))
    opened(page, drop, sample)
    page.fill("#question textarea", FIRST)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#prefill-box" if when == "while it reads" else "#live-text p")
    if when == "while it reads":
        assert not page.is_visible("#live-text p")
    monkeypatch.setenv("SCRIPT_SLOW", "0")
    os.kill(engine.pid, signal.SIGKILL)
    page.wait_for_selector("#turns .answer:has-text('nothing of the conversation is lost')")
    shot(page, "fault-engine")
    inside = page.eval_on_selector(".failed", "one => parseFloat(getComputedStyle(one).paddingInlineStart)")
    assert inside >= 10, "the words stood on the border"
    page.wait_for_selector(".engine-ready")
    ask(page, SECOND, answers=2)
    assert asked(page) == [FIRST, SECOND]
    assert "You asked" in page.locator("#turns .answer .text").last.inner_text()


@pytest.fixture
def drive(serve, home):
    """Two functions: the data folder's drive is pulled out, so that nothing in its place can be read, written
    or made; and it is there again.
    """
    away = home.with_name(f"{home.name}-away")

    def out() -> None:
        serve.desk.history._db = Unreachable(serve.desk.history._db)
        home.rename(away)
        home.write_text("")

    def back() -> None:
        home.unlink()
        away.rename(home)

    yield out, back
    if away.exists():
        back()


def test_a_drive_that_is_gone_in_an_answer_costs_nothing(
    serve, open_page, drop, sample, scripted, drive, home
):
    """The answer is written to its end and shown, what cannot be kept is said, and with the drive back the
    page goes on by itself.
    """
    out, back = drive
    page = open_page(serve(scripted(0.02)))
    opened(page, drop, sample)
    page.fill("#question textarea", FIRST)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#live-text p")
    out()
    page.wait_for_selector("#turns .answer .text:has-text('n39')")
    said = serve.desk.state.notice.text
    assert worded_by(AnswerJob._save, said) and worded_by(in_words, said) and said in notice(page)
    shot(page, "fault-drive")
    assert problems(page) == []
    assert page.locator(".shelf .book").count() == 1 and page.is_visible(".card h2")
    page.fill("#question textarea", SECOND)
    page.press("#question textarea", "Enter")
    wait_until(lambda: serve.desk.state.notice.text != said)
    assert worded_by(in_words, serve.desk.state.notice.text)
    assert page.input_value("#question textarea") == SECOND and asked(page) == [FIRST]
    page.click("#tab-reader")
    page.click("[data-act=turn][data-value=on]")
    page.wait_for_selector(f".reader-text h3:has-text('{serve.desk.books.current.sections[2].title}')")

    back()
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    page.wait_for_selector(".notice", state="detached")
    page.reload()
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert asked(page) == [FIRST, SECOND]
    for at, question in enumerate((FIRST, SECOND)):
        told = page.inner_text(f"#turns .answer >> nth={at} >> .text")
        assert told.startswith("You asked") and question in told and "n39" in told
    stored = sqlite3.connect(home / "conversations.db")
    assert len(stored.execute("SELECT 1 FROM turns WHERE text LIKE '%n39%'").fetchall()) == 2
    stored.close()


def test_a_reload_loses_nothing_at_any_moment(serve, open_page, drop, sample):
    """While a book is opened, a model loads, the text is read, and it is written."""
    fake, gate = Gated(pace=0.05, prefill_steps=8, summary="\n\n".join([SUMMARY] * 60)), threading.Event()
    page = open_page(serve(fake, read=lambda path, **how: gate.wait(60) and read_document(path)))
    drop(page, sample)
    page.wait_for_selector(".opening")
    page.reload()
    page.wait_for_selector(".opening")
    gate.set()
    page.wait_for_selector(".card-facts:has-text('tokens')", timeout=30_000)
    page.wait_for_selector("body[data-connected] .engine-ready")
    page.fill("#question textarea", "half a thought")
    fake.loading = Loading("Loading the model", 0.42, 83.0)
    fake.state = "loading"
    page.wait_for_selector(".engine-loading")
    page.reload()
    page.wait_for_selector(".engine-loading:has-text('42%') [data-act=cancel-loading]")
    assert page.is_visible(".card h2"), "the book is still open"
    fake.state = "ready"
    page.wait_for_selector(".engine-ready")
    page.click("#summarize")
    page.wait_for_selector("#prefill-box")
    page.reload()
    page.wait_for_selector("#prefill-box")
    fake.read.set()
    page.wait_for_selector("#live-text p")
    page.reload()
    page.wait_for_selector("#live-text p")
    fake.pace = 0.001
    page.wait_for_selector("#turns .answer footer")
    assert page.inner_text("#turns .answer .text").startswith(SUMMARY[:40])
    page.wait_for_function("document.querySelector('#question textarea')?.value === 'half a thought'")
    assert page.locator("#turns .answer").count() == 1 and len(fake.asked) == 1


class Gated(FakeRuntime):
    """Stays in the middle of the text until the test lets it read on (`read`)."""

    def __init__(self, **script) -> None:
        super().__init__(**script)
        self.read = threading.Event()

    def _answer(self, *asked):
        for event in super()._answer(*asked):
            if isinstance(event, Prefill) and event.done_tokens > event.total_tokens / 2:
                self.read.wait(60)
            yield event
