"""What a long book, long notes and long titles may not push out of sight, at the smallest common window."""

from __future__ import annotations

import os

import pytest

from tests.support.fake_runtime import ANSWER, FakeRuntime

pytestmark = pytest.mark.e2e
QUESTION = "Who keeps the lamp on the island, and what does he hide from everybody through all these years?"
SIZES = ((1280, 800), (900, 700), (640, 400), (390, 844))
SEEN = """() => [...document.querySelectorAll("[data-act='summarize']")].some((one) => {
  const box = one.getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return box.width && top === one;
})"""


class LongBook(FakeRuntime):
    """Says of every book that it is read in 75 parts, and a lot besides."""

    def card(self, book, until=None):
        """See FakeRuntime."""
        notes = [f"Chapter {number} holds pictures whose text is not read. " * 2 for number in range(9)]
        parts = [f"Chapter {number}: The day of the long road" for number in range(1, 76)]
        return {
            **super().card(book, until),
            "fits": False,
            "share_of_context": 26.4,
            "parts": parts,
            "notes": notes,
        }


def test_main_action_is_in_sight_with_a_long_book(serve, open_page, drop, sample):
    """75 chips of parts and a list of notes pushed "Summarise" below the fold."""
    page = open_page(serve(LongBook(pace=0.005)), width=1280, height=800)
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    composer = page.locator("#composer").bounding_box()

    def is_in_sight() -> bool:
        box = page.locator("#summarize").bounding_box()
        return box["y"] > 60 and box["y"] + box["height"] <= composer["y"]

    assert is_in_sight() and not page.is_visible(".parts li")
    page.click("summary:has-text('75 parts')")
    assert page.is_visible(".parts li") and is_in_sight()
    page.click("summary:has-text('more notes')")
    assert is_in_sight()
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("innerWidth === " + str(width))
        page.evaluate("document.getElementById('scroller').scrollTop = 0")
        if folder := os.environ.get("TRIFORCE_SHOTS"):
            page.screenshot(path=f"{folder}/card-{width}.png")
        assert page.evaluate(SEEN), (width, height)
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")


def test_the_main_action_is_in_sight_at_the_end_of_a_long_talk(serve, open_page, drop, sample):
    """It stood above the first question, and went away with it."""
    page = open_page(serve(FakeRuntime(pace=0.001, answer="\n\n".join([ANSWER] * 12))))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", QUESTION)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("document.getElementById('scroller').scrollTop = 1e6")
        page.wait_for_function(SEEN, timeout=5000)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, height)
        if folder := os.environ.get("TRIFORCE_SHOTS"):
            page.screenshot(path=f"{folder}/talk-end-{width}.png")
    page.click("#again button")
    page.wait_for_selector("#turns .answer footer >> nth=1")


def test_title_of_a_conversation_stays_in_its_column(serve, open_page, drop, sample):
    """A long question ran out of the left column, over its border."""
    page = open_page(serve(FakeRuntime(pace=0.005)))
    drop(page, sample)
    page.fill("#question textarea", QUESTION)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer")
    title = page.locator(".talks [data-act=talk]")
    column, box = page.locator("#left").bounding_box(), title.bounding_box()
    assert box["x"] + box["width"] < column["x"] + column["width"]
    assert page.evaluate(
        "document.querySelector('#left').scrollWidth <= document.querySelector('#left').clientWidth"
    )
    assert title.get_attribute("title").startswith("Who keeps the lamp")
    page.hover(".talks li")
    assert page.is_visible(".talks [data-act='forget-talk']")


def test_copy_takes_the_numbers_of_a_list_along(serve, open_page, drop, sample):
    """A browser draws the numbers beside the text: copied, "the second point" had nothing to refer to."""
    told = "Two points:\n\n1. One.\n2. Two.\n\nBetween.\n\n3. Three.\n\n- Bare."
    page = open_page(serve(FakeRuntime(pace=0.005, summary=told)))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    drop(page, sample)
    page.click("#summarize")
    page.click("#turns .answer [data-copy]")
    page.wait_for_selector("[data-copy].done")
    copied = page.evaluate("navigator.clipboard.readText()").split("\n")
    lines = [line for line in copied if line]
    assert lines == ["Two points:", "1. One.", "2. Two.", "Between.", "3. Three.", "- Bare."]
    assert page.inner_text("#turns .answer li >> nth=0").startswith("One."), "the page itself is as it was"
