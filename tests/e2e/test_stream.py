"""The event stream in a real browser: one for all tabs, and a page that comes back to the newest state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.browsing import shot
from tests.support.fake_runtime import SUMMARY, FakeRuntime, wait_until
from tests.support.page_looks import at_sizes

LONG = "\n\n".join([SUMMARY] * 20)
pytestmark = pytest.mark.e2e
WINDOWS = ((1280, 800), (640, 800), (390, 800))


def engine(**options):
    return FakeRuntime(**{"pace": 0.05, "prefill_steps": 3, **options})


def another_tab(page):
    """One more tab of the same browser."""
    tab = page.context.new_page()
    tab.set_default_timeout(20_000)
    tab.goto(page.url)
    tab.wait_for_selector("body[data-connected] .engine-ready, body[data-connected] .engine-busy")
    return tab


def test_two_tabs_show_the_same_answer_over_one_stream(serve, open_page, drop, sample):
    fake = engine(summary=LONG)
    first = open_page(serve(fake))
    second = another_tab(first)
    drop(first, sample)
    second.wait_for_selector(".card h2")
    second.click("#summarize")
    for page in (first, second):
        page.wait_for_selector("#live-text p")
    assert serve.server.broadcast.listening == 1
    fake.pace = 0.001
    told = []
    for page in (first, second):
        page.wait_for_selector("#turns .answer footer")
        told.append(page.inner_text("#turns .answer .text"))
    assert told[0] == told[1] and len(told[0]) > 2000


def test_seven_tabs_load_and_act(serve, open_page, drop, sample):
    """A browser opens six connections to a server: with a stream a tab the seventh would never load."""
    fake = engine(pace=0.005)
    first = open_page(serve(fake))
    drop(first, sample)
    first.wait_for_selector(".card h2")
    tabs = [first, *(another_tab(first) for _ in range(6))]
    tabs[-1].fill("#question textarea", "Who keeps the clocks?")
    tabs[-1].press("#question textarea", "Enter")
    for tab in tabs:
        tab.wait_for_selector("#turns .answer footer")
    assert serve.server.broadcast.listening == 1


def test_the_stream_ends_with_its_last_tab(serve, open_page):
    """A connection that nobody reads would be rendered for."""
    page = open_page(serve(engine()))
    tab = another_tab(page)
    page.goto("about:blank")
    serve.desk.store.say("This was said when one tab had gone.", "info")
    tab.wait_for_selector(".notice:has-text('one tab had gone')")
    wait_until(lambda: serve.server.broadcast.listening == 1)
    tab.close()
    wait_until(lambda: serve.server.broadcast.listening == 0)


def test_a_broken_stream_is_joined_again_and_shows_the_newest_state(serve, open_page, drop, sample):
    """What is typed stays, the page is not loaded anew, and nothing that happened meanwhile is missed."""
    fake = engine(pace=0.005)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.evaluate("window.untouched = true")
    page.fill("#question textarea", "Half a quest")
    serve.server.broadcast.hang_up()
    wait_until(lambda: serve.server.broadcast.listening == 0)
    serve.desk.store.say("This was said while nobody listened.", "info")
    page.wait_for_selector(".notice:has-text('while nobody listened')")
    assert page.evaluate("window.untouched") and page.input_value("#question textarea") == "Half a quest"
    page.click(".notice [data-act=dismiss]")
    page.wait_for_selector(".notice", state="detached")


def test_a_page_reloaded_in_the_middle_of_an_answer_goes_on_with_it(serve, open_page, drop, sample):
    fake = engine(summary=LONG)
    page = open_page(serve(fake))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#live-text p >> nth=1")
    before = page.inner_text("#live-text")
    page.reload()
    page.wait_for_selector("#live-text p >> nth=1")
    after = page.inner_text("#live-text")
    assert after.startswith(before[:-20]) and len(after) >= len(before)
    page.wait_for_function(
        "text => document.querySelector('#live-text').innerText.length > text.length", arg=after
    )
    assert serve.server.broadcast.listening == 1
    fake.pace = 0.001
    page.wait_for_selector("#turns .answer footer")
    assert page.is_visible("#send") and not page.is_visible("#stop button")


def test_updates_leave_alone_what_a_person_is_doing(serve, open_page, drop, sample):
    """The words being typed, an open drawer with its values, a selection in what is already written."""
    fake = engine(summary=LONG)
    page = open_page(serve(fake))
    drop(page, sample)
    page.click("#summarize")
    page.wait_for_selector("#live-text p >> nth=1")
    page.fill("#question textarea", "My next question")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#live-text > p'))")
    selected = page.evaluate("getSelection().toString()")
    page.click(".topbar-tools [data-toggle=settings]")
    page.fill("#set-temperature", "0.9")
    # at once: the open drawer may be drawn anew at any moment, when the sizes of what is kept are known
    box = page.evaluate_handle("document.activeElement.setSelectionRange(1, 2), document.activeElement")
    serve.desk.preferences.choose("summary_length", "chapters")  # draws the settings anew
    page.wait_for_function("box => !box.isConnected", arg=box)
    now = "({ id, selectionStart: from, selectionEnd: to }) => [id, from, to]"
    assert page.evaluate(f"({now})(document.activeElement)") == ["set-temperature", 1, 2]
    grown = "count => document.querySelectorAll('#live-text > *').length > count"
    page.wait_for_function(grown, arg=page.locator("#live-text > *").count())
    assert page.input_value("#question textarea") == "My next question"
    assert page.input_value("#set-temperature") == "0.9"
    assert len(selected) > 40 and page.evaluate("document.querySelector('#live-text > p').isConnected")
    fake.pace = 0.001


def test_the_keyboard_stays_where_it_was(serve, open_page, drop, sample):
    """Whoever goes through the shelf by keyboard would be thrown to the top of the page by an update."""
    page = open_page(serve(engine()))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.focus(".book-open")
    marked = page.query_selector(".book-open")
    serve.desk.questions.ask("Who keeps the clocks?")
    page.wait_for_selector(".talks button")
    assert not marked.evaluate("old => old.isConnected")
    assert page.evaluate("document.activeElement.matches('.book-open')")


def test_a_page_of_an_earlier_launch_loads_itself_anew_and_keeps_what_was_typed(
    serve, open_page, drop, sample
):
    """It may be another version's page; half a question must not be lost by that."""
    page = open_page(serve(engine()))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.evaluate("window.untouched = true")
    page.fill("#question textarea", "Half a quest")
    broadcast = serve.server.broadcast
    launch, broadcast._token = broadcast._token, "another"
    broadcast.hang_up()
    page.wait_for_function("!window.untouched")
    broadcast._token = launch
    broadcast.hang_up()
    page.wait_for_function("document.querySelector('#question textarea')?.value === 'Half a quest'")
    page.wait_for_selector(".card h2")


