"""The page in other languages, in a real browser: as it wishes, as it is set, and without a break."""

from __future__ import annotations

import pytest

from app.server.main import fresh_url
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import at_sizes, faults, picture
from tests.support.scripts import BOOKS

pytestmark = pytest.mark.e2e
WIDTHS = ((1280, 800), (900, 800), (390, 844))


# how the settings lie: whether they are scrolled to the list of languages, and where the keyboard is
LIES = """() => {
  const [list, drawer] = ["set-language", "settings"].map((one) => document.getElementById(one));
  const [inner, outer] = [list, drawer].map((one) => one.getBoundingClientRect());
  return [inner.top >= outer.top && inner.bottom <= outer.bottom, document.activeElement.id];
}"""


def read(page, drop, sample) -> None:
    """A book on the desk, a summary of it, everything of the panel."""
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#summarize")
    page.wait_for_selector("[data-region=turns] .answer .tools", timeout=30_000)


def test_page_is_in_the_language_that_the_browser_wishes(serve, open_page):
    """Its lang attribute too: without it a screen reader reads German with an English voice."""
    page = open_page(serve(FakeRuntime(pace=0.001)), locale="de-AT")
    assert page.evaluate("document.documentElement.lang") == "de"
    assert page.get_attribute("#question textarea", "placeholder") == "Frage zum Buch …"
    assert page.inner_text("#send").strip() == "Fragen"
    assert "Geöffnete Bücher stehen hier." in page.inner_text("#left")


def test_a_browser_of_china_gets_all_of_the_page_in_chinese(serve, open_page):
    """Its boxes were Chinese and all else English: Gradio gives the page's language another name."""
    page = open_page(serve(FakeRuntime(pace=0.001)), locale="zh-CN")
    assert page.evaluate("document.documentElement.lang") == "zh"
    assert page.get_attribute("#question textarea", "placeholder") == "就这本书提问…"
    assert "书库" in page.inner_text("#left")


def test_each_tab_keeps_the_language_of_its_browser(serve, open_page):
    """The page was drawn in the language that was loaded last, in every tab."""
    german = open_page(serve(FakeRuntime(pace=0.001)), locale="de-AT")
    english = open_page(fresh_url(serve.address), locale="en-GB")
    serve.desk.books.select("gone")
    for page, words in ((german, "Bibliothek"), (english, "Library")):
        page.wait_for_selector(".notice")
        assert words.lower() in page.inner_text("#left").lower()  # drawn in capitals
    assert "too late" in english.inner_text(".notice")
    assert "too late" not in german.inner_text(".notice")
    german.reload()
    german.wait_for_selector("body[data-connected] .notice")
    assert german.evaluate("document.documentElement.lang") == "de"
    assert "library" in english.inner_text("#left").lower()


def test_language_changes_without_a_restart(serve, open_page, drop, sample):
    """Also what was written before: an answer's notes and the summary's own words are kept in English."""
    page = open_page(serve(FakeRuntime(pace=0.001)))
    read(page, drop, sample)
    assert "Summarise this book" in page.inner_text("[data-region=turns]")
    page.click("[data-toggle=settings]")
    page.evaluate("document.querySelector('#set-language').closest('details').open = true")
    page.focus("#set-language")
    lay = page.evaluate(LIES)
    page.select_option("#set-language", "zh")
    page.wait_for_function("document.documentElement.lang === 'zh'")
    page.wait_for_selector("[data-region=turns] .answer")
    assert "概括这本书" in page.inner_text("[data-region=turns]")
    assert page.get_attribute("#question textarea", "placeholder") == "就这本书提问…"
    assert "书库" in page.inner_text("#left")
    assert serve.desk.books.turns[0].text == "Summarise this book", "what is kept is English"
    # whoever chose the wrong one had to find the list again, in words that he may not read
    page.wait_for_selector("#set-language:visible")
    assert page.evaluate(LIES) == lay and lay[1] == "set-language"
    # Esc, meant for the drawer that was gone without a word, stopped an answer
    page.keyboard.press("Escape")
    assert not page.is_visible("#set-language")


INSIDE = """() => [...document.querySelectorAll("#reader p")]
  .every((one) => one.scrollWidth <= one.clientWidth + 1)"""
BEGINS = """() => {
  const line = document.querySelector("#reader p[data-offset]"), range = document.createRange();
  const text = document.createTreeWalker(line, NodeFilter.SHOW_TEXT).nextNode();
  range.setStart(text, 0); range.setEnd(text, 1);
  const [first, all] = [range.getBoundingClientRect(), line.getBoundingClientRect()];
  return [getComputedStyle(line).direction, (first.left + first.right) / 2 < (all.left + all.right) / 2]; }"""


def test_a_book_begins_where_its_script_does_and_stays_in_its_column(serve, open_page, drop, tmp_path):
    """Hebrew at the right; Chinese and Japanese, which have no spaces, break inside the column."""
    page = open_page(serve(FakeRuntime(pace=0.001)))
    page.click("#tab-reader")
    for book in BOOKS:
        file = tmp_path / f"{book.title}.txt"
        chapters = [f"{title}\n\n{text * 12}" for title, text in book.chapters]
        file.write_text("\n\n".join(chapters), encoding="utf-8")
        drop(page, file, "#middle")
        page.wait_for_selector(f"#reader p[data-offset]:has-text('{book.chapters[0][1][:8]}')")
        direction, left = page.evaluate(BEGINS)
        assert (direction, left) == (("rtl", False) if book.code == "he" else ("ltr", True)), book.code
        for width, _height in at_sizes(page, WIDTHS):
            assert faults(page) == [], (book.code, width)
            assert page.evaluate(INSIDE), (book.code, width)
        page.set_viewport_size({"width": 1280, "height": 800})
        picture(page, f"book-{book.code}")
