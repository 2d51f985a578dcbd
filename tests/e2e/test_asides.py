"""Explain this: selected words, one press, and the answer beside the text."""

from __future__ import annotations

import pytest

from tests.support.accessibility import problems
from tests.support.browsing import open_reader, select
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import picture, wrong_looks

pytestmark = pytest.mark.e2e
TOLD = "It is the lamp that hangs on the left. The railway has a clock for it."


@pytest.fixture
def reading(serve, open_page, drop, sample):
    """The sample book, open in its pane, beside a model that explains."""
    fake = FakeRuntime(pace=0.01, answer=TOLD)
    page = open_page(serve(fake))
    page.wait_for_selector(".engine-ready")
    fake.model_name = "a model that follows wishes"
    open_reader(page, drop, sample)
    return page


def words_of(page) -> str:
    return page.evaluate(
        "document.querySelector('.reader-text p[data-offset]').innerText.slice(4, 40).trim()"
    )


def test_a_model_that_explains_nothing_is_not_offered_for_it(serve, open_page, drop, sample):
    """Three buttons that led to a refusal each."""
    fake = FakeRuntime(pace=0.01)
    fake.model_name = "SmolLM2-135M-Instruct"
    page = open_page(serve(fake))
    page.wait_for_selector(".engine-ready")
    open_reader(page, drop, sample)
    select(page, words_of(page))
    page.wait_for_selector(".selected [data-cited]")
    assert page.locator(".selected [data-explain]:visible").count() == 0


def test_selected_words_are_explained_without_typing(reading, serve):
    words = words_of(reading)
    select(reading, words)
    reading.click("[data-explain=meaning]")
    reading.wait_for_selector(".aside .aside-answer p:has-text('lamp that hangs')")
    reading.wait_for_selector(".aside:has-text('It can be wrong')")
    assert words.split()[0] in reading.inner_text(".aside blockquote")
    assert serve.desk.engine.asked[-1].low_priority
    reading.click(".aside [data-act=cite]")
    reading.wait_for_selector("#passage")
    reading.click(".aside .ghost[data-act=dismiss-aside]")
    reading.wait_for_selector(".aside", state="detached")
    assert reading.locator("#turns .answer").count() == 0, "the conversation is left alone"


def test_the_keyboard_asks_what_the_place_means(reading):
    reading.focus(".reader-text")
    reading.keyboard.press("e")
    reading.wait_for_selector(".aside:has-text('What it means here')")


def test_ask_about_it_puts_the_words_into_the_question(reading):
    words = words_of(reading)
    select(reading, words)
    reading.click("[data-ask-about]")
    assert words.split()[0] in reading.input_value("#question textarea")
    assert reading.evaluate("document.activeElement.matches('#question textarea')")


def test_a_model_that_explains_nothing_says_so(reading, serve):
    serve.desk.engine.model_name = "SmolLM2-135M-Instruct"
    select(reading, words_of(reading))
    reading.click("[data-explain=speaker]")
    reading.wait_for_selector("#notice:has-text('Choose a larger one')")
    assert reading.locator(".aside").count() == 0


def test_it_holds_to_accessibility_rules_in_both_colours_and_at_every_size(reading):
    words = words_of(reading)
    select(reading, words)
    picture(reading, "selected")
    wrong = [f"selected: {line}" for line in problems(reading)]
    reading.click("[data-explain=meaning]")
    reading.wait_for_selector(".aside:has-text('It can be wrong')")
    room = "document.querySelector('.reader-text').getBoundingClientRect().height"
    wrong += wrong_looks(
        reading, "aside", lambda: [] if reading.evaluate(room) >= 60 else ["no room for the text"]
    )
    assert not wrong, "\n".join(wrong)


def test_who_somebody_is_so_far_stands_in_the_panel_with_its_places(reading, serve):
    serve.desk.engine.answer = "Mr. Tull gave him a chair and a cup of tea. He is Captain Nemo of Norway."
    serve.desk.reader.show(serve.desk.books.current.sections[3].start)
    reading.click("[data-act=names]")
    reading.click('.name-row[data-id$="Tull"]')
    reading.click("[data-act=portray]")
    reading.wait_for_selector(".portrait:has-text('a cup of tea') [data-act=cite]")
    assert "Nemo" not in reading.inner_text("#names")
    picture(reading, "portrait")
