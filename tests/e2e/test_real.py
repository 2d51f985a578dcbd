"""The whole product: the app as its own process, the embedded model, a browser; and nothing is left when it
is killed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from core.paths import ROOT
from tests.support.fake_runtime import wait_until
from tests.support.whole_app import GIVEN, RESTING, START, answered, ask, visited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
STORY = """Chapter 1

Mara kept the ferry on the river Lind. Every morning she wrote the height of the water on the door of the
boathouse with a piece of chalk. On the first of March it stood at nine feet, and she told the baker that
it would rise.

Chapter 2

The baker did not believe her. On the third of March the water came into his shop and carried the flour
away. Mara rowed him to the mill in the dark, and the two of them sat on the roof until morning and ate
the last warm loaf.
"""


@pytest.fixture
def app(launch):
    """The running app."""
    return launch()


def opened(open_page, drop, url: str, story: Path, text: str):
    """A page of the app into which a book of this text was dropped."""
    story.write_text(text)
    page = visited(open_page, url)
    drop(page, story)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    return page


def prefilled(page) -> tuple[int, ...]:
    """Of the last answer's prompt: tokens that were read, reused, and of these from disk."""
    said = page.inner_text("#stat-prefill")
    counts = [int(count.replace(",", "")) for count in re.findall(r"[\d,]*\d", said)]
    return (*counts, 0, 0)[:3]


def quit_from(page) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[data-quit]")
    page.wait_for_selector("h1:has-text('Good night')")


def worker_of(process) -> psutil.Process:
    children = psutil.Process(process.pid).children(recursive=True)
    return next(child for child in children if "--parent" in child.cmdline())


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_real_book_is_read_answered_and_asked_again(app, open_page, drop, tmp_path):
    page = opened(open_page, drop, app.url, tmp_path / "ferry.txt", STORY)
    page.select_option("#summary-length", "own")
    page.click("#summarize")
    answered(page)
    assert len(page.inner_text("#turns .answer .text").split()) >= 10
    assert "own sentences" in page.inner_text("#turns .answer")
    told = " ".join(page.text_content("#turns .answer .text").split())
    page.click("#turns .answer .text .sign-quoted >> nth=1")
    page.wait_for_selector("#passage")
    shown = " ".join(page.inner_text("#passage").split())
    assert len(shown) > 20 and shown in told and not told.startswith(shown), "the second sentence's place"
    page.keyboard.press("Escape")

    ask(page, "Tell me what kind of person Mara is.", answer=1)
    assert re.search(r"\d", page.inner_text("#stat-tbt-p50"))
    fold = page.locator("#turns .answer >> nth=1 >> footer details.evidence").first
    fold.locator("summary").click()
    assert "the model looked here" in fold.inner_text()
    ask(page, "Who keeps the ferry?", answer=2)
    fresh, reused, _stored = prefilled(page)
    assert fresh < 80 < reused, "the book was prefilled again"

    worker = worker_of(app)
    quit_from(page)
    assert app.wait(30) == 0
    wait_until(lambda: gone(worker))


def test_summaries_of_three_lengths_link_every_sentence(app, open_page, drop, tmp_path):
    page = opened(open_page, drop, app.url, tmp_path / "ferry.txt", STORY)
    for number, length in enumerate(("paragraph", "page", "chapters")):
        page.wait_for_selector(".card-facts:has-text('tokens')")
        page.select_option("#summary-length", length)
        page.select_option("#summary-length", "own")
        page.click("#summarize")
        answered(page)
        signs = page.locator("#turns .answer .text .sign-quoted")
        marked = sum(sign.count(".") for sign in signs.all_inner_texts())  # "ch. 1"
        told = page.inner_text("#turns .answer")
        sentences = page.inner_text("#turns .answer .text").count(".") - marked
        assert signs.count() == sentences >= 4, (length, told)
        assert page.locator("#turns .answer .text .sign-nothing").count() == 0
        assert page.locator("#turns .answer .text :is(h2, h3, h4)").count() == (
            2 if length == "chapters" else 0
        )
        if number < 2:
            page.click("text=New conversation")
            page.wait_for_selector("#turns .answer", state="detached")


def test_a_book_that_was_read_is_not_read_again_after_a_restart(launch, open_page, drop, tmp_path):
    """It opens in seconds, its card says: a question about it feeds nothing of its text, and says so."""
    first = launch()
    page = opened(open_page, drop, first.url, tmp_path / "ferry.txt", STORY * 6)
    ask(page, "Who keeps the ferry?", answer=0)
    book, reused, _stored = prefilled(page)
    assert book > 500 and reused == 0
    quit_from(page)
    assert first.wait(60) == 0

    page = visited(open_page, launch().url)
    page.wait_for_selector(".shelf .book:has-text('opens in seconds')")
    page.click("[data-act=new]")
    ask(page, "Who keeps the ferry?", answer=0)
    fresh, reused, stored = prefilled(page)
    assert fresh < 80 and reused > book - 80 and stored == reused


def test_a_reading_that_was_paused_goes_on_after_a_restart(launch, home, open_page, drop, tmp_path):
    """What was read of a book until somebody stopped it is not read again."""
    segments = {"prefill_segment_tokens": 512}  # one is read as a whole, or not at all
    first = launch(RESTING, **segments)
    page = opened(open_page, drop, first.url, tmp_path / "ferry.txt", STORY * 9)
    page.fill("#question textarea", "Who keeps the ferry?")
    page.press("#question textarea", "Enter")
    wait_until((home / "run" / "rested").exists)
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer:has-text('Paused:')")
    said = re.search(r"Paused: ([\d,]+) of ([\d,]+) tokens", page.inner_text("#turns .answer footer"))
    done, total = (int(count.replace(",", "")) for count in said.groups())
    assert 0 < done < total
    quit_from(page)
    assert first.wait(60) == 0

    page = visited(open_page, launch(**segments).url)
    page.click(".shelf .book")
    page.wait_for_selector(".engine-ready")
    answers = page.locator("#turns .answer").count()
    ask(page, "Who keeps the ferry?", answer=answers)
    fresh, reused, stored = prefilled(page)
    assert stored == reused >= 0.9 * done
    assert fresh <= total - reused + 80


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_app_is_ended(app, open_page, how):
    """A killed app must not leave an engine that holds gigabytes."""
    page = visited(open_page, app.url)
    page.wait_for_selector(".engine-ready")
    worker = worker_of(app)
    page.goto("about:blank")
    os.kill(app.pid, how)
    assert app.wait(30) == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: gone(worker))


def test_a_second_start_shows_the_first_app(app):
    asked = time.monotonic()
    second = subprocess.run(
        [sys.executable, "-c", START, json.dumps(GIVEN)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 0 and app.url.partition("#")[0] in second.stdout
    assert time.monotonic() - asked < 30


def test_a_killed_engine_is_started_again_and_said_so(launch, home, open_page, drop, tmp_path):
    app = launch(RESTING)  # so that it is killed while it reads
    page = opened(open_page, drop, app.url, tmp_path / "ferry.txt", STORY)
    page.wait_for_selector(".engine-ready")
    page.fill("#question textarea", "Tell me everything about the flood.")
    page.press("#question textarea", "Enter")
    wait_until((home / "run" / "rested").exists)
    worker_of(app).kill()
    page.wait_for_selector("#turns .failed")
    assert "started again" in page.inner_text("#turns .failed")
    page.wait_for_selector(".engine-ready")
    page.click("[data-act=regenerate]")
    page.wait_for_selector("#turns .failed", state="detached")
    answered(page)
