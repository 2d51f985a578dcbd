"""The page in narrow, low and zoomed windows, and by the keyboard alone."""

from __future__ import annotations

import threading

import pytest

from app.web.page import Page
from tests.support.accessibility import problems
from tests.support.browsing import FOCUSED, tab_to
from tests.support.fake_runtime import FakeRuntime, wait_until
from tests.support.page_looks import at_sizes

pytestmark = pytest.mark.e2e
SMALL = [(390, 844), (640, 400), (900, 800)]
IN_SIGHT = (
    "((box) => box && box.height > 0 && box.top > 0 && box.bottom < innerHeight)"
    "(document.getElementById('passage')?.getBoundingClientRect())"
)
FRAMES = """() => new Promise((done) => {
  let left = 70;
  const step = () => (left -= 1) ? requestAnimationFrame(step) : done();
  requestAnimationFrame(step);
})"""


def opened(serve, open_page, size=(1280, 800)):
    """The sample open, no question asked yet."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)), width=size[0], height=size[1])
    serve.desk.imports.sample(serve.desk.imports.samples[1].name)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    return page


def test_shelf_and_panel_fold_over_the_page_and_away_again(serve, open_page):
    page = opened(serve, open_page)
    for size in at_sizes(page, SMALL):
        fold_over_and_away(page, size)


def fold_over_and_away(page, size: tuple[int, int]) -> None:
    """The shelf, and the panel where it folds, by their buttons, Escape and what is chosen in them."""
    names = {"shelf": "#left", "panel": "#right"} if size[0] <= 760 else {"shelf": "#left"}
    for name, column in names.items():
        toggle = page.locator(f".tool-{name}")
        assert not page.is_visible(column) and toggle.get_attribute("aria-expanded") == "false"
        toggle.click()
        page.wait_for_selector(column, state="visible")
        assert toggle.get_attribute("aria-expanded") == "true"
        assert page.evaluate(f"document.querySelector({column!r}).contains(document.activeElement)")
        at = page.locator(column).bounding_box()
        over = f"document.elementFromPoint({at['x'] + 20}, {at['y'] + at['height'] / 2}).closest({column!r})"
        assert page.evaluate(f"Boolean({over})"), "something of the page shows through"
        page.keyboard.press("Escape")
        page.wait_for_selector(column, state="hidden")
        assert page.evaluate(FOCUSED % f".tool-{name}")
    page.click(".tool-shelf")
    page.click(".book-open")
    page.wait_for_selector("#left", state="hidden")


def test_a_mark_of_an_answer_opens_the_folded_panel_at_its_place(serve, open_page):
    told = "Her watch “was never wrong and was no great company”, she says."
    page = opened(serve, open_page, (390, 844))
    serve.desk.engine.answer = told
    page.fill("#question textarea", "What of her watch?")
    page.press("#question textarea", "Enter")
    page.click("#turns .text a.cite")
    page.wait_for_selector("#passage", state="visible")
    assert page.is_visible("#right")
    page.keyboard.press("Escape")
    assert page.is_visible("#composer")


def test_a_mark_leads_to_its_place_again_after_a_reload_and_after_scrolling_away(serve, open_page):
    """The place was open already: nothing was drawn anew, and the reader stayed at its chapter's beginning.

    The reader looks after a place for 60 frames; more are waited for.
    """
    page = opened(serve, open_page, (390, 844))
    serve.desk.engine.answer = "Her watch “was never wrong and was no great company”, she says."
    page.fill("#question textarea", "What of her watch?")
    page.press("#question textarea", "Enter")
    page.click("#turns .text a.cite")
    page.wait_for_function(IN_SIGHT)
    page.reload()
    page.wait_for_selector("#turns .text a.cite")
    page.evaluate(FRAMES)
    page.click("#turns .text a.cite")
    page.wait_for_function(IN_SIGHT)
    page.evaluate(FRAMES)
    page.evaluate("document.querySelector('.reader-text').scrollTop = 0")
    page.wait_for_function(f"!({IN_SIGHT})")
    page.keyboard.press("Escape")
    page.click("#turns .text a.cite")
    page.wait_for_function(IN_SIGHT)


def test_rules_of_accessibility_hold_in_small_windows(serve, open_page):
    page = opened(serve, open_page)
    found = {("card", size): problems(page) for size in at_sizes(page, SMALL)}
    page.click("#summarize")
    page.wait_for_selector("#turns .answer footer")
    for size in at_sizes(page, SMALL):
        found["talk", size] = problems(page)
        for name in ("shelf", "panel"):
            if page.is_visible(f".tool-{name}"):
                page.click(f".tool-{name}")
                found[name, size] = problems(page)
                page.keyboard.press("Escape")
    assert not any(found.values()), found


def test_the_question_is_two_keys_away(serve, open_page):
    """It took 40 stops of the Tab key behind a shelf of books."""
    page = opened(serve, open_page)
    desk = serve.desk
    for number in range(6):
        desk.books.begin_conversation()
        desk.questions.ask(f"Question {number}?")
        wait_until(lambda: not desk.state.busy)
    page.wait_for_selector(".talks li >> nth=5")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED % ".skip") and page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED % "#question textarea")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    assert page.evaluate(FOCUSED % "#question textarea") and page.input_value("#question textarea") == ""


def test_the_shelf_is_one_stop_and_its_arrows_go_everywhere(serve, open_page):
    page = opened(serve, open_page)
    desk = serve.desk
    desk.imports.sample(desk.imports.samples[0].name)
    page.wait_for_selector(".shelf .book >> nth=1")
    wait_until(lambda: desk.state.opening is None)
    desk.questions.ask("Who?")
    wait_until(lambda: not desk.state.busy)
    page.wait_for_selector(".talks li")
    assert page.evaluate("document.querySelectorAll('.shelf button:not([tabindex])').length") == 1
    page.focus(".shelf button:not([tabindex])")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED % "[data-act=forget]")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED % "[data-act=talk]")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED % "[data-act=book]")
    other = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("Enter")
    page.wait_for_selector(f".book-open[aria-current][data-id='{other}']")


def test_the_main_job_by_keyboard_alone(serve, open_page):
    page = opened(serve, open_page)
    page.keyboard.press("/")
    page.keyboard.type("Who keeps the clocks?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#turns .answer footer")
    assert page.locator("#turns .bubble").inner_text() == "Who keeps the clocks?"


def test_an_offer_of_a_model_leaves_room_for_the_book(serve, open_page):
    """At 200 % zoom nothing of the book was in sight."""
    page = opened(serve, open_page)
    serve.desk.models.start()
    page.wait_for_selector(".model-offer", state="visible")
    page.set_viewport_size({"width": 640, "height": 400})
    page.wait_for_selector(".model-offer", state="hidden")
    title, choices = (page.locator(name).bounding_box() for name in (".card h2", "#summarize"))
    assert title["y"] > 0 and title["y"] + title["height"] < choices["y"]


def test_from_the_first_book_to_its_page_without_a_mouse(serve, open_page):
    """A sample is opened, summarised, stopped, asked about, its mark followed, and Settings opened."""
    told = "Of the stair he says that “there is no music in the world to come near it”."
    fake = FakeRuntime(pace=0.1, prefill_steps=2, summary="\n\n".join([told] * 60), answer=told)
    fake.context_tokens = 65_536
    page = open_page(serve(fake))
    tab_to(page, "[data-act=sample]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".card-facts:has-text('tokens')")
    tab_to(page, "#summarize")
    page.keyboard.press("Enter")
    page.wait_for_selector("#live-text p")
    page.keyboard.press("Escape")
    page.wait_for_selector("#turns .answer footer:has-text('Stopped by you')")
    fake.pace = 0.002
    page.keyboard.press("/")
    page.keyboard.type("What of the stair?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, "#turns .text a.cite")
    page.keyboard.press("Enter")
    page.wait_for_selector("#passage", state="visible")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, ".topbar-tools [data-toggle=settings]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#settings", state="visible")
    assert page.evaluate("document.querySelector('#settings').contains(document.activeElement)")
    page.keyboard.press("Escape")
    page.wait_for_selector("#settings", state="hidden")
    assert page.evaluate("document.activeElement.dataset.toggle") == "settings"


SEEN = """(() => {
  window.stood = [];
  new MutationObserver(() => {
    const frame = document.getElementById("frame");
    if (frame && !document.body.dataset.connected) window.stood.push(frame.textContent);
  }).observe(document, { childList: true, subtree: true });
})()"""


def test_the_pages_parts_stand_there_before_gradio_has_mounted_it(serve, open_page):
    """For seconds it was an empty sheet."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    page.add_init_script(SEEN)
    page.reload()
    page.wait_for_selector("body[data-connected]")
    assert any("Library" in words and "Live" in words for words in page.evaluate("window.stood"))
    page.wait_for_selector("#frame", state="detached")


