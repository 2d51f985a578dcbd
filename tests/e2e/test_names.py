"""People, places and terms in a browser: folded until wanted, up to here, from each mention into the book."""

from __future__ import annotations

import pytest

from app.store.turns import wording
from tests.support.browsing import FOCUSED, open_reader, tab_to
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import picture, wrong_looks

pytestmark = pytest.mark.e2e
BADLY_PLACED = """() => {
  const pane = document.querySelector('#folds'), text = document.querySelector('.reader-text');
  const [box, below] = [pane.getBoundingClientRect(), text.getBoundingClientRect()];
  return [
    pane.scrollWidth > pane.clientWidth && 'wider than its pane',
    box.bottom > below.top && 'over the text',
    below.height < 60 && 'no room for the text',
  ].filter(Boolean);
}"""
BESIDE = """() => {
  const column = document.querySelector('#pane-reader'), pane = column.getBoundingClientRect();
  const beside = [...document.querySelectorAll('.way-back, .recap-ways, .marks-export')].filter((one) => {
    const box = one.getBoundingClientRect();
    return !box.height || box.left < pane.left || box.right > pane.right + 1;
  }).map((one) => `${one.className} is beside its pane, or not there`);
  document.querySelector('#passage').scrollIntoView({ block: 'center' });   // as what is looked up
  const out = column.scrollHeight > column.clientHeight + 1;
  if (out && getComputedStyle(column).overflowY === 'hidden') beside.push('what scrolls away is lost');
  const lines = document.querySelector('.reader-text').clientHeight;
  if (lines < 180) beside.push('too little of the book is in sight');
  return beside;
}"""
CHOSEN = '.name-row[data-id="Peg Marsh"]'


@pytest.fixture
def reading(serve, open_page, drop, sample):
    """The sample book, open in its pane at its third chapter."""
    page = open_page(serve(FakeRuntime(pace=0.005)))
    open_reader(page, drop, sample)
    serve.desk.reader.turn(1)
    serve.desk.reader.turn(1)
    return page


def test_a_name_unfolds_with_its_mentions_and_leads_to_the_place(reading, serve):
    assert reading.locator(".name-row").count() == 0, "folded until wanted"
    reading.click("[data-act=names]")
    reading.wait_for_selector(CHOSEN)
    before = reading.locator(".name-row").all_inner_texts()
    end = serve.desk.state.names.end
    reading.click(CHOSEN)
    reading.wait_for_selector(".name-card blockquote")
    reading.click(".name-mentions summary")
    mention = reading.locator(".name-mentions li button").first
    wanted = mention.get_attribute("data-offset")
    mention.click()
    reading.wait_for_selector(f".reader-text[data-place^='{wanted}:'] #passage")
    assert reading.inner_text("#passage") in ("Peg Marsh", "Peg", "Marsh")
    assert serve.desk.state.names.end == end, "what is looked up folds nothing away"
    serve.desk.reader.show(serve.desk.books.current.sections[-1].start)
    reading.click("[data-act=names-up-to][data-value=here]")
    reading.wait_for_function(
        "(count) => document.querySelectorAll('.name-row').length > count", arg=len(before)
    )


def test_names_of_the_whole_book_are_shown_only_to_whoever_says_yes(reading, serve):
    reading.click("[data-act=names]")
    reading.wait_for_selector(".name-row")
    end = serve.desk.state.names.end
    reading.once("dialog", lambda dialog: dialog.dismiss())
    reading.click("[data-act=names-up-to][data-value=all]")
    assert serve.desk.state.names.end == end
    reading.once("dialog", lambda dialog: dialog.accept())
    reading.click("[data-act=names-up-to][data-value=all]")
    reading.wait_for_selector("[data-act=names-up-to][data-value=all]", state="detached")
    assert serve.desk.state.names.end > end


def test_the_keyboard_alone_unfolds_chooses_and_stays_where_it_is(reading):
    reading.focus("[data-find]")
    tab_to(reading, "[data-act=names]")
    reading.keyboard.press("Enter")
    reading.wait_for_selector(".name-row")
    assert reading.evaluate(FOCUSED % "[data-act=names]"), "drawn anew it keeps the focus"
    tab_to(reading, CHOSEN)
    reading.keyboard.press("Enter")
    reading.wait_for_selector(".name-card")
    assert reading.evaluate(FOCUSED % CHOSEN)
    tab_to(reading, "[data-act=names-kind][data-id=place]")
    reading.keyboard.press("Space")
    reading.wait_for_selector("[data-id=place][aria-pressed=true]")


def test_it_holds_to_accessibility_rules_in_both_colours_and_at_every_size(reading):
    reading.click("[data-act=names]")
    reading.click(CHOSEN)
    reading.wait_for_selector(".name-card")
    wrong = wrong_looks(reading, "names", lambda: reading.evaluate(BADLY_PLACED))
    assert not wrong, "\n".join(wrong)


def test_the_book_side_with_all_of_it_unfolded_holds_to_the_rules_at_every_size(reading, serve):
    """Recap, bookmarks with their files, and the way back, beside each other."""
    desk = serve.desk
    desk.reader.mark(desk.books.current.text.index("Peg Marsh"), "Peg Marsh")
    desk.reader.look_up(desk.books.current.sections[-1].start, 5)
    reading.wait_for_selector(".way-back")
    reading.click(".recap > summary")
    reading.click(".marks > summary")
    wrong = wrong_looks(reading, "book-side", lambda: reading.evaluate(BESIDE))
    assert not wrong, "\n".join(wrong)


def test_a_recap_goes_up_to_here(reading, serve):
    """Folded until wanted; one press, and the conversation has it."""
    assert not reading.is_visible("[data-act=recap][data-id=chapter]")
    serve.desk.reader.stand(serve.desk.books.current.sections[2].end - 3)
    reading.click(".recap summary")
    picture(reading, "recap")
    reading.click("[data-act=recap][data-id=chapter]")
    reading.wait_for_selector("#turns .answer footer")
    asked = serve.desk.engine.asked[-1]
    assert asked.end is not None and wording(asked) in reading.inner_text("#turns .asked")
