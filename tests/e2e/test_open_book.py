"""The book pane in a browser: finding, marking, copying, turning, and where it was left."""

from __future__ import annotations

import pytest

from tests.support.accessibility import problems
from tests.support.browsing import FOCUSED, open_reader, select, tab_to
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.page_looks import DRAWN, picture

pytestmark = pytest.mark.e2e
IN_SIGHT = """(selector) => {
  const box = document.querySelector(selector)?.getBoundingClientRect();
  const pane = document.querySelector('.reader-text').getBoundingClientRect();
  return box && box.height && box.top >= pane.top - 2 && box.bottom <= pane.bottom + 2;
}"""


@pytest.fixture
def reading(serve, open_page, drop, sample):
    """The sample book, open in its pane."""
    made = FakeRuntime(pace=0.005)
    made.start()
    page = open_page(serve(made))
    open_reader(page, drop, sample)
    return page


def test_words_are_found_and_opened_one_after_another(reading):
    reading.fill("[data-find]", "NEVER Wrong")
    reading.wait_for_selector(".found li")
    assert "“NEVER Wrong”" in reading.inner_text(".found summary")
    places = reading.locator(".found li").count()
    reading.press("[data-find]", "Enter")
    reading.wait_for_selector("#passage")
    assert reading.inner_text("#passage").lower() == "never wrong"
    reading.wait_for_function(IN_SIGHT, arg="#passage")
    assert reading.locator(".found [aria-current]").count() == 1
    assert reading.evaluate("document.activeElement.matches('[data-find]')"), "Enter goes on to the next"
    reading.check("[data-find-exact]")
    reading.wait_for_function("document.querySelector('.found summary').innerText.includes(': 0 ')")
    reading.press("[data-find]", "Escape")
    reading.wait_for_selector(".found", state="detached")
    assert places >= 1


def test_a_selected_passage_is_copied_with_its_source_and_marked(reading):
    reading.context.grant_permissions(["clipboard-read", "clipboard-write"])
    words = reading.evaluate("document.querySelector('.reader-text p[data-offset]').innerText.slice(4, 40)")
    select(reading, words)
    bar = "document.querySelector('.selected').getBoundingClientRect().top"
    before = reading.evaluate(bar)
    reading.evaluate("document.querySelector('.reader-text').scrollTop += 12")
    reading.wait_for_function(f"{bar} === {before - 12}")  # it stays, beside the words
    reading.click("[data-cited]")
    copied = reading.evaluate("navigator.clipboard.readText()")
    title = reading.inner_text(".reader-text h3")
    assert (
        copied.splitlines()[0] == f"“{words.strip()}”" and title in copied and "The Thursday Clock" in copied
    )
    select(reading, words)
    reading.click("[data-mark]")
    reading.wait_for_selector(".marks")
    reading.click(".marks summary")
    reading.fill("[data-note]", "Who tells this?")
    reading.click(".marks summary")
    reading.reload()
    reading.wait_for_selector(".marks")
    assert reading.input_value("[data-note]") == "Who tells this?"
    assert words.split()[0] in reading.text_content(".marks blockquote")


def test_keys_turn_chapters_and_the_place_is_kept(reading, serve):
    reading.focus(".reader-text")
    first = reading.inner_text(".reader-text h3")
    reading.keyboard.press("n")
    reading.wait_for_function(
        "(before) => document.querySelector('.reader-text h3').innerText !== before", arg=first
    )
    second = reading.inner_text(".reader-text h3")
    reading.wait_for_function("document.activeElement.matches('.reader-text')")
    reading.evaluate(DRAWN)
    reading.evaluate("document.querySelector('.reader-text').scrollTop = 1200")
    top = reading.evaluate(
        "[...document.querySelectorAll('.reader-text p[data-offset]')]"
        ".find(one => one.getBoundingClientRect().bottom > "
        "document.querySelector('.reader-text').getBoundingClientRect().top + 8).dataset.offset"
    )
    wait_until(lambda: serve.desk.state.notebook.position == int(top))
    reading.fill("#question textarea", "")
    reading.locator("#question textarea").press("n")
    assert reading.inner_text(".reader-text h3") == second, "n is a letter where one writes"
    reading.click(".book-open")
    reading.wait_for_selector(f".reader-text[data-place='{top}:0']")
    reading.wait_for_function(
        IN_SIGHT.replace(
            "box.top >= pane.top - 2 && box.bottom <= pane.bottom + 2", "Math.abs(box.top - pane.top) < 60"
        ),
        arg=f"p[data-offset='{top}']",
    )


