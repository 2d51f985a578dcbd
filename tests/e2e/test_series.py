"""A series in a browser: put in order by keyboard, volume 2 knows volume 1's people, and leads there."""

from __future__ import annotations

import pytest

from tests.support.browsing import FOCUSED, tab_to
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.page_looks import picture, wrong_looks

pytestmark = pytest.mark.e2e
FIRST, SECOND = "The Light on the Holm", "The Thursday Clock"
PUT = "[data-act=follow]"
WIDER = """() => [...document.querySelectorAll('#series, #names')]
  .filter((pane) => pane.scrollWidth > pane.clientWidth).map((pane) => `${pane.id} is wider than its pane`)"""


def test_volumes_are_ordered_by_keyboard_and_the_second_knows_the_first(serve, open_page):
    page = open_page(serve(FakeRuntime(pace=0.002)))
    desk = serve.desk
    for sample in desk.imports.samples[:2]:
        desk.imports.sample(sample.name)
        wait_until(lambda: desk.state.opening is None)
    assert desk.books.current.title == SECOND
    page.click("#tab-reader")
    page.wait_for_selector(".reader-text p[data-offset]")
    tab_to(page, ".series > summary")
    page.keyboard.press("Enter")
    tab_to(page, PUT)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".volumes li >> nth=1")
    assert page.locator(".volumes b").all_inner_texts() == [FIRST, SECOND]
    tab_to(page, f"[data-act=volume-on][data-id='{desk.library.entries()[1].id}']")
    page.keyboard.press("Enter")
    page.wait_for_selector(f".volumes li:first-child b:has-text('{SECOND}')")
    assert page.evaluate(FOCUSED % "[data-act=volume-on]"), "drawn anew it keeps the focus"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(f".volumes li:first-child b:has-text('{FIRST}')")
    desk.names.up_to("all")
    page.wait_for_selector(".name-known")
    tab_to(page, ".name-row:has(.name-known)")
    page.keyboard.press("Enter")
    page.wait_for_selector(".name-earlier blockquote")
    wrong = wrong_looks(page, "series", lambda: page.evaluate(WIDER))
    assert not wrong, "\n".join(wrong)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.click(".series > summary")
    page.locator(".name-earlier").scroll_into_view_if_needed()
    picture(page, "series-names")
    wanted = page.get_attribute(".name-earlier .cite", "data-offset")
    page.focus(".name-earlier .cite")
    page.keyboard.press("Enter")
    page.wait_for_selector(f".reader-text[data-place^='{wanted}:'] #passage")
    assert desk.books.current.title == FIRST
