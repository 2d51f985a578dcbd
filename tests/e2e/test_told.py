"""What the embedded model tells of a book, in a browser: it streams, and the panel is alive."""

from __future__ import annotations

import re

import pytest

from tests.support.whole_app import answered, visited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
OFFERED = "[data-act=suggest]:has-text('{}')"


def figures(page, *, enough: int) -> set[str]:
    """What the panel says of acceptance while an answer is written, until it has changed so often."""
    seen: set[str] = set()
    while len(seen) < enough and page.query_selector("#turns .answer footer") is None:
        said = " ".join(page.locator(".level small").all_inner_texts())
        seen |= {said} if re.search(r"\d", said) else set()
        page.wait_for_timeout(100)
    return seen


def test_acceptance_moves_while_a_summary_is_told(launch, open_page, drop, sample):
    """The main job on the model that comes with the program: the book's own sentences at once, then told in
    their place by TriForce, with the figures of every level.
    """
    page = visited(open_page, launch(reading_mode="auto", max_new_tokens=512).url)
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    page.click("#summarize")
    page.wait_for_selector("#live-text p:has-text('“')")
    assert page.query_selector("#turns .answer footer") is None
    page.wait_for_selector("#live-text ins")
    page.wait_for_selector("#prefill-box:has-text('Telling part')")
    seen = figures(page, enough=3)
    assert len(seen) == 3, seen
    page.click("#prefill-box [data-act=stop]")
    answered(page)
    assert len(page.inner_text("#turns .answer .text").split()) > 200, "what was told stays, the rest stands"
    assert "Stopped" in page.inner_text("#turns .answer footer")


def test_the_questions_that_the_page_offers_are_told_with_the_panel_alive(launch, open_page, drop, sample):
    """What is decoded streams, with acceptance and time between tokens; people are counted without a model,
    at once, and the panel says that nothing was decoded.
    """
    page = visited(open_page, launch(reading_mode="auto", max_new_tokens=512).url)
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    for question in ("How does it end?", "What is it about?"):
        page.click(OFFERED.format(question))
        page.wait_for_selector("#live-text ins")
        seen = figures(page, enough=3)
        assert len(seen) == 3, (question, seen)
        assert re.search(r"\d", page.inner_text("#stat-tbt-p50")), question
        page.click("#stop button")
        answered(page)
        page.click("text=New conversation")
        page.wait_for_selector("#turns .answer", state="detached")
    page.click(OFFERED.format("Who are the main characters?"))
    answered(page)
    told = page.inner_text("#turns .answer .text")
    assert all(name in told for name in ("Pell", "Tull", "Isaac Rudd", "Peg Marsh", "Ormerod")), told
    assert page.is_visible("#stat-undecoded")
