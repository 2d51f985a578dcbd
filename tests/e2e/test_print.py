"""The page on paper: what the browser prints of a conversation."""

from __future__ import annotations

import io
import math

import pytest
from pypdf import PdfReader

from tests.support.fake_runtime import SUMMARY, FakeRuntime, wait_until

pytestmark = pytest.mark.e2e
AROUND = ":is(#topbar, #composer, .tools, .talkbar, .tabs) button, .choices *, .notice p, #right h2"
COLOURS = """[...document.querySelectorAll("#turns :is(.bubble, .text), .card h2")].map((one) => {
  const of = getComputedStyle(one);
  return [of.color, of.backgroundColor, getComputedStyle(document.body).backgroundColor];
})"""


def lines(page) -> list[list[str]]:
    """What is printed, line by line, of each page."""
    pages = PdfReader(io.BytesIO(page.pdf(format="A4"))).pages
    return [[line.strip() for line in one.extract_text().splitlines() if line.strip()] for one in pages]


@pytest.fixture
def talk(serve, open_page, tmp_path):
    """A page with four questions about a book and their answers, the last one folded: (page, desk)."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2, answer=f"{SUMMARY}\n\n{SUMMARY}")))
    desk, file = serve.desk, tmp_path / "the-keeper.txt"
    file.write_text("Chapter 1\n\n" + "He wound the clocks on Thursday. " * 40)
    desk.imports.files([str(file)])
    wait_until(lambda: desk.state.opening is None)
    for question in ("Who came?", "Who left?", "Who stayed?", "And then? " * 70):
        desk.questions.ask(question)
        wait_until(lambda: not desk.state.busy)
    desk.store.say("Unprinted.", "info")
    page.wait_for_selector("#turns .answer >> nth=3")
    page.wait_for_selector(".notice")
    return page, desk


def test_the_whole_conversation_is_printed_and_nothing_of_what_stands_around_it(talk):
    """One page was, as it stood on the screen."""
    page, desk = talk
    printed = lines(page)
    said = " ".join(" ".join(one) for one in printed)
    assert math.ceil(len(said) / 5000) <= len(printed) <= 8
    assert printed[0][0] == desk.books.current.title
    assert said.count("And then?") == 70 and all(f"Who {did}?" in said for did in ("came", "left", "stayed"))
    assert said.count("The book ends quietly.") == 8
    around = page.locator(AROUND).all_inner_texts()
    assert len(around) > 20 and [text for text in around if text and text in said] == []
    assert not [one for one in printed if one[-1].endswith("?")], "a question stands with its answer"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_black_on_white_in_both_themes(talk, scheme):
    """Of questions hardly anything was seen: a bubble is not printed, and its letters were light."""
    page, _desk = talk
    page.emulate_media(media="print", color_scheme=scheme)
    page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
    for colours in page.evaluate(COLOURS):
        assert colours == ["rgb(0, 0, 0)", "rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"]