def test_single_keys_are_commands_only_where_one_reads(reading):
    """Typed on after a name was asked for, words set a bookmark, began to read aloud, and were asked."""
    for place in (".book-open", ".topbar-tools [data-toggle=settings]"):
        reading.focus(place)
        reading.keyboard.type("bl/b")
        assert reading.evaluate(FOCUSED % place) and not reading.locator(".marks").count()
    reading.click("[data-toggle=settings]")
    reading.evaluate("document.activeElement.blur()")
    reading.keyboard.type("b/")
    assert not reading.evaluate(FOCUSED % "#question textarea")
    reading.keyboard.press("Escape")
    reading.evaluate("document.activeElement.blur()")
    reading.keyboard.type("b/")
    reading.wait_for_selector(".marks summary:has-text('1 bookmark')")
    assert reading.evaluate(FOCUSED % "#question textarea")


def test_reading_without_a_mouse(reading):
    """Nothing can be selected by keyboard: B marks and C copies what was found, or what is read now."""
    reading.context.grant_permissions(["clipboard-read", "clipboard-write"])
    reading.evaluate("document.activeElement.blur()")
    tab_to(reading, "[data-find]")
    reading.keyboard.type("never wrong")
    reading.wait_for_selector(".found li")
    reading.keyboard.press("Enter")
    reading.wait_for_selector("#passage")
    reading.keyboard.press("Escape")
    reading.wait_for_selector(".found", state="detached")
    tab_to(reading, ".reader-text")
    reading.keyboard.press("b")
    reading.wait_for_selector(".marks summary:has-text('1 bookmark')")
    reading.keyboard.press("c")
    reading.wait_for_function(
        "navigator.clipboard.readText().then((text) => text.startsWith('“never wrong”'))"
    )
    assert "The Thursday Clock" in reading.evaluate("navigator.clipboard.readText()")
    first = reading.inner_text(".reader-text h3")
    reading.keyboard.press("n")
    reading.wait_for_function(
        "(before) => document.querySelector('.reader-text h3').innerText !== before", arg=first
    )
    reading.evaluate("document.activeElement.blur()")
    tab_to(reading, ".marks summary")
    reading.keyboard.press("Enter")
    tab_to(reading, "[data-note]")
    reading.keyboard.type("Hers, not mine.")
    reading.keyboard.press("Tab")
    reading.reload()
    reading.wait_for_selector(".marks")
    assert reading.input_value("[data-note]") == "Hers, not mine."
    with reading.expect_download() as sent:
        reading.evaluate("document.querySelector(\"a[href='/export?form=md']\").click()")
    assert "Hers, not mine." in sent.value.path().read_text(encoding="utf-8"), (
        "notes go out with the conversation"
    )
    reading.click(".marks > summary")
    for name, words in (("Markdown", "> "), ("HTML", "<blockquote"), ("Anki", "#separator:tab")):
        with reading.expect_download() as sent:
            reading.click(f".marks-export >> text={name}")
        file = sent.value.path().read_text(encoding="utf-8")
        assert words in file and "Hers, not mine." in file


def test_text_grows_and_lines_shorten(reading):
    size = "parseFloat(getComputedStyle(document.querySelector('.reader-text p')).fontSize)"
    before = reading.evaluate(size)
    reading.click("[data-size='1']")
    assert reading.evaluate(size) > before
    line = "document.querySelector('.reader-text p').getBoundingClientRect().width"
    width = reading.evaluate(line)
    for _step in range(3):
        reading.click("[data-lines='1']")
    reading.wait_for_function(f"{line} > {width} + 100")
    assert reading.is_disabled("[data-lines='1']")
    reading.reload()
    reading.wait_for_selector(".reader-text p")
    reading.wait_for_function(f"{size} > {before}")
    reading.wait_for_function(f"{line} > {width} + 100")
    for _step in range(4):
        reading.click("[data-lines='-1']")
    reading.wait_for_function(f"{line} <= {width}")


def test_what_was_looked_up_leads_back_and_another_book_begins_with_an_empty_search(reading, serve):
    """The words looked for stayed in the box, above a book in which nobody had looked for them."""
    desk = serve.desk
    at = desk.books.current.sections[3].start
    desk.reader.show(at)
    reading.wait_for_selector(f".reader-text[data-place='{at}:0']")
    reading.fill("[data-find]", "never wrong")
    reading.wait_for_selector(".found li")
    reading.press("[data-find]", "Enter")
    reading.wait_for_selector(".way-back")
    assert problems(reading) == []
    picture(reading, "way-back")
    tab_to(reading, "[data-act=back]")
    reading.keyboard.press("Enter")
    reading.wait_for_selector(".way-back", state="detached")
    reading.wait_for_selector(f".reader-text[data-place='{at}:0']")
    assert reading.input_value("[data-find]") == "never wrong"
    (other,) = (one.name for one in desk.imports.samples if "clock" not in one.name)
    desk.imports.sample(other)
    reading.wait_for_function("document.querySelector('[data-find]').value === ''")
