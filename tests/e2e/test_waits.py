"""Waiting for a model in a browser: what is done, how long it takes, and a way back."""

from __future__ import annotations

import threading
import time

import pytest

from core.events import Loading
from tests.support.accessibility import problems
from tests.support.browsing import shot
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import at_sizes
from tests.support.said import figures

pytestmark = pytest.mark.e2e
WIDTHS = [(width, 800) for width in (1280, 1021, 900, 761, 640, 390)]
WHOLE = """() => [...document.querySelectorAll('.engine-loading :is(b, span, button)')]
  .filter((one) => !one.checkVisibility() || one.scrollWidth > one.clientWidth + 1
    || one.getBoundingClientRect().right > (document.querySelector('.engine').offsetWidth
      + document.querySelector('.engine').getBoundingClientRect().left + 1))
  .map((one) => one.outerHTML)"""


def test_a_model_that_loads_says_how_long_and_can_be_called_off(serve, open_page):
    """Between phone and wide screen the time left was hidden; where it is shown, it is whole."""
    fake = FakeRuntime()
    page = open_page(serve(fake))
    page.wait_for_selector(".engine-ready")
    fake.loading, fake.before = Loading("Loading the model", 0.42, 83.0), fake.model_name
    fake.state = "loading"
    for width, _height in at_sizes(page, WIDTHS):
        page.wait_for_selector(".engine-loading [data-act=cancel-loading]", state="visible")
        assert {"42", "83"} <= {*figures(page.inner_text(".engine"))}
        shot(page, f"loading-{width}")
        assert page.evaluate(WHOLE) == [], f"cut off at {width}"
        assert problems(page) == [], width
        page.click("[data-act=cancel-loading]", trial=True)
    page.click("[data-act=cancel-loading]")
    page.wait_for_selector(".engine-ready")


def test_longer_words_leave_the_time_left_whole(serve, open_page):
    """In German it was cut off before its number."""
    fake = FakeRuntime()
    page = open_page(serve(fake), locale="de-DE")
    page.wait_for_selector(".engine-ready")
    fake.loading, fake.state = Loading("Loading the model", 0.42, 83.0), "loading"
    for width, _height in at_sizes(page, ((761, 800), (390, 800))):
        page.wait_for_selector(".engine-loading:has-text('noch etwa 83')")
        shot(page, f"loading-de-{width}")
        assert page.evaluate(WHOLE) == [], f"cut off at {width}"


def test_a_large_file_on_its_way_into_the_app_says_how_long_and_can_be_given_up(
    serve, open_page, drop, tmp_path, sample
):
    """Some hundred megabytes from a slow drive were a page that did nothing."""
    big = tmp_path / "big.txt"
    big.write_text("It was a long book. " * 100_000)
    page = open_page(serve(FakeRuntime()))
    line = page.context.new_cdp_session(page)
    line.send("Network.enable")
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000}
    line.send("Network.emulateNetworkConditions", slow)
    drop(page, big)
    page.wait_for_selector("#bringing:has-text('Copying “big.txt” into the app')", state="visible")
    page.wait_for_selector("#bringing:has-text('left')")
    assert problems(page) == []
    page.click("#bringing button")
    page.wait_for_selector("#bringing", state="hidden")
    line.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": -1})
    assert page.locator(".notice").count() == 0 and serve.desk.library.entries() == []
    drop(page, sample)
    page.wait_for_selector(".card h2")


def test_quitting_says_that_an_answer_is_being_worked_on(serve, open_page):
    """Of the answer that it breaks off it said not a word."""
    page = open_page(serve(FakeRuntime(pace=0.05, prefill_steps=2000)))
    desk, said = serve.desk, []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    desk.imports.sample(desk.imports.samples[1].name)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    page.click("[data-quit]")
    page.fill("#question textarea", "What did he sell?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#progress .progress")
    page.click("[data-quit]")
    asked = [page.get_attribute("[data-quit]", name) for name in ("data-confirm", "data-confirm-working")]
    assert said == asked and asked[0] != asked[1]
    desk.stop()


def test_quitting_says_how_long_it_takes_and_can_be_hurried(serve, open_page):
    """What was read may take half a minute to store."""
    fake = FakeRuntime()
    page = open_page(serve(fake))
    fake.save_s = 60.0
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[data-quit]")
    page.wait_for_selector("#end-now")
    assert figures(page.inner_text("#still span"))
    ending = threading.Thread(target=lambda: (serve.server.wait(), serve.server.stop()), daemon=True)
    ending.start()
    page.wait_for_selector("#still:has-text('2')")  # twenty-some seconds: it counts
    began = time.monotonic()
    page.click("#end-now")
    page.wait_for_selector("#now:has-text('has ended')")
    assert page.locator("#still").count() == 0
    ending.join(20)
    assert not ending.is_alive() and time.monotonic() - began < 20 and not fake.saved
