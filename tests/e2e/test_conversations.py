"""Conversations in a browser: named, pinned, deleted and brought back, forked, compared."""

from __future__ import annotations

import os

import pytest

from core.request import Request
from tests.support.accessibility import problems
from tests.support.browsing import ask
from tests.support.fake_runtime import ANSWER, FakeRuntime

pytestmark = pytest.mark.e2e
REUSED = r"/\d,\d{3} reused/.test(document.querySelector('#stat-prefill')?.innerText ?? '')"


def test_conversations_are_named_deleted_and_brought_back(serve, open_page, drop, sample):
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    page.once("dialog", lambda dialog: dialog.accept("Clocks and keepers"))
    page.hover(".talks li")
    page.click("[data-act=rename-talk]")
    page.wait_for_selector(".talks [data-act=talk]:has-text('Clocks and keepers')")
    page.hover(".talks li")
    page.click("[data-act=pin-talk]")
    page.wait_for_selector(".talks .ghost-on")
    page.hover(".talks li")
    page.click("[data-act=forget-talk]")
    page.wait_for_selector(".notice:has-text('deleted') [data-act=undo]")
    assert page.locator(".talks li").count() == 0
    page.click("[data-act=undo]")
    page.wait_for_selector(".talks [data-act=talk]:has-text('Clocks and keepers')")
    page.wait_for_selector("#turns .bubble:has-text('Who keeps the clocks?')")
    page.click("#talkbar [data-act=clear]")  # the one that is open, from above it
    page.wait_for_selector(".talks li", state="detached")
    page.click("[data-act=undo]")
    page.wait_for_selector("#turns .bubble:has-text('Who keeps the clocks?')")


def test_many_conversations_about_one_book_and_the_pinned_one_first(serve, open_page, drop, sample):
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    page.click("[data-act=new]")
    page.wait_for_selector("#turns .bubble", state="detached")
    ask(page, "Who winds them?", answers=1)
    page.wait_for_selector(".talks li >> nth=1")
    first = ".talks li >> nth=0 >> [data-act=talk]"
    assert page.inner_text(first) == "Who winds them?", "the newest stands first"
    page.click(".talks [data-act=talk]:has-text('Who keeps')")
    page.wait_for_selector("#turns .bubble:has-text('Who keeps the clocks?')")
    page.hover(".talks li >> nth=1")
    page.click(".talks li:has-text('Who keeps') [data-act=pin-talk]")
    page.wait_for_selector(".talks li >> nth=0 >> [data-act=talk]:has-text('Who keeps')")
    ask(page, "And on Sundays?", answers=2)
    for _newer in range(13):
        serve.desk.history.ask(serve.desk.history.create(serve.desk.state.book_id).id, Request("Who else?"))
    serve.desk.library.touch(serve.desk.state.book_id)
    serve.desk.store.tell()
    page.reload()
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert page.inner_text(first) == "Who keeps the clocks?"
    page.click(".older summary:has-text('3 more')")  # from the thirteenth on they could not be reached
    page.click(".older [data-act=talk]:has-text('Who winds them?')")
    page.wait_for_selector("#turns .bubble:has-text('Who winds them?')")
    page.wait_for_selector(".older[open] [data-act=talk][aria-current]")


def test_a_turn_is_forked_asked_otherwise_and_compared(serve, open_page, drop, sample):
    fake = FakeRuntime(pace=0.002, prefill_steps=2)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    ask(page, "And who winds them?", answers=2)
    fake.answer = "Nobody winds them."
    page.click("[data-act=regenerate]")
    page.wait_for_selector("#turns .answer:last-child .text:has-text('Nobody winds them.')")
    page.click("#turns summary:has-text('1 other version')")
    page.wait_for_selector("#turns .evidence blockquote:has-text('that the lamp went out once')")
    assert problems(page) == []
    if folder := os.environ.get("TRIFORCE_SHOTS"):
        page.screenshot(path=f"{folder}/versions.png")
    page.click("[data-act=version]")
    page.wait_for_selector("#turns .answer:last-child .text:has-text('that the lamp went out once')")

    page.click("#turns .asked [data-act=ask-otherwise] >> nth=1")
    page.wait_for_function("document.querySelectorAll('#turns .bubble').length === 1")
    assert page.input_value("#question textarea") == "And who winds them?"
    page.fill("#question textarea", "Who winds them on Sundays?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert [said.answer for said in fake.asked[-1].history] == [ANSWER]
    page.wait_for_function(REUSED)  # what was read of the book serves the copy, too
    assert page.locator(".talks li").count() == 2
    page.click("#turns [data-act=fork] >> nth=0")
    page.wait_for_selector(".talks li >> nth=2")
    assert page.locator("#turns .bubble").count() == 1
    ask(page, "And who pays them?", answers=2)
    page.wait_for_function(REUSED)


def test_a_conversation_goes_out_and_comes_in_again(serve, open_page, drop, sample, tmp_path):
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    page.click(".export summary")
    assert problems(page) == []
    if folder := os.environ.get("TRIFORCE_SHOTS"):
        page.screenshot(path=f"{folder}/export.png")
    with page.expect_download() as html:
        page.click("a[href='/export?form=html']")
    page.wait_for_selector(".export:not([open])")
    page.click(".export summary")
    assert html.value.suggested_filename == "The Thursday Clock.html"
    with page.expect_download() as plain:
        page.click("a[href='/export?form=md']")
    page.click(".export summary")
    assert "Who keeps the clocks?" in plain.value.path().read_text(encoding="utf-8")
    with page.expect_download() as cards:
        page.click("a[href='/export?form=tsv']")
    assert cards.value.suggested_filename == "The Thursday Clock.tsv"
    assert cards.value.path().read_text(encoding="utf-8").startswith("#separator:tab\n#html:true\n")
    failed = []
    page.on("download", lambda broken: failed.append(broken))
    page.click(".export summary")
    page.click("a[href='/export?form=epub']")
    page.wait_for_selector(".notice-error:has-text('no summary in this conversation')")
    page.click(".export summary")
    page.keyboard.press("Escape")
    page.wait_for_selector(".export:not([open])")
    page.click(".export summary")
    page.click("#question textarea")
    page.wait_for_selector(".export:not([open])")
    assert failed == [], "what cannot be made leaves no broken download"
    page.click(".export summary")
    with page.expect_download() as told:
        page.click("a[href='/export?form=json']")
    file = tmp_path / "talk.json"
    told.value.save_as(file)
    page.click(".export summary")
    with page.expect_file_chooser() as chooser:
        page.click("[data-bring-in]")
    chooser.value.set_files(file)
    page.wait_for_selector(".notice")
    assert page.locator(".talks li").count() == 1, "it is there already"
    file.write_text(file.read_text(encoding="utf-8").replace(ANSWER, "Nobody."), encoding="utf-8")
    drop(page, file, "#middle")
    page.wait_for_selector(".talks li >> nth=1")
    page.wait_for_selector("#turns .bubble:has-text('Who keeps the clocks?')")
    file.write_text("{}")
    drop(page, file, "#middle")
    page.wait_for_selector(".notice-error:has-text('no conversation')")


def test_a_long_title_is_told_whole_and_its_tools_come_with_the_mouse(serve, open_page, drop, sample):
    question = (
        "Who keeps the lamp on the island, and what does he hide from everybody through all these years?"
    )
    page = open_page(serve(FakeRuntime(pace=0.005)))
    drop(page, sample)
    ask(page, question, answers=1)
    assert page.get_attribute(".talks [data-act=talk]", "title").startswith("Who keeps the lamp")
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
