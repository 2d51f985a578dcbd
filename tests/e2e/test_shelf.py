"""The shelf in a browser: its cards, looking through everything, pasting, taking away and back."""

from __future__ import annotations

import pytest

from tests.support.accessibility import problems
from tests.support.browsing import shot
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.said import figures

pytestmark = pytest.mark.e2e
TOLD = "The lamp had gone out once, on the night his brother's boat was lost."
PASTED = "Notes on the harbour.\n\n" + "The harbour master kept two sets of books. " * 30


@pytest.fixture
def shelf(serve, open_page):
    """Both samples on the shelf, the first asked about: (page, desk)."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2, answer=TOLD)))
    return page, filled(serve.desk, page)


def filled(desk, page):
    """The desk, with both samples on the shelf, the first asked about."""
    for sample in desk.imports.samples[:2]:
        desk.imports.sample(sample.name)
        wait_until(lambda: desk.state.opening is None)
        desk.questions.ask(f"What of the brother in {sample.stem}?")
        wait_until(lambda: not desk.state.busy)
    page.wait_for_selector(".shelf .book >> nth=1")
    return desk


def test_a_card_says_what_is_known_and_kept_of_a_book(shelf):
    page, _desk = shelf
    said = page.locator(".book-open").first.inner_text()
    assert "today" in said and "words" in said and "disk" in said


def test_a_title_is_corrected_where_it_stands(shelf):
    page, desk = shelf
    page.on("dialog", lambda dialog: dialog.accept("The Keeper's <b>Log</b>"))
    page.hover(".card h2")
    page.click("[data-act=name-title]")
    page.wait_for_selector(".card h2:has-text('The Keeper')")
    page.wait_for_selector(".book-current .book-name:has-text('<b>Log</b>')")
    shot(page, "named")
    assert desk.books.current.title == "The Keeper's <b>Log</b>"


CUT = """buttons => buttons.flatMap((one) => {
  const text = document.createRange(), end = one.getBoundingClientRect().bottom
    - parseFloat(getComputedStyle(one).borderBottomWidth);
  text.selectNodeContents(one);
  return [...text.getClientRects()].filter((line) => line.top < end - 2 && line.bottom > end + 2);
}).length"""


def test_no_line_of_a_conversations_name_is_cut_in_its_middle(shelf):
    """Below the dots stood the upper half of one line more."""
    page, desk = shelf
    name = "Where did the money for the great new lamp of the harbour come from when the old one had burned?"
    talk = desk.state.conversation_id
    desk.actions.dispatch({"act": "rename-talk", "id": talk, "text": name})
    page.wait_for_selector(f".talks [data-id='{talk}'][title='{name}']")
    assert page.eval_on_selector_all(".talks [data-act=talk]", CUT) == 0


@pytest.mark.parametrize("touch", [False, True])
def test_the_bin_of_a_conversation_is_hit_by_the_first_press(serve, open_page, touch):
    """It went a line down under the mouse, where fingers are expected, and nothing was deleted."""
    url = serve(FakeRuntime(pace=0.002, prefill_steps=2, answer=TOLD))
    page = open_page(url, width=1280, height=800, has_touch=touch, is_mobile=touch)
    desk = filled(serve.desk, page)
    first = desk.state.conversation_id
    desk.actions.dispatch({"act": "new"})
    desk.questions.ask("And of the sister?")
    wait_until(lambda: not desk.state.busy)
    page.wait_for_selector(f".talks li:has([data-id='{first}']) >> nth=0")
    page.hover(f".talks [data-act=talk][data-id='{first}']")
    found = page.locator(f".talks [data-act=forget-talk][data-id='{first}']")
    box = found.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    before = found.bounding_box()
    page.mouse.down()
    assert found.bounding_box() == before
    page.mouse.up()
    page.wait_for_selector(".notice [data-act=undo]")


def test_what_was_said_is_found_and_leads_to_its_turn(shelf):
    page, desk = shelf
    older = desk.library.entries()[1]
    page.fill("[data-search]", "gone out brother")
    page.wait_for_selector(".hits [data-act=said] >> nth=1")
    assert not page.is_visible(".shelf") and page.locator(".hits mark").count() == 2
    assert problems(page) == []
    page.click(f".hits [data-book='{older.id}']")
    page.wait_for_selector(".turn-sought")
    assert TOLD in page.inner_text(".turn-sought") and desk.state.book_id == older.id
    page.press("[data-search]", "Escape")
    page.wait_for_selector(".shelf", state="visible")
    page.fill("[data-search]", older.title[:7].upper())
    page.wait_for_selector(".hits [data-act=book]")
    assert older.title in page.inner_text(".hits")


def test_earlier_versions_notes_and_summaries_are_found_and_lead_to_their_places(shelf):
    page, desk = shelf
    newer, older = desk.library.entries()[:2]
    desk.engine.answer = "Nothing went out at all."
    desk.questions.regenerate()
    wait_until(lambda: not desk.state.busy)
    told = desk.books.current.chapters[1]
    desk.reader.mark(told.start, desk.books.current.text[told.start : told.start + 40])
    desk.reader.note(told.start, "The brother again: compare with the boat.")
    desk.questions.summarize_chapter(2)
    wait_until(lambda: not desk.state.busy)
    desk.books.select(older.id)
    page.fill("[data-search]", "brother boat")
    page.wait_for_selector(".hits [data-act=place]")
    assert problems(page) == []
    shot(page, "search")
    page.click(".hits [data-version]")
    page.wait_for_selector(".turn-sought [data-version='1']")
    assert TOLD in page.inner_text(".turn-sought [data-version='1']") and desk.state.book_id == newer.id
    desk.books.select(older.id)
    page.click(".hits [data-act=place]:has-text('Own note')")
    page.wait_for_selector("#passage")
    assert desk.state.book_id == newer.id and desk.state.passage.offset == told.start
    assert page.locator("#tab-reader").get_attribute("aria-selected") == "true"
    page.fill("[data-search]", "told of")
    page.click(".hits [data-act=place]:has-text('Summary of a chapter')")
    page.wait_for_selector("#pane-reader :text('Told of')")


def test_the_places_of_a_word_that_are_not_listed_are_one_press_away(shelf):
    """ "6 places" stood above five, and nothing led to the sixth."""
    page, desk = shelf
    newer, older = desk.library.entries()[:2]
    page.fill("[data-search]", "clock")
    for book in (older, newer):
        every = f".hits [data-sought][data-book='{book.id}']"
        page.wait_for_selector(every)
        (count,) = figures(page.inner_text(every))
        page.click(every)
        page.wait_for_selector(f".reader-text[data-book='{book.id}']")
        page.wait_for_selector(f".found summary:has-text('“clock”: {count} ')")
        assert page.input_value("[data-find]") == "clock" and desk.state.book_id == book.id
        assert desk.books.current.text[desk.state.passage.offset :][:5].lower() == "clock"
    page.fill("[data-find]", "")
    page.wait_for_selector(".found", state="detached")


def test_a_book_taken_away_comes_back_by_one_button(shelf):
    page, desk = shelf
    entry = desk.library.entries()[0]
    page.hover(".book >> nth=0")
    page.click(f"[data-act=forget][data-id='{entry.id}']")
    page.wait_for_selector(".notice [data-act=undo]")
    assert page.locator(".shelf .book").count() == 1 and entry.title in page.inner_text(".notice")
    page.click(".notice [data-act=undo]")
    page.wait_for_selector(f".book-open[aria-current][data-id='{entry.id}']")
    page.wait_for_selector("#turns .bubble")


def test_another_book_opened_meanwhile_leaves_the_button_there(shelf):
    page, desk = shelf
    gone, other = desk.library.entries()[:2]
    page.hover(f".book:has([data-id='{gone.id}'])")
    page.click(f"[data-act=forget][data-id='{gone.id}']")
    page.wait_for_selector(".notice [data-act=undo]")
    page.click(f".book-open[data-id='{other.id}']")
    page.wait_for_selector(f".book-open[aria-current][data-id='{other.id}']")
    page.click(".notice [data-act=undo]")
    page.wait_for_selector(f".book-open[aria-current][data-id='{gone.id}']")
    assert page.locator(".shelf .book").count() == 2


def test_pasted_text_is_a_book(shelf):
    page, desk = shelf
    page.click("[data-paste]")
    assert page.evaluate("document.activeElement.matches('[data-pasted-text]')")
    assert problems(page) == []
    page.click("[data-pasted-read]")
    assert page.is_visible(".pasted"), "nothing to read yet"
    page.fill("[data-pasted-text]", PASTED)
    page.fill("[data-pasted-title]", "Harbour notes")
    page.click("[data-pasted-read]")
    page.wait_for_selector(".card h2:has-text('Harbour notes')")
    wait_until(lambda: desk.state.opening is None)
    assert "two sets of books" in desk.books.current.text and desk.books.current.title == "Harbour notes"
    assert desk.books.current.text.startswith("Notes"), "a byte order mark is no text"


def test_a_pasted_text_without_a_title_is_called_by_its_first_words(shelf):
    """Every one was “Untitled text”."""
    page, desk = shelf
    page.click("[data-paste]")
    page.fill(
        "[data-pasted-text]", "The keeper of the harbour writes the log by hand every evening.\n\n" + PASTED
    )
    page.click("[data-pasted-read]")
    page.wait_for_selector(".card h2:has-text('The keeper of the harbour writes the log by')")
    wait_until(lambda: desk.state.opening is None)
    assert desk.books.current.title == "The keeper of the harbour writes the log by…"


def test_a_long_text_pasted_anywhere_is_offered_to_be_read(shelf):
    page, _desk = shelf
    page.evaluate(
        """(text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", text);
          document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
        }""",
        PASTED,
    )
    page.wait_for_selector(".pasted[open]")
    assert page.input_value("[data-pasted-text]") == PASTED
    page.keyboard.press("Escape")
    assert not page.is_visible(".pasted")
