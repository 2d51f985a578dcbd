"""The tree of chapters in a browser: ticks, summaries beside the text, export."""

from __future__ import annotations

import pytest
from ebooklib import ITEM_DOCUMENT, epub

from tests.support.accessibility import problems
from tests.support.fake_runtime import FakeRuntime, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def tree(serve, open_page):
    """The sample book's tree, unfolded: (page, desk)."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    desk = serve.desk
    desk.imports.sample(desk.imports.samples[1].name)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    page.click("#tab-reader")
    page.click(".tree > summary")
    return page, desk


def test_ticks_choose_what_is_read_and_told(tree):
    page, desk = tree
    assert "tokens" in page.inner_text(".tree li:has(input) >> nth=0")
    assert problems(page) == []
    page.check(".tree input >> nth=1")
    page.check(".tree input >> nth=3")
    page.click("[data-act=summarize-selected]")
    wait_until(lambda: desk.books.turns and not desk.state.busy)
    assert desk.engine.asked[-1].selected_chapters == (2, 4)
    page.wait_for_selector(".tree li:has-text('summarised') >> nth=1")
    assert page.locator(".tree li:has-text('summarised')").count() == 2
    page.click("[data-act=untick]")
    page.wait_for_selector("[data-act=untick]", state="detached")
    assert page.locator(".tree input:checked").count() == 0


def test_all_up_to_a_chapter_is_told_and_every_summary_goes_out_in_four_forms(tree):
    page, desk = tree
    page.hover(".tree li:has(input) >> nth=2")
    page.click(".tree li:has(input) >> nth=2 >> [data-act=tell-up-to]")
    page.wait_for_selector(".tree li:has-text('summarised') >> nth=2")
    wait_until(lambda: not desk.state.busy)
    assert page.locator(".tree li:has-text('summarised')").count() == 3
    for form in ("Markdown", "HTML", "JSON"):
        with page.expect_download() as sent:
            page.click(f".tree-export >> text={form}")
        told = sent.value.path().read_text(encoding="utf-8")
        assert told.count("Told of") == 3 and desk.books.current.chapters[2].title in told
    with page.expect_download() as sent:
        page.click(".tree-export >> text=EPUB")
    made = epub.read_epub(sent.value.path())
    names = [one.file_name for one in made.get_items_of_type(ITEM_DOCUMENT)]
    assert [f"summary-{number}.xhtml" in names for number in (1, 2, 3)] == [True] * 3


def test_a_chapters_summary_stands_beside_its_text_and_the_next_is_one_key_away(tree):
    page, desk = tree
    page.click(".tree li:has(input) >> nth=1 >> .tree-title")
    page.click(".told [data-act=tell]")
    page.wait_for_selector(".told p:has-text('Told of')")
    first = page.inner_text(".told p")
    wait_until(lambda: not desk.state.busy)
    page.focus(".reader-text")
    page.keyboard.press("n")
    page.wait_for_selector(".told [data-act=tell]")
    page.keyboard.press("p")
    page.wait_for_selector(".told p")
    assert page.inner_text(".told p") == first
    with page.expect_download() as sent:
        page.click(".tree-export >> text=Markdown")
    assert first in sent.value.path().read_text(encoding="utf-8")
