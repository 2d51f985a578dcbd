"""An answer that is longer than the window, in a browser: it is read from its beginning."""

from __future__ import annotations

import threading

import pytest

from core.events import Finished, Piece, ReadingStep, Stats, SummaryDraft
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import picture

pytestmark = pytest.mark.e2e
OWN = tuple(
    f"“The clock of day {day} stood still, and nobody in Louth said a word of it all night.” "
    for day in range(80)
)
# whether all of the first match is seen, in the middle column
SEEN = """(selector) => {
  const one = document.querySelector(selector)?.getBoundingClientRect();
  const column = document.getElementById("scroller").getBoundingClientRect();
  return Boolean(one?.height) && one.top >= column.top && one.bottom <= column.bottom + 1; }"""


class Telling(FakeRuntime):
    """A long summary stands there at once; its first sentences are told in their place, one for every
    `told.release()`.
    """

    def __init__(self, **script) -> None:
        super().__init__(**script)
        self.told = threading.Semaphore(0)

    def _rounds(self, text, stats):
        paragraphs = tuple(Piece("".join(OWN[at : at + 8]) + "\n\n", "") for at in range(0, 80, 8))
        yield SummaryDraft((), (), paragraphs)
        for number in (1, 2, 3):
            yield ReadingStep(number, 3, f"Chapter {number}", "telling", left_s=9.0)
            self.told.acquire(timeout=60)
            before = (Piece(f"Dorcas winds {number} clocks. ", "target"),)
            yield SummaryDraft(before, (Piece("They all", "draft"),), paragraphs)
        self.told.acquire(timeout=60)
        whole = "".join(piece.text for piece in paragraphs).strip()
        yield Finished("stop", whole, Stats(model="m", new_tokens=9))


def test_a_summary_is_read_from_its_beginning(serve, open_page, drop, sample):
    """The page went to its end, away from what was told, and from how long that would take."""
    fake = Telling(pace=0.01, prefill_steps=2)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#summarize")
    for number in (1, 2, 3):
        page.wait_for_selector(f"#prefill-box:has-text('part {number} of 3')")
        for selector in (".asked .bubble", "#live-text p", "#prefill-box"):
            page.wait_for_function(SEEN, arg=selector)
        fake.told.release()
        page.wait_for_selector("#live-text ins")
    picture(page, "telling")
    fake.told.release()
    page.wait_for_selector("#turns .answer footer")
    page.wait_for_function(SEEN, arg="#turns .answer .text p")


def test_who_goes_to_the_end_of_an_answer_stays_there(serve, open_page, drop, sample):
    """And is not taken back to its beginning with the next word."""
    # as good as endless: it is written until it is stopped
    fake = FakeRuntime(pace=0.05, prefill_steps=2, answer="\n\n".join(OWN * 100))
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", "What does the clock do?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#live-text p >> nth=30")
    page.wait_for_function(SEEN, arg=".asked .bubble")
    page.locator("#scroller").evaluate("one => { one.scrollTop = one.scrollHeight; }")
    written = page.locator("#live-text p").count()
    page.wait_for_selector(f"#live-text p >> nth={written + 5}", state="attached")
    page.wait_for_function(
        "() => { const one = document.getElementById('scroller');"
        " return one.scrollHeight - one.scrollTop - one.clientHeight < 120; }"
    )
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer")
    page.wait_for_function(SEEN, arg="#turns .answer footer .tools")
