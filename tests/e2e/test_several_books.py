"""One question to several books in a browser: ticked, answered book by book, and led into the right book."""

from __future__ import annotations

import re

import pytest

from tests.support.accessibility import problems
from tests.support.browsing import tab_to
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.page_looks import at_sizes, faults, in_both_schemes, picture

pytestmark = pytest.mark.e2e
TOLD = "It says “{}” and no more."
TOO = ".asks-too > summary"


def test_a_question_goes_to_ticked_books_by_keyboard_and_each_answer_leads_into_its_own(serve, open_page):
    engine = FakeRuntime(pace=0.002, prefill_steps=2)
    page = open_page(serve(engine))
    desk = serve.desk
    for sample in desk.imports.samples[:2]:
        desk.imports.sample(sample.name)
        wait_until(lambda: desk.state.opening is None)
    here, other = desk.books.current, desk.library.entries()[1]
    whole = desk.library.get(other.id)
    body = whole.text[whole.chapters[1].start :]
    quoted = re.search(r"(?<=[.] )[A-Z][a-z ,]{50,90}(?=[.])", body)[0]
    engine.answer = TOLD.format(quoted)
    tab_to(page, TOO)
    page.keyboard.press("Enter")
    tab_to(page, "[data-act=ask-too]")
    page.keyboard.press("Space")
    page.wait_for_selector(".asks-too small:has-text('1 book')")
    page.fill("#question textarea", "What of the tide?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector(".book-answers [data-act=put-away-books]")
    assert quoted[:20] in page.inner_text(".book-answer") and desk.state.book_id == here.sha256
    page.locator(".book-answers").scroll_into_view_if_needed()
    for scheme in in_both_schemes(page):
        assert problems(page) == []
        picture(page, f"several-{scheme}")
    for size in at_sizes(page, [(390, 844)]):
        page.locator(".book-answers").scroll_into_view_if_needed()
        assert faults(page) == [], size
        picture(page, "several-phone")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click(".book-answers [data-act=place]")
    page.wait_for_selector("#passage")
    assert desk.state.book_id == other.id
    assert whole.text[desk.state.passage.offset :].startswith(quoted[:20])
