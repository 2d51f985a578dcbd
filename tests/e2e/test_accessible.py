"""The page in each of its states against the WCAG 2.2 A and AA rules of axe-core
(https://github.com/dequelabs/axe-core).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.moving import Move
from app.storage import Moving
from tests.app.fake_runtime import SUMMARY, FakeRuntime
from tests.e2e.looking import picture

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="no axe: pip install -r requirements-test.txt"
)
pytestmark = pytest.mark.e2e
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "resultTypes": ["violations"],  # what is in order is not described: it takes most of the time
}
SOURCE = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
SETTLED = """() => {
  const ending = document.getAnimations().filter((a) => a.effect?.getTiming().iterations !== Infinity);
  return Promise.allSettled(ending.map((a) => a.finished));
}"""


def problems(page) -> list[str]:
    """Rule, first element and why, for each violation; animations that end are waited for, since axe reads
    colours.
    """
    page.evaluate(SETTLED)
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(SOURCE)
    found = page.evaluate("(rules) => axe.run(rules).then((told) => told.violations)", RULES)
    return [
        f"{rule['id']}: {node['html'][:160]} ({node['failureSummary'][:300]})"
        for rule in found
        for node in rule["nodes"][:2]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_of_the_page(serve, open_page, drop, sample, scheme):
    page = open_page(serve(FakeRuntime(pace=0.1, summary="\n\n".join([SUMMARY] * 40))), color_scheme=scheme)
    found = {"empty": problems(page)}
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    found["card"] = problems(page)
    page.click("#summarize")
    page.wait_for_selector("#live-text p")
    page.wait_for_selector(".plot .line-tbt")
    found["streaming"] = problems(page)
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer")
    found["finished"] = problems(page)
    page.click(".topbar-tools [data-toggle=settings]")
    page.evaluate("for (const one of document.querySelectorAll('.settings-group')) one.open = true")
    found["settings"] = problems(page)
    wrong = [f"{state}: {line}" for state, lines in found.items() for line in lines]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("width", "height", "scale"),
    [(1280, 800, 1), (1920, 1080, 1), (900, 800, 1), (390, 844, 1), (640, 400, 2)],
)
def test_every_size_and_the_programs_questions(
    serve, open_page, drop, sample, tmp_path, width, height, scale
):
    """640 by 400 at two pixels each is 1280 by 800 at 200 % zoom."""
    url = serve(FakeRuntime(pace=0.01))
    serve.server.end_with_last_tab()
    page = open_page(url, width=width, height=height, device_scale_factor=scale)
    drop(page, sample)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    found = {"card": problems(page)}
    serve.desk.storage.moving = Moving(Move(tmp_path / "old", tmp_path / "new", 10**9, True))
    serve.desk.change()
    page.wait_for_selector("[data-act=begin-move]")
    found["move asked"] = problems(page)
    serve.desk.storage.moving = Moving(serve.desk.storage.moving.move, 10**8, 40.0)
    serve.desk.change()
    page.wait_for_selector(".moving [role=progressbar]")
    found["moving"] = problems(page)
    serve.desk.storage.moving = None
    serve.desk.was_left = True
    serve.desk.change()
    page.wait_for_selector("#leaving-question[open]")
    found["leaving"] = problems(page)
    page.keyboard.press("Enter")  # the first button has the focus: the keyboard alone answers
    page.wait_for_selector("#leaving-question", state="detached")
    page.goto(page.url.rstrip("/") + "/log")
    found["log"] = problems(page)
    wrong = [f"{state}: {line}" for state, lines in found.items() for line in lines]
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_finished_talk_with_its_marks_and_its_panel(serve, open_page, drop, sample, scheme):
    """Several answers with marks, one told again and compared, the panel unfolded; then the book with a
    bookmark, what was found, its chapters and a summary.
    """
    fake = FakeRuntime(pace=0.002, prefill_steps=2, summary=TOLD, answer=TOLD)
    fake.context_tokens = 65_536
    page = open_page(serve(fake), width=1920, height=1080, color_scheme=scheme)
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
    found = {"talk": problems(page)}
    picture(page, f"talk-{scheme}")
    page.click("#turns .text a.cite >> nth=-1")
    page.wait_for_selector("#passage", state="visible")
    reading = serve.desk.reading
    reading.mark(reading.passage.offset, page.inner_text("#passage"))
    reading.note(reading.passage.offset, "Compare with the stair.")
    page.fill("[data-find]", "watch")
    page.click(".tree > summary")
    page.click(".told [data-act=tell]")
    page.wait_for_selector(".told p")
    page.wait_for_selector(".found li")
    page.wait_for_selector(".marks")
    page.evaluate(OPEN_ALL)
    found["book"] = problems(page)
    picture(page, f"talk-book-{scheme}")
    wrong = [f"{state}: {line}" for state, lines in found.items() for line in lines]
    assert not wrong, "\n".join(wrong)
