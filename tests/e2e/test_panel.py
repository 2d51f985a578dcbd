"""The panel in a browser: folded as it was left, the histogram, a comparison with plain decoding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.events import Acceptance, Delta, Finished
from tests.support.accessibility import problems
from tests.support.browsing import ask, shot
from tests.support.fake_runtime import ANSWER, FakeRuntime
from tests.support.page_looks import in_both_schemes

pytestmark = pytest.mark.e2e
FOLD = "details[data-fold={}]"
MIDDLE = """(selector) => {
  const one = document.querySelector(selector);
  one.scrollIntoView({ block: "center" });
  const box = one.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2]; }"""


def test_the_panel_is_folded_as_it_was_left(serve, open_page, drop, sample):
    """Drawn anew four times a second, it lost a fold that was pressed before and released behind that, and a
    page that went at once forgot it.
    """
    # as good as endless: it is written until it is stopped, however busy the machine is
    fake = FakeRuntime(pace=0.05, prefill_steps=2, answer="\n\n".join([ANSWER] * 5000))
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", "Who keeps the clocks?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#panel .bars")
    page.focus(f"{FOLD.format('tbt')} > summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{FOLD.format('tbt')}:not([open])")
    drawn_anew(page)
    press_across_a_drawing(page, f"{FOLD.format('sizes')} > summary")
    page.wait_for_selector(f"{FOLD.format('sizes')}:not([open])")
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer")
    assert page.locator(FOLD.format("tbt")).get_attribute("open") is None
    with page.expect_navigation():
        one = page.locator(f"{FOLD.format('plan')} > summary")
        one.evaluate("one => { one.click(); location.reload(); }")
    page.wait_for_selector("#panel .bars", state="attached")
    for name, opened in (("tbt", False), ("plan", False), ("sizes", False), ("levels", True)):
        assert page.eval_on_selector(FOLD.format(name), "part => part.open") is opened, name
    assert "1:" in page.locator(".bars").get_attribute("aria-label")
    shot(page, "panel-folded")
    page.click("[data-hide-panel]")
    page.wait_for_selector("#right", state="hidden")
    page.reload()
    page.wait_for_selector("#turns .answer footer")
    assert not page.is_visible("#right")
    shot(page, "panel-hidden")
    assert problems(page) == []
    page.click("[data-toggle=panel]")
    page.wait_for_selector("#right", state="visible")
    page.reload()
    page.wait_for_selector("#panel .levels", state="visible")


def drawn_anew(page) -> None:
    """Waits until what the panel shows now has given way, and the keyboard stands where it stood."""
    shown = page.query_selector("#panel .stats")
    page.wait_for_function("shown => !shown.isConnected", arg=shown)
    assert page.evaluate("document.activeElement.parentElement.dataset.fold") == "tbt"


def press_across_a_drawing(page, selector: str) -> None:
    """Presses the mouse, and releases it when what was pressed has been drawn anew."""
    # hover() waits for a rest that a panel drawn so often never has on a busy machine
    page.mouse.move(*page.evaluate(MIDDLE, selector))
    page.mouse.down()
    page.wait_for_function("shown => !shown.isConnected", arg=page.query_selector(selector))
    page.mouse.up()


def test_an_answer_is_compared_with_plain_decoding(serve, open_page, drop, sample):
    fake = FakeRuntime(pace=0.2, prefill_steps=2)
    page = open_page(serve(fake), width=1440, height=900)
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    fake.answer = ANSWER.replace("every word", "each word")
    page.click("[data-act=compare]")
    page.wait_for_selector("[role=status]:has-text('so far')")
    page.wait_for_selector("#stat-compared:has-text('near-tie')")
    assert "2.00 times as fast" in page.inner_text("#stat-plain")
    page.click("#turns summary:has-text('Beside plain decoding')")
    page.wait_for_selector("#turns .sides mark:has-text('each word')")
    for scheme in in_both_schemes(page):
        assert problems(page) == [], scheme
        shot(page, f"compared-{scheme}")
    page.reload()
    page.wait_for_selector("#stat-compared")


class Undrafted(FakeRuntime):
    """Writes each answer by the full model alone, though the mode would let drafts be made."""

    def _rounds(self, text, started):
        none = {"acceptance_draft": Acceptance(), "acceptance_retrieval": Acceptance()}
        for event in super()._rounds(text, started):
            if isinstance(event, Delta):
                event = replace(event, rounds=tuple(replace(one, **none) for one in event.rounds))
            elif isinstance(event, Finished):
                series = (0.0,) * event.stats.rounds
                event = replace(event, stats=replace(event.stats, **none, acceptance_series=series))
            yield event


def test_an_answer_without_drafts_says_so_at_its_end(serve, open_page, drop, sample):
    """Acceptance was "not measured yet" below an answer that was complete."""
    page = open_page(serve(Undrafted(pace=0.05, prefill_steps=2)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", "Who keeps the clocks?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#panel .level small:has-text('not measured yet')")
    page.wait_for_selector("#panel #stat-undrafted:has-text('Drafts were not used for this answer')")
    assert page.locator("#panel .level").count() == 0 and page.locator(".plot .line-tbt").count() == 1
    assert page.locator(".plot .line-acceptance").count() == 0, "nothing was accepted, and nothing refused"
    assert problems(page) == []
    shot(page, "panel-undrafted")


def test_the_panel_over_a_long_talk(serve, open_page, drop, sample):
    """A dozen questions and more: the figures stay, the meter tells the window's end before it comes, and the
    choice lets the talk go on.
    """
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=1)))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.wait_for_selector("#meter .key-said")
    rooms = []
    for number in range(40):
        before = page.inner_text("#meter .key-said")
        page.fill("#question textarea", f"What does keeper {number} hide?")
        page.press("#question textarea", "Enter")
        page.locator(f"#turns .answer footer >> nth={number}").or_(page.locator(".crowded")).first.wait_for()
        if page.locator(".crowded").count():
            break
        has_figures(page)
        page.wait_for_function(
            "said => document.querySelector('#meter .key-said').innerText !== said", arg=before
        )
        rooms.append(page.get_attribute("#meter .room", "class").split("-")[-1])
    assert number > 11 and list(dict.fromkeys(rooms)) == ["good", "warn", "bad"], rooms
    shot(page, "long-talk")
    page.click(".crowded [data-act=drop-oldest]")
    page.wait_for_selector(f"#turns .answer footer >> nth={number}")
    has_figures(page)
    page.wait_for_selector("#meter .room-warn")


def has_figures(page) -> None:
    """Acceptance of both levels and the time between tokens stand in the panel."""
    for figure in ("#stat-acceptance-draft", "#stat-acceptance-retrieval", "#stat-tbt-p50"):
        assert any(letter.isdigit() for letter in page.inner_text(figure)), figure
