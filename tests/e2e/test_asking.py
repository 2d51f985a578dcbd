"""Around the question box in a browser: instructions, the context's meter, the choice where there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from core.events import Finished
from tests.support.accessibility import problems
from tests.support.browsing import ask, shot
from tests.support.fake_runtime import ANSWER, FakeRuntime
from tests.support.page_looks import at_sizes, faults, in_both_schemes, picture

pytestmark = pytest.mark.e2e
FIRST, SECOND = "Who keeps the clocks?", "And who winds them?"


class SlowToEnd(FakeRuntime):
    """All words of its first answer are said until somebody asks again (`heard`), and `ending_s` longer."""

    ending_s = 0.0

    def __init__(self, **script) -> None:
        super().__init__(**script)
        self.said, self.heard = threading.Event(), threading.Event()

    def _rounds(self, text, stats):
        for event in super()._rounds(text, stats):
            if isinstance(event, Finished) and len(self.asked) == 1:
                self.said.set()
                self.heard.wait(10)
                time.sleep(self.ending_s)
            yield event


def test_what_the_page_offers_to_ask_is_asked(serve, open_page, drop, sample):
    """With the book's text on the page its buttons were taken for those of the text's size, and dead."""
    fake = FakeRuntime(pace=0.002, prefill_steps=2)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector("#reader p[data-offset]", state="attached")
    page.wait_for_selector(".card-facts:has-text('tokens')")
    offered = page.locator("[data-act=suggest]").all_inner_texts()
    for number, question in enumerate(offered):
        page.click(f"[data-act=suggest] >> nth={number}")
        page.wait_for_selector("#turns .answer footer")
        assert fake.asked[-1].question == question
        page.click("text=New conversation")
        page.wait_for_selector("#turns .answer", state="detached")
    assert len(offered) == 3 and page.locator("button[data-act]:disabled").count() == 0


def test_own_instructions_are_written_kept_and_shown(serve, open_page, drop, sample):
    fake = FakeRuntime(pace=0.002, prefill_steps=2)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click(".own summary")
    page.fill("[data-act=instruct-book]", "Answer in German, briefly.")
    assert problems(page) == []
    box, talk = (page.locator(one).bounding_box() for one in (".own-boxes", "#scroller"))
    assert box["y"] >= talk["y"] + talk["height"] - 1, "it covers nothing"
    shot(page, "instructions")
    page.keyboard.press("Escape")
    assert page.locator(".own[open]").count() == 0
    page.wait_for_selector(".own summary:has-text('Instructions: Answer in German, briefly.')")
    page.click(".own summary")
    ask(page, "Who keeps the clocks?", answers=1)
    assert fake.asked[-1].instructions == "Answer in German, briefly."
    page.wait_for_selector(".bubble .instructed:has-text('in German')")
    shot(page, "instructed")
    page.reload()
    page.wait_for_selector(".own summary:has-text('in German')")
    page.click(".own summary")
    page.fill("[data-act=instruct]", "Name the chapter.")
    page.keyboard.press("Tab")
    page.wait_for_selector(".own summary:has-text('Name the chapter.')")
    serve.desk.imports.sample(serve.desk.imports.samples[0].name)
    page.wait_for_selector(".card h2:has-text('The Light on the Holm')")
    page.wait_for_selector(".own summary:has-text('Instructions: Name the chapter.')")
    ask(page, "Who lights the lamp?", answers=1)
    assert fake.asked[-1].instructions == "Name the chapter."


def looks(page, name: str) -> Iterator[str]:
    """The state of this name in two windows and in both colours, with a picture of each."""
    for width, _height in at_sizes(page, ((390, 800), (1280, 800))):
        for scheme in in_both_schemes(page):
            yield f"{width} {scheme}"
            shot(page, f"{name}-{width}-{scheme}")


def test_the_choice_comes_before_a_question_that_has_no_room(serve, open_page, drop, sample):
    fake = FakeRuntime(pace=0.002, prefill_steps=2, answer=" ".join([ANSWER] * 8))
    fake.context_tokens = 16_384
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    ask(page, "And who winds them?", answers=2)
    for _look in looks(page, "meter"):
        page.wait_for_selector("#meter .room-good")
    ask_room = fake.room(fake.asked[-1])
    fake.context_tokens = ask_room["text"] + 2 * sum(ask_room["turns"]) + ask_room["answer"]
    page.fill("#question textarea", "What is the last thing that the clock says?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector(".crowded blockquote:has-text('last thing')")
    assert page.locator("#turns .bubble").count() == 2 and len(fake.asked) == 2
    for look in looks(page, "crowded"):
        assert problems(page) == [], look
        for act in ("not-now", "retell-oldest"):
            page.click(f"[data-act={act}]", trial=True)
    page.click("[data-act=not-now]")
    page.wait_for_selector(".crowded", state="detached")
    assert page.input_value("#question textarea") == "What is the last thing that the clock says?"
    page.press("#question textarea", "Enter")
    page.click("[data-act=retell-oldest]")
    page.wait_for_selector("#turns .left-out:has-text('summary')")
    page.wait_for_selector("#turns .answer footer >> nth=2")
    for _look in looks(page, "retold"):
        page.evaluate("document.querySelector('.left-out').scrollIntoView()")
    assert "of both books" not in page.content()
    page.fill("#question textarea", "Compare the clocks of both books")
    page.press("#question textarea", "Enter")
    page.wait_for_selector(".notice:has-text('one book')")
    assert page.input_value("#question textarea") == "Compare the clocks of both books"


@pytest.mark.parametrize(("act", "talks", "kept"), [("drop-oldest", 1, 1), ("start-fresh", 2, 0)])
def test_the_oldest_are_left_out_or_a_new_conversation_begins(
    serve, open_page, drop, sample, act, talks, kept
):
    fake = FakeRuntime(pace=0.002, prefill_steps=2, answer=" ".join([ANSWER] * 8))
    fake.context_tokens = 16_384
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    ask(page, "Who keeps the clocks?", answers=1)
    ask(page, "And who winds them?", answers=2)
    # what was read of the book serves every further question, and the panel says so
    page.wait_for_function(r"/\d,\d{3} reused/.test(document.querySelector('#stat-prefill').innerText)")
    room = fake.room(fake.asked[-1])
    fake.context_tokens = room["text"] + 2 * sum(room["turns"]) + room["answer"]
    page.fill("#question textarea", "What is the last thing that the clock says?")
    page.press("#question textarea", "Enter")
    page.click(f".crowded [data-act={act}]")
    page.wait_for_selector("#turns .bubble:has-text('last thing')")
    page.wait_for_selector(f"#turns .answer footer >> nth={2 if kept else 0}")
    page.wait_for_selector(".talks li" if talks == 1 else ".talks li >> nth=1")
    assert len(fake.asked[-1].history) == kept and page.locator(".talks li").count() == talks
    if kept:
        page.wait_for_selector("#turns .left-out:has-text('less of what is above')")
        assert page.locator("#turns .bubble").count() == 3, "what is left out stays to be read"


@pytest.fixture
def asked_at_the_end(serve, open_page, drop, sample):
    """A function that sends a question so many seconds before the answer to another ends: (page, engine)."""

    def start(ending_s: float):
        fake = SlowToEnd(pace=0.002, prefill_steps=2)
        fake.ending_s = ending_s
        page = open_page(serve(fake))
        drop(page, sample)
        page.wait_for_selector(".card h2")
        page.fill("#question textarea", FIRST)
        page.press("#question textarea", "Enter")
        page.wait_for_selector("#turns .bubble")
        page.wait_for_function("document.querySelector('#question textarea').value === ''")
        page.fill("#question textarea", SECOND)
        assert fake.said.wait(10)
        questions = serve.desk.questions
        ask = questions.ask
        questions.ask = lambda *given: (fake.heard.set(), ask(*given))[1]
        page.press("#question textarea", "Enter")
        return page, fake

    return start


def test_a_question_sent_in_the_last_moment_of_an_answer_is_asked(asked_at_the_end):
    """All of its words were to be seen, and the Enter was swallowed."""
    page, fake = asked_at_the_end(0.1)
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert page.locator("#turns .bubble").all_inner_texts() == [FIRST, SECOND]
    assert [one.question for one in fake.asked] == [FIRST, SECOND]
    assert page.input_value("#question textarea") == "" and page.locator(".notice").count() == 0


def test_a_question_waits_in_sight_is_dropped_or_has_its_turn_and_another_book_is_read_meanwhile(
    serve, open_page, drop, sample
):
    """Enter did nothing, and no other book could be opened."""
    fake = FakeRuntime(pace=30.0, prefill_steps=1)
    page = open_page(serve(fake))
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.fill("#question textarea", FIRST)
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#stop button:visible")
    page.fill("#question textarea", SECOND)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(f".queue q:has-text('{SECOND}')")
    page.wait_for_function("document.querySelector('#question textarea').value === ''")
    for look in looks(page, "queue"):
        assert problems(page) == [], look
    page.click("[data-act=drop-queued]")
    page.wait_for_selector(".queue", state="detached")
    assert page.input_value("#question textarea") == SECOND
    page.click("#send")
    page.wait_for_selector(f".queue q:has-text('{SECOND}')")
    serve.desk.imports.sample(serve.desk.imports.samples[0].name)
    page.click(".shelf [data-act=book]:has-text('The Light on the Holm')")
    page.wait_for_selector(".card h2:has-text('The Light on the Holm')")
    page.wait_for_selector(f".queue p:has-text('Being answered') q:has-text('{FIRST}')")
    for look in looks(page, "elsewhere"):
        assert problems(page) == [], look
    fake.pace = 0.002
    page.click(".queue [data-act=stop]")
    page.wait_for_selector(f".queue p:has-text('Answered meanwhile') q:has-text('{SECOND}')")
    for size in at_sizes(page, [(390, 844), (1280, 800)]):
        assert faults(page) == [], size
        picture(page, f"meanwhile-{size[0]}")
    page.click(".queue [data-act=said]")
    page.wait_for_selector("#turns .answer footer >> nth=1")
    assert page.locator("#turns .bubble").all_inner_texts() == [FIRST, SECOND]
    page.wait_for_selector(".queue", state="detached")