def test_the_pages_parts_stand_there_until_the_app_has_filled_it(serve, open_page, monkeypatch):
    """On a full disk, or with other work on the machine, it was an empty sheet once more."""
    page = open_page(serve(FakeRuntime(pace=0.002, prefill_steps=2)))
    filled, render = threading.Event(), Page.render
    monkeypatch.setattr(Page, "render", lambda self: (filled.wait(30), render(self))[1])
    page.reload()
    page.wait_for_selector("body[data-connected]")
    page.wait_for_timeout(300)
    assert page.locator("#frame").is_visible()
    filled.set()
    page.wait_for_selector("#frame", state="detached")
    assert page.inner_text(".brand")


def test_nothing_in_the_middle_moves_between_live_and_book(serve, open_page):
    page = opened(serve, open_page)
    for _size in at_sizes(page, [(1440, 900), (1280, 800), (1050, 800), (900, 800)]):
        places = []
        for tab in ("#tab-live", "#tab-reader"):
            page.click(tab)
            page.wait_for_timeout(100)
            places.append([page.locator(one).bounding_box() for one in ("#middle", ".card", "#composer")])
        assert places[0] == places[1]
    page.click("#tab-live")


def test_at_the_width_of_a_phone_the_talk_is_in_sight_at_once(serve, open_page):
    """The card and the choices of the book filled the screen before the first word."""
    page = opened(serve, open_page, size=(390, 844))
    page.fill("#question textarea", "Who keeps the clocks?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#turns .answer footer")
    page.reload()
    page.wait_for_selector("#turns .answer footer")
    page.wait_for_timeout(300)
    asked = page.locator("#turns .asked .bubble").last.bounding_box()
    answer = page.locator("#turns .answer .text").last.bounding_box()
    composer = page.locator("#composer").bounding_box()
    assert 0 <= asked["y"] < 500 and answer["y"] < composer["y"] - 80


