"""Conversations, chapters, bookmarks and files by keyboard alone, in a browser: only keys are pressed."""

from __future__ import annotations

import pytest

from tests.support.browsing import FOCUSED, tab_to
from tests.support.fake_runtime import ANSWER, FakeRuntime

pytestmark = pytest.mark.e2e


@pytest.fixture
def begun(serve, open_page):
    """A page with a sample on it and an engine that answers at once: (page, engine)."""
    fake = FakeRuntime(pace=0.002, prefill_steps=2)
    page = open_page(serve(fake))
    desk = serve.desk
    desk.imports.sample(desk.imports.samples[1].name)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    return page, fake


def ask(page, question: str, *, answers: int) -> None:
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    page.keyboard.type(question)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#turns .answer footer >> nth={answers - 1}")


def press(page, name: str, key: str = "Enter") -> None:
    """Goes to what is named by the Tab key, from the top of the page, and presses it."""
    page.evaluate("document.activeElement.blur()")
    tab_to(page, name)
    page.keyboard.press(key)


def go(page, name: str) -> None:
    """Through the shelf by arrows, from the open book on."""
    page.evaluate("document.activeElement.blur()")
    tab_to(page, ".shelf button")
    page.keyboard.press("ArrowDown")
    for _ in range(4):
        if page.evaluate(FOCUSED % name):
            return
        page.keyboard.press("ArrowRight")
    raise AssertionError(f"{name} is not to be reached by arrows")


def test_a_conversation_without_a_mouse(begun):
    page, fake = begun
    ask(page, "Who keeps the clocks?", answers=1)
    ask(page, "And who winds them?", answers=2)
    fake.answer = "Nobody winds them."
    press(page, "[data-act=regenerate]")
    page.wait_for_selector("#turns .answer:last-child .text:has-text('Nobody winds them.')")
    press(page, "#turns .evidence:has([data-version]) > summary")
    press(page, "[data-act=version]")
    page.wait_for_selector("#turns .answer:last-child .text:has-text('that the lamp went out once')")
    press(page, "[data-act=compare]")
    page.wait_for_selector("#stat-compared")

    press(page, "#turns .turn:nth-child(3) [data-act=ask-otherwise]")
    page.wait_for_function("document.querySelectorAll('#turns .bubble').length === 1")
    assert page.evaluate(FOCUSED % "#question textarea"), "the question is there to be written anew"
    page.keyboard.press("Control+a")
    page.keyboard.type("Who winds them on Sundays?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert [said.answer for said in fake.asked[-1].history] == [ANSWER]
    press(page, "#turns [data-act=fork]")
    page.wait_for_selector(".talks li >> nth=2")

    press(page, ".export summary")
    page.keyboard.press("Tab")
    with page.expect_download() as sent:
        page.keyboard.press("Enter")
    assert "Who keeps the clocks?" in sent.value.path().read_text(encoding="utf-8")
    press(page, ".own summary")
    page.keyboard.press("Tab")
    page.keyboard.type("Answer in German.")
    page.keyboard.press("Tab")
    page.wait_for_selector(".own summary:has-text('Answer in German.')")


def test_the_shelfs_conversations_without_a_mouse(begun):
    page, _fake = begun
    ask(page, "Who keeps the clocks?", answers=1)
    page.wait_for_selector(".talks li")
    page.once("dialog", lambda dialog: dialog.accept("Clocks and keepers"))
    go(page, "[data-act=rename-talk]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".talks [data-act=talk]:has-text('Clocks and keepers')")
    go(page, "[data-act=pin-talk]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".talks .ghost-on")
    go(page, "[data-act=forget-talk]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".talks li", state="detached")
    press(page, "[data-act=undo]")
    page.wait_for_selector(".talks [data-act=talk]:has-text('Clocks and keepers')")
    press(page, "[data-search]")
    page.keyboard.type("lamp went out")
    page.wait_for_selector(".hits button")
    press(page, ".hits button")
    page.wait_for_selector("#turns .bubble:has-text('Who keeps the clocks?')")


def test_the_choice_at_a_full_context_without_a_mouse(begun):
    page, fake = begun
    fake.answer = " ".join([ANSWER] * 8)
    ask(page, "Who keeps the clocks?", answers=1)
    ask(page, "And who winds them?", answers=2)
    room = fake.room(fake.asked[-1])
    fake.context_tokens = room["text"] + 2 * sum(room["turns"]) + room["answer"]
    page.keyboard.type("What is the last thing that the clock says?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".crowded")
    assert page.evaluate(FOCUSED % ".crowded")
    page.keyboard.press("Enter")  # once more by mistake: nothing is chosen
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED % ".crowded [data-act=retell-oldest]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#turns .answer footer >> nth=2")
    assert fake.asked[-1].question.startswith("What is the last thing")
    assert page.evaluate(FOCUSED % "#question textarea")


def test_chapters_and_bookmarks_without_a_mouse(begun):
    page, fake = begun
    press(page, "#tab-live")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".reader-text p")
    press(page, ".tree > summary")
    press(page, ".tree input", "Space")
    page.wait_for_selector("[data-act=summarize-selected]")
    press(page, "[data-act=summarize-selected]")
    page.wait_for_selector(".tree li:has-text('summarised')")
    page.wait_for_selector("body[data-connected] .engine-ready")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, ".tree-export a")
    with page.expect_download() as sent:
        page.keyboard.press("Enter")
    assert "Told of" in sent.value.path().read_text(encoding="utf-8")
    press(page, ".tree > summary")
    press(page, "[data-find]")
    page.keyboard.type("clock")
    page.wait_for_selector(".found li")
    page.keyboard.press("Enter")
    page.wait_for_selector("#passage")
    page.keyboard.press("Escape")
    page.wait_for_selector(".found", state="detached")
    press(page, ".reader-text", "b")
    page.wait_for_selector(".marks")
    press(page, ".marks summary")
    press(page, "[data-note]", "X")
    page.keyboard.press("Tab")
    press(page, ".tree > summary")
    page.once("dialog", lambda dialog: dialog.accept())
    press(page, "[data-act=unmark]")
    page.wait_for_selector(".marks", state="detached")
