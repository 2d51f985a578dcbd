"""A page whose app has died: it says so, keeps what was typed, and goes on by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_runtime import SUMMARY, FakeRuntime

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
TYPED = "Half a question that took a while to word"
# an app of its own, on the data folder of the test
APP = """
import sys
from app.server.main import Server, make_services
from app.desk.import_queue import Readers
from app.models.catalogue import Models
from app.server import main, server as served
from app.host.secrets import kept_keys
from core import paths
from core.config import Settings
from core.documents import read_document
from core.hardware.gpus import imagined_hardware
from tests.support.fake_runtime import FakeRuntime

engine = FakeRuntime(pace=0.05, summary=sys.argv[2])
readers = Readers(lambda path, **_more: read_document(path), lambda *_a, **_k: b"", lambda: True)
desk = make_services(engine, models=Models(Settings(), look=imagined_hardware), readers=readers)
served.kept_port = lambda _preferred, _file: int(sys.argv[1])
server = Server(desk, Settings(), keys=kept_keys(paths.subdir("run")))
print(main.fresh_url(server.start()), flush=True)
engine.start()
server.wait()
"""


@pytest.fixture
def launch(home):
    """A function that starts the app as a process of its own: (process, address)."""
    from app.host.instance import free_port

    port, started = free_port(0), []

    def start(summary: str = SUMMARY) -> tuple[subprocess.Popen, str]:
        process = subprocess.Popen(
            [sys.executable, "-c", APP, str(port), summary],
            cwd=ROOT,
            env={**os.environ, "TRIFORCE_HOME": str(home), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def page(browser, launch):
    """A page on a process that may be killed: what its browser logs of lost connections is meant to be."""
    process, url = launch("\n\n".join([SUMMARY] * 30))
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(40_000)
    page.goto(url)
    page.wait_for_selector("body[data-connected] .engine-ready")
    page.process = process
    yield page
    context.close()


def kill(page) -> None:
    page.process.send_signal(signal.SIGKILL)
    page.process.wait()


def test_a_page_whose_app_died_says_so_keeps_the_text_and_joins_the_next(page, launch, drop, sample):
    """It said "Working" for ever, and the question was lost."""
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#summarize")
    page.wait_for_selector("#live-text p")
    page.fill("#question textarea", TYPED)
    kill(page)
    page.wait_for_selector(".lost-gone", state="visible")
    assert not page.is_visible(".engine") and not page.is_visible("#stop button")
    page.press("#question textarea", "Enter")
    page.click("#send", force=True) if page.is_visible("#send") else None
    page.wait_for_timeout(300)
    assert page.input_value("#question textarea") == TYPED
    if folder := os.environ.get("TRIFORCE_SHOTS"):
        page.screenshot(path=f"{folder}/lost.png")

    page.process, _url = launch()
    page.wait_for_selector("#lost", state="hidden", timeout=60_000)
    page.wait_for_selector("body[data-connected] .engine-ready")
    page.wait_for_function("text => document.querySelector('#question textarea')?.value === text", arg=TYPED)
    page.wait_for_selector("#turns .answer footer:has-text('Interrupted')")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .bubble >> nth=1")
    assert page.locator("#turns .bubble >> nth=1").inner_text() == TYPED


@pytest.mark.skipif(os.name == "nt", reason="processes are stopped by a signal")
def test_an_answer_goes_on_where_it_was_after_a_sleep(page, drop, sample):
    """Longer than the page waits for a sign of life; what was typed meanwhile is sent by nobody."""
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#summarize")
    page.wait_for_selector("#live-text p")
    page.process.send_signal(signal.SIGSTOP)
    page.fill("#question textarea", TYPED)
    page.wait_for_timeout(6000)
    written = len(page.inner_text("#live-text"))
    page.process.send_signal(signal.SIGCONT)
    page.wait_for_function(
        "before => document.querySelector('#live-text').innerText.length > before", arg=written
    )
    page.wait_for_selector("#lost", state="hidden")
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer")
    assert (
        len(page.inner_text("#turns .answer .text")) >= written
        and page.locator("#turns .answer").count() == 1
    )
    assert page.input_value("#question textarea") == TYPED


def test_a_question_sent_as_the_app_dies_stays_in_its_box(page, drop, sample):
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", TYPED)
    kill(page)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(".lost-gone", state="visible")
    assert page.input_value("#question textarea") == TYPED
    page.wait_for_selector(".toast-wrap", state="attached")
    assert not page.locator(".toast-body:visible").count(), "Gradio's words beside ours"


def test_another_tab_does_not_say_ready_after_quit(page):
    tab = page.context.new_page()
    tab.goto(page.url)
    tab.wait_for_selector("body[data-connected] .engine-ready")
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[data-quit]")
    page.wait_for_selector("#now")
    kill(page)
    tab.wait_for_selector(".lost-gone", state="visible")
    assert not tab.is_visible(".engine")


def test_a_reloaded_page_keeps_what_was_typed_and_forgets_what_was_sent(serve, open_page, drop, sample):
    page = open_page(serve(FakeRuntime(pace=0.005)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", TYPED)
    page.reload()
    page.wait_for_selector("body[data-connected] .card h2")
    page.wait_for_function("text => document.querySelector('#question textarea')?.value === text", arg=TYPED)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer")
    page.reload()
    page.wait_for_selector("#turns .answer footer")
    assert page.input_value("#question textarea") == ""
