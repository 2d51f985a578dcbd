"""Marks behind sentences in a real browser: there while the answer is written, there at its end, and a way
into the book.
"""

from __future__ import annotations

import pytest

from tests.support.fake_runtime import FakeRuntime

pytestmark = pytest.mark.e2e
ANSWER = (
    "There was a horseshoe of black steel, as tall as a child of four, built from seven plates.\n\n"
    "The curator polished an emerald submarine in Norway. " + "And so it went on and on, as they say. " * 60
)


def test_a_mark_stands_there_before_the_answer_is_complete_and_opens_the_book(serve, open_page, drop, sample):
    fake = FakeRuntime(pace=0.25, prefill_steps=2, answer=ANSWER)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".stage .card, #stage")
    page.fill("#question textarea", "What stood behind the door?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#live-text .sign-quoted")
    page.wait_for_selector("#live-text .sign-nothing")
    live = page.inner_text("#live-text .sign-quoted >> nth=0")
    assert page.locator("#turns .answer").count() == 0, "the answer was complete before its first mark"

    page.click("#live-text .sign-quoted >> nth=0")
    page.wait_for_selector("#passage")
    assert "horseshoe of black steel" in " ".join(page.inner_text("#passage").split())
    fake.pace = 0.001
    page.wait_for_selector("#turns .answer footer")
    assert page.inner_text("#turns .answer .sign-quoted >> nth=0") == live
    assert "Evidence: " in page.inner_text("#turns .answer footer")


def test_what_is_selected_in_an_answer_is_copied_without_its_marks(serve, open_page, sample):
    """Marks and places are the page's, not the answer's."""
    told = "She says it “was never wrong and was no great company”, and she sighs."
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2, answer=told)))
    serve.desk.imports.sample(serve.desk.imports.samples[1].name)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", "What of her watch?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer a.cite sup")
    copied = page.evaluate(
        """() => {
          getSelection().selectAllChildren(document.querySelector("#turns .answer .text"));
          return getSelection().toString();
        }"""
    )
    assert copied.strip() == told


def test_the_evidence_of_an_answer_unfolds_with_its_reasons_and_opens_the_book(
    serve, open_page, drop, sample
):
    """Where each mark leads, why it stands there, and that it is no proof."""
    page = open_page(serve(FakeRuntime(pace=0.001, prefill_steps=2, answer=ANSWER)))
    drop(page, sample)
    page.wait_for_selector(".stage .card, #stage")
    page.fill("#question textarea", "What stood behind the door?")
    page.press("#question textarea", "Enter")
    fold = page.locator("#turns .answer footer details.evidence").first
    fold.wait_for()
    assert not fold.locator("ul").is_visible()
    fold.locator("summary").click()
    fold.locator("ul").wait_for(state="visible")
    assert fold.locator("p.quiet").inner_text()
    first = fold.locator("li").first
    assert first.locator("span").inner_text().startswith("word for word")
    assert "horseshoe of black steel" in " ".join(first.locator("blockquote").inner_text().split())
    assert "emerald" not in fold.inner_text(), "what no passage says is no evidence"
    first.locator("button.cite").click()
    page.wait_for_selector("#passage")
    assert "horseshoe of black steel" in " ".join(page.inner_text("#passage").split())
