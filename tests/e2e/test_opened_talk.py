"""A talk that is opened: where the page stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.desk.values import ImportedFile
from tests.support.fake_runtime import FakeRuntime, wait_until

pytestmark = pytest.mark.e2e
LAST = """() => {
  const column = document.getElementById("scroller").getBoundingClientRect();
  const box = [...document.querySelectorAll("#turns .asked")].at(-1).getBoundingClientRect();
  return box.top >= column.top - 4 && box.bottom <= column.bottom;
}"""


@pytest.fixture
def talked(serve, open_page):
    """A book with six questions, in a wide window."""
    page = open_page(serve(FakeRuntime(pace=1e-5, prefill_steps=1)), width=1280, height=800)
    desk = serve.desk
    desk.imports.sample(desk.imports.samples[1].name)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    for at in range(6):
        desk.questions.ask(f"Question {at}?")
        wait_until(lambda: not desk.state.busy)
    page.wait_for_selector("#turns .asked >> nth=5")
    return page, desk


def test_a_talk_is_opened_at_its_last_question_in_a_wide_window_too(talked):
    """It was opened at its first one, or in its middle, below the card."""
    page, desk = talked
    talk = desk.state.conversation_id
    desk.books.begin_conversation()
    page.wait_for_selector("#turns .asked", state="detached")
    page.evaluate("document.getElementById('scroller').scrollTop = 0")
    desk.books.open_conversation(talk)
    page.wait_for_selector("#turns .asked >> nth=5")
    page.wait_for_function(LAST)
    page.reload()
    page.wait_for_selector("#turns .asked >> nth=5")
    page.wait_for_function(LAST)


def test_what_a_press_elsewhere_has_asked_comes_into_sight(talked):
    """A recap that was asked for in the book was told at the foot of the conversation, out of sight."""
    page, desk = talked
    desk.reader.look_up(len(desk.books.current.text) // 2, 0)
    page.click("#tab-reader")
    page.evaluate("document.getElementById('scroller').scrollTop = 0")
    page.wait_for_timeout(300)
    page.evaluate("document.querySelector('.recap').open = true")
    page.click(".recap [data-id=chapter]")
    page.wait_for_selector("#turns .asked >> nth=6")
    page.wait_for_function(LAST)
    page.wait_for_timeout(1600)  # until then what is above it may still fold
    page.evaluate("document.getElementById('scroller').scrollTop = 0")
    page.wait_for_timeout(2000)
    desk.questions.ask("And then?")
    page.wait_for_selector("#turns .asked >> nth=7")
    assert page.evaluate("document.getElementById('scroller').scrollTop") < 100, "nobody pressed anything"


CLEAR = """() => {
  const asked = [...document.querySelectorAll("#turns .asked")].at(-1).getBoundingClientRect();
  return asked.bottom <= document.querySelector("#progress .progress").getBoundingClientRect().top;
}"""


def test_a_question_stays_in_sight_above_how_far_its_answer_is_when_the_next_one_waits(talked):
    """What waits takes of the conversation's height: the box lay over the question just asked."""
    page, desk = talked
    desk.engine.pace = 20  # seconds that it reads
    for words, seen in (("What colour was the cat?", "#progress .progress"), ("And the dog?", ".queue q")):
        page.fill("#question textarea", words)
        page.press("#question textarea", "Enter")
        page.wait_for_selector(seen)
    page.wait_for_timeout(500)
    assert page.evaluate(CLEAR)
    desk.actions.dispatch({"act": "drop-queued"})
    desk.stop()


def test_where_to_choose_a_model_file_comes_into_sight(talked):
    """It was opened above the card, far from where one read."""
    page, desk = talked
    desk.models.start()
    page.click(".models [data-act='look-into']")
    page.wait_for_function(
        "document.querySelector('.model-files')?.getBoundingClientRect().top"
        " >= document.getElementById('scroller').getBoundingClientRect().top - 4"
    )


def test_a_question_can_be_asked_while_another_book_is_being_read(talked):
    """The question box, and Stop in it, were gone until the file was read."""
    page, desk = talked
    assert page.is_visible("#composer")
    desk.store.update(opening=ImportedFile(Path("long.pdf"), "long.pdf"))
    page.wait_for_selector("[data-stage='opening']")
    assert page.is_visible("#composer") and not page.is_visible("#choices")
    desk.books.begin_conversation()
    page.wait_for_selector("#turns .asked", state="detached")
    assert not page.is_visible("#composer"), "nothing is open to be asked about"