SCROLLED = """(column) => [...document.querySelectorAll(`${column}, ${column} *`)].filter((one) =>
  ["auto", "scroll"].includes(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1)
  .map((one) => one.id || one.className)"""


class LongCard(FakeRuntime):
    """Reads a book in 75 parts, with a lot of notes."""

    def card(self, book, spoiler_limit=None, **scope):
        """See FakeRuntime."""
        parts, notes = [f"Part {number}" for number in range(75)], ["A note. " * 9] * 30
        return {**super().card(book, spoiler_limit, **scope), "parts": parts, "notes": notes}


def test_what_is_unfolded_scrolls_as_one(serve, open_page):
    """Each fold had a scroll bar of its own, beside that of its column: three at once in a small window."""
    page = open_page(serve(LongCard(pace=0.002, prefill_steps=2)))
    serve.desk.imports.sample(serve.desk.imports.samples[1].name)
    page.wait_for_selector(".card .fold")
    for fold in page.locator(".card .fold > summary").all():
        fold.click()
    page.click("#tab-reader")
    page.click(".tree > summary")
    page.click("[data-act=names]")
    page.fill("[data-find]", "the")
    page.click(".found > summary")
    for _size in at_sizes(page, [(390, 844), (1280, 760)]):
        assert page.evaluate(SCROLLED, "#scroller") == ["scroller"]
        page.evaluate("document.body.dataset.panel = '1'")
        assert page.evaluate(SCROLLED, "#pane-reader") == ["folds", "reader-text"]
        page.evaluate("delete document.body.dataset.panel")
    page.evaluate("document.getElementById('folds').scrollTop = 9999")
    page.fill("[data-find]", "clock")
    page.wait_for_function("document.getElementById('folds').scrollTop === 0")  # what was found is in sight


def test_the_panel_of_a_phone_shows_the_book_and_not_its_head(serve, open_page):
    """The tools and folds above the text took half of the screen, a quarter of that with nothing in it."""
    page = opened(serve, open_page, size=(390, 844))
    page.click(".tool-panel")
    page.click("#tab-reader")
    page.wait_for_selector(".reader-text p[data-offset]")
    assert page.locator(".reader-text").bounding_box()["y"] < 844 / 3


@pytest.mark.parametrize("touch", [False, True])
def test_a_conversation_shows_its_whole_name_and_lets_it_be_deleted(serve, open_page, touch):
    """Three buttons left room for the first letters of it."""
    page = open_page(serve(FakeRuntime(pace=0.002)), width=1280, height=800, has_touch=touch, is_mobile=touch)
    desk = serve.desk
    desk.imports.sample(desk.imports.samples[1].name)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    for question in ("Why?", "Who is it that winds the clock of the railway?"):
        desk.actions.dispatch({"act": "new"})
        desk.questions.ask(question)
        wait_until(lambda: not desk.state.busy)
    page.wait_for_selector(".talks li >> nth=1")
    cut = "(one) => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight + 1"
    names = page.locator(".talks [data-act=talk]")
    assert [names.nth(at).evaluate(cut) for at in range(2)] == [False, False]
    if touch:
        page.tap(".talks li >> nth=1 >> [data-act=talk]")
        page.wait_for_selector(".talks li:has([aria-current]):has-text('Why')")
        page.tap(".talks li:has([aria-current]) [data-act=forget-talk]")
    else:
        page.hover(".talks li >> nth=1")
        page.click(".talks li >> nth=1 >> [data-act=forget-talk]")
    page.wait_for_selector(".talks li >> nth=1", state="detached")
    assert "Why" not in page.inner_text(".talks")
