"""Reading aloud in a browser whose voices are a script: what is said, marked and followed, and by whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.accessibility import problems
from tests.support.browsing import FOCUSED, ask, select, shot, tab_to
from tests.support.fake_runtime import FakeRuntime
from tests.support.page_looks import in_both_schemes

pytestmark = pytest.mark.e2e
VOICES = Path(__file__).resolve().parents[1] / "support" / "voices.js"
# without white space: a line's break is no character of it
MARKED = "[...CSS.highlights.get('spoken')][0].toString().replace(/\\s/g, '')"
BOOK = "[data-aloud=book]"
TOLD = "“Mr. Wend winds it,” says the book. The lamp is dark!\n\n- One clock stands.\n- Another goes."
LONG = " ".join(f"The keeper counted wave number {number}." for number in range(40))
TEXT = (
    f"# One\n\nMrs. Wend looked\nup. “Who is it?”\n\nNobody came.\n\n{LONG}\n\n# Two\n\nThe lamp was dark.\n"
)


@pytest.fixture
def listening(serve, open_page, tmp_path):
    """Opens a text in its pane on a computer with these voices."""

    def begin(*voices: str, text: str = TEXT, size: tuple[int, int] = (1280, 800), language: str = ""):
        fake = FakeRuntime(pace=0.002, prefill_steps=2, answer=TOLD)
        address = serve(fake)
        if language:
            serve.desk.preferences.choose("language", language)
        page = open_page(address, width=size[0], height=size[1])
        page.add_init_script(path=VOICES)
        page.reload()
        page.wait_for_selector("body[data-connected]")
        path = tmp_path / "book.md"
        path.write_text(text, encoding="utf-8")
        serve.desk.imports.files([str(path)])
        page.wait_for_selector(".card h2")
        page.wait_for_selector(".reader-text h3", state="attached")
        page.evaluate("(names) => install(...names)", list(voices))
        return page

    return begin


def last(page) -> list:
    return page.evaluate("said.at(-1)")


def finish(page, words: str) -> None:
    """The sentence ends, and these words come next."""
    page.evaluate("finish()")
    page.wait_for_function("(words) => said.at(-1)[0] === words", arg=words)


@pytest.mark.parametrize("voices", [(), ("Cloud",), ("Cora",)], ids=["none", "far", "foreign"])
def test_without_a_voice_the_button_says_so(listening, voices):
    """A voice that sends the text to another computer is none, nor is one for another language."""
    page = listening(*voices)
    page.click("#tab-reader")
    assert page.is_visible(f".find-row {BOOK} [data-cannot]")
    assert not page.is_visible(f".find-row {BOOK} [data-can]")
    page.click(f".find-row {BOOK}")
    page.wait_for_selector(".aloud:has-text('Install one')")
    assert page.evaluate("said.length") == 0 and not page.is_visible("[data-aloud-voice]")
    page.click("[data-aloud-do=stop]")
    page.wait_for_selector(".aloud", state="hidden")
    page.evaluate("install('Ada')")
    assert page.is_visible(f".find-row {BOOK} [data-can]")
    assert not page.is_visible(f".find-row {BOOK} [data-cannot]")


def test_a_book_is_read_sentence_by_sentence_into_its_next_chapter(listening):
    page = listening("Cloud", "Ada")
    page.click("#tab-reader")
    page.click(f".find-row {BOOK}")
    assert last(page) == ["One", "Ada", 1]
    for words in ("Mrs. Wend looked up.", "“Who is it?”", "Nobody came."):
        finish(page, words)
        assert page.evaluate(MARKED) == words.replace(" ", "")
    for number in range(40):
        finish(page, f"The keeper counted wave number {number}.")
    page.wait_for_function("document.querySelector('.reader-text').scrollTop > 100")
    shot(page, "aloud")
    bar, composer = (page.locator(name).bounding_box() for name in (".aloud", "#composer"))
    assert composer["y"] + composer["height"] <= bar["y"], "the question can be typed meanwhile"
    assert page.locator("#left").bounding_box()["y"] == page.locator("#middle").bounding_box()["y"]
    finish(page, "Two")
    finish(page, "The lamp was dark.")
    assert page.evaluate(MARKED) == "Thelampwasdark." and page.inner_text(".reader-text h3") == "Two"
    page.evaluate("finish()")
    page.wait_for_selector(".aloud", state="hidden")
    assert not page.evaluate("CSS.highlights.has('spoken')") and page.locator(".speaking").count() == 0


def test_who_scrolls_away_is_left_there(listening):
    page = listening("Ada")
    page.click("#tab-reader")
    page.click(f".find-row {BOOK}")
    page.evaluate("document.querySelector('.reader-text').scrollTop = 400")
    finish(page, "Mrs. Wend looked up.")
    assert page.evaluate("document.querySelector('.reader-text').scrollTop") == 400


def test_pause_speed_voice_and_the_sentences_beside(listening):
    page = listening("Ada", "Bela")
    page.click("#tab-reader")
    page.click(f".find-row {BOOK}")
    page.click("[data-aloud-do='1']")
    assert last(page) == ["Mrs. Wend looked up.", "Ada", 1]
    page.click("[data-aloud-do='-1']")
    assert last(page)[0] == "One"
    page.click("[data-aloud-do=toggle]")
    page.wait_for_selector(".aloud >> text='Go on'")
    count = page.evaluate("said.length")
    page.select_option("[data-aloud-rate]", "1.5")
    page.select_option("[data-aloud-voice]", label="Bela")
    assert page.evaluate("said.length") == count, "a choice ends no pause"
    page.keyboard.press("Escape")
    page.focus(".reader-text")
    page.keyboard.press("l")
    assert last(page) == ["One", "Bela", 1.5]
    page.select_option("[data-aloud-rate]", "2")
    assert last(page) == ["One", "Bela", 2]
    page.evaluate("fail()")
    page.wait_for_selector(".aloud:has-text('This voice failed')")
    page.reload()
    page.wait_for_selector(".reader-text h3")
    page.evaluate("install('Ada', 'Bela')")
    page.focus(".reader-text")
    page.keyboard.press("l")
    assert last(page) == ["One", "Bela", 2], "kept for the next time"


def test_it_begins_at_the_selected_words(listening):
    page = listening("Ada")
    page.click("#tab-reader")
    select(page, "Nobody came.")
    page.click(f".selected {BOOK}")
    assert last(page)[0] == "Nobody came."


def test_without_a_mouse(listening):
    page = listening("Ada")
    page.click("#tab-reader")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, f".find-row {BOOK}")
    page.keyboard.press("Enter")
    assert last(page)[0] == "One"
    tab_to(page, "[data-aloud-do=stop]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".aloud", state="hidden")
    assert page.evaluate(FOCUSED % f".find-row {BOOK}")


def test_an_answer_is_read_without_its_marks(listening):
    page = listening("Cora", "Ada")
    ask(page, "Who winds it?", answers=1)
    page.click("#turns [data-aloud=answer]")
    assert last(page) == ["“Mr. Wend winds it,” says the book.", "Ada", 1]
    for words in ("The lamp is dark!", "One clock stands.", "Another goes."):
        finish(page, words)
    assert page.evaluate(MARKED) == "Anothergoes."
    page.evaluate("finish()")
    page.wait_for_selector(".aloud", state="hidden")


def test_what_is_drawn_anew_stays_marked_and_another_chapter_ends_it(listening):
    page = listening("Ada")
    page.click("#tab-reader")
    page.click(f".find-row {BOOK}")
    finish(page, "Mrs. Wend looked up.")
    page.fill("[data-find]", "nobody")
    page.click(".found li button")
    page.wait_for_selector("#passage")
    page.wait_for_function(f"{MARKED} === 'Mrs.Wendlookedup.'")
    finish(page, "“Who is it?”")
    page.focus(".reader-text")
    page.keyboard.press("n")
    page.wait_for_selector(".aloud", state="hidden")


@pytest.mark.parametrize("language", ["en", "de", "zh"])
def test_in_every_language_and_on_a_telephone(listening, language):
    page = listening("Ada", size=(390, 844), language=language)
    page.click(".topbar-tools [data-toggle=panel]")
    page.click("#tab-reader")
    page.click(f".find-row {BOOK}")
    bar = page.locator(".aloud").bounding_box()
    pane = page.locator(".reader-text").bounding_box()
    assert pane["y"] + pane["height"] <= bar["y"] + 1, "the bar covers no text"
    stop = page.locator("[data-aloud-do=stop]").bounding_box()
    assert stop["x"] >= 0 and stop["x"] + stop["width"] <= 390
    for scheme in in_both_schemes(page):
        assert not problems(page)
        shot(page, f"aloud-{language}-{scheme}")