def test_tabs_say_that_they_share_a_desk(serve, open_page):
    """What is done in one of them changes all: without a word that looks like a ghost. A narrow bar has no
    room for it: there it stands in the head of the settings.
    """
    page = open_page(serve(engine()))
    for width, _height in at_sizes(page, WINDOWS):
        with where_tabs_are_told_of(page, width) as tag:
            assert not page.is_visible(tag), width
    tab = another_tab(page)
    tab.wait_for_selector(".topbar-tools .several-tabs", state="visible")
    for width, _height in at_sizes(page, WINDOWS):
        with where_tabs_are_told_of(page, width) as tag:
            page.wait_for_selector(tag, state="visible")
            seen = [one.is_visible() for one in page.locator(".several-tabs").all()]
            assert seen.count(True) == 1, "said twice"
            shot(page, f"tabs-{width}")
    tab.goto("about:blank")
    for width, _height in at_sizes(page, WINDOWS):
        with where_tabs_are_told_of(page, width) as tag:
            page.wait_for_selector(tag, state="hidden")


@contextmanager
def where_tabs_are_told_of(page, width: int) -> Iterator[str]:
    """The place, in sight: in a narrow window the settings are opened for it, and closed again."""
    if width > 760:
        yield ".topbar-tools .several-tabs"
        return
    page.click(".topbar-tools [data-toggle=settings]")
    page.wait_for_selector("#settings", state="visible")
    yield "#settings .several-tabs"
    page.keyboard.press("Escape")
    page.wait_for_selector("#settings", state="hidden")
