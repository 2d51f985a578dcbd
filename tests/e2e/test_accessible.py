"""The page in each of its states against the WCAG 2.2 A and AA rules of axe-core
(https://github.com/dequelabs/axe-core).
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.desk.values import FolderMove
from app.store.relocation import Relocation
from tests.support.accessibility import problems
from tests.support.fake_runtime import SUMMARY, FakeRuntime
from tests.support.page_looks import SIZES, at_sizes, in_both_schemes, picture

pytestmark = pytest.mark.e2e


def in_colours(page, state: str) -> list[str]:
    """The problems of this state, in light colours and in dark ones; its pictures go to TRIFORCE_SHOTS."""
    wrong = []
    for scheme in in_both_schemes(page):
        wrong += [f"{state}, {scheme}: {line}" for line in problems(page)]
        picture(page, f"{state}-{scheme}")
    return wrong


def test_every_state_of_the_page(serve, open_page, drop, sample):
    page = open_page(serve(FakeRuntime(pace=0.1, prefill_steps=4, summary="\n\n".join([SUMMARY] * 40))))
    wrong = in_colours(page, "empty")
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    wrong += in_colours(page, "card")
    page.click("#summarize")
    page.wait_for_selector("#live-text p")
    page.wait_for_selector(".plot .line-tbt")
    wrong += in_colours(page, "streaming")
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer")
    wrong += in_colours(page, "finished")
    page.click(".topbar-tools [data-toggle=settings]")
    page.evaluate("for (const one of document.querySelectorAll('.settings-group')) one.open = true")
    wrong += in_colours(page, "settings")
    assert not wrong, "\n".join(wrong)


def at_every_size(page, state: str) -> list[str]:
    """The problems of this state at each of looking's sizes."""
    return [f"{state} at {size}: {line}" for size in at_sizes(page, SIZES) for line in problems(page)]


def test_every_size_and_the_programs_questions(serve, open_page, drop, sample, tmp_path):
    url = serve(FakeRuntime(pace=0.01))
    serve.server.end_with_last_tab()
    page = open_page(url)
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    wrong = at_every_size(page, "card")
    serve.desk.store.update(moving=FolderMove(Relocation(tmp_path / "old", tmp_path / "new", 10**9, True)))
    serve.desk.store.tell()
    page.wait_for_selector("[data-act=begin-move]")
    wrong += at_every_size(page, "move asked")
    serve.desk.store.update(moving=FolderMove(serve.desk.state.moving.move, 10**8, 40.0))
    serve.desk.store.tell()
    page.wait_for_selector(".moving [role=progressbar]")
    wrong += at_every_size(page, "moving")
    serve.desk.store.update(moving=None)
    serve.desk.store.update(was_left=True)
    serve.desk.store.tell()
    page.wait_for_selector("#leaving-question[open]")
    wrong += at_every_size(page, "leaving")
    page.keyboard.press("Enter")  # the first button has the focus: the keyboard alone answers
    page.wait_for_selector("#leaving-question", state="detached")
    page.goto(page.url.rstrip("/") + "/log")
    wrong += at_every_size(page, "log")
    assert not wrong, "\n".join(wrong)


TOLD = (
    "It begins with her watch, which “was never wrong and was no great company”.\n\n- She says that “it ran "
    "backwards on Sundays”.\n- The curator polished an emerald submarine in Norway."
)
OPEN_ALL = "for (const one of document.querySelectorAll('#desk details:not(.own)')) one.open = true"


def asked(page, question: str, *, answers: int) -> None:
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(f"#turns .answer footer >> nth={answers - 1}")


def test_a_finished_talk_with_its_marks_and_its_panel(serve, open_page, drop, sample):
    """Several answers with marks, one told again and compared, the panel unfolded; then the book with a
    bookmark, what was found, its chapters and a summary.
    """
    fake = FakeRuntime(pace=0.002, prefill_steps=2, summary=TOLD, answer=TOLD)
    fake.context_tokens = 65_536
    page = open_page(serve(fake), width=1920, height=1080)
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    for number, question in enumerate(("What of the stair?", "And her watch?", "Who told it?"), 2):
        asked(page, question, answers=number)
    page.click("[data-act=regenerate]")
    page.wait_for_selector("#turns [data-act=version]", state="attached")
    page.click("[data-act=compare]")
    page.wait_for_selector("#stat-compared")
    page.click(".levels-switch")
    page.evaluate(OPEN_ALL)
    for mark in ("a.cite", ".cite-missing", ".sign-nothing"):
        assert page.locator(f"#turns {mark}").count() >= 4, mark
    wrong = in_colours(page, "talk")
    page.click("#turns .text a.cite >> nth=-1")
    page.wait_for_selector("#passage", state="visible")
    reading = serve.desk.reader
    reading.mark(serve.desk.state.passage.offset, page.inner_text("#passage"))
    reading.note(serve.desk.state.passage.offset, "Compare with the stair.")
    page.fill("[data-find]", "watch")
    page.click(".tree > summary")
    page.click(".told [data-act=tell]")
    page.wait_for_selector(".told p")
    page.wait_for_selector(".found li")
    page.wait_for_selector(".marks")
    page.evaluate(OPEN_ALL)
    wrong += in_colours(page, "talk-book")
    assert not wrong, "\n".join(wrong)


# by role, with the name it is called by
LANDMARKS = {
    ("banner", "TriForce Chat"),
    ("navigation", "Library"),
    ("search", "Search everything"),
    ("main", "Book and conversation"),
    ("complementary", "Panel"),
}
_HEADINGS = """[...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .filter((one) => one.checkVisibility()).map((one) => [Number(one.tagName[1]), one.textContent.trim()])"""


def test_a_screen_reader_moves_by_landmarks_and_headings(serve, open_page, drop, sample):
    """All of the page was one "main"."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2, answer=f"## What\n\n{SUMMARY}")))
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    asked(page, "What of the stair?", answers=1)
    page.click("[data-act=regenerate]")
    page.wait_for_selector("#turns [data-act=version]", state="attached")
    page.evaluate(OPEN_ALL)
    for role, name in LANDMARKS:
        assert page.get_by_role(role, name=name, exact=True).count() == 1, role
    assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
    assert page.get_by_role("main").get_by_role("log").count() == 1
    assert page.get_by_role("navigation").get_by_role("search").count() == 1
    assert page.get_by_role("complementary").get_by_role("tab").count() == 2
    assert headings_in_order(page) > 4
    page.click("#tab-reader")
    page.wait_for_selector(".reader-text p")
    page.fill("[data-find]", "watch")
    page.wait_for_selector(".found li")
    assert headings_in_order(page) > 4


def headings_in_order(page) -> int:
    """How many the page has: one of the first level, and none below that skips one."""
    levels = page.evaluate(_HEADINGS)
    assert [level for level, _words in levels].count(1) == 1 and levels[0][0] == 1, levels
    assert all(then[0] <= before[0] + 1 for before, then in pairwise(levels)), levels
    return len(levels)
