"""Answers from passages, the two ways to an answer and the limit, in a real browser, through the real page,
pipe, worker and session; only the model is scripted.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from app.engine.client import Runtime
from core.config import Settings
from core.evidence.support import UNFOUND
from tests.support.said import figures

pytestmark = pytest.mark.e2e
WORKER = (sys.executable, str(Path(__file__).resolve().parent.parent / "support" / "scripted_worker.py"))
QUESTION = "Which bird is cut into the seal ring?"
BIRD = "very finely cut=It is a wren, with one feather out of place in the tail."


@pytest.fixture
def engine(home):
    """An engine for which any reading is too long. The desk that it is given to ends it."""
    return Runtime(Settings(read_whole_s=0.1), worker=WORKER)


@pytest.fixture
def sample() -> Path:
    return Path(__file__).resolve().parents[2] / "assets" / "samples" / "the-thursday-clock.pdf"


def ask(page, question: str) -> str:
    """The last answer's text, once it is complete."""
    before = page.locator("#turns .answer").count()
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(f"#turns .answer >> nth={before}")
    return page.inner_text(f"#turns .answer >> nth={before} >> .text")


def test_an_answer_from_passages_quotes_the_book_and_opens_it_at_the_page(
    serve, open_page, drop, sample, engine, monkeypatch
):
    monkeypatch.setenv("SCRIPT_ANSWER", BIRD)
    page = open_page(serve(engine))
    drop(page, sample)
    page.wait_for_selector(".two-ways [aria-pressed=true]:has-text('Answer from passages')")
    text = ask(page, QUESTION)
    assert text.startswith("It is a wren") and ", p. " in text
    quote = page.locator("#turns .answer .text blockquote")
    assert "It is a wren, very finely cut" in quote.inner_text()
    assert page.locator("#turns .answer .cite-missing").count() == 0
    (source,) = serve.desk.books.turns[-1].extra["sources"]
    assert source in page.inner_text("#turns .answer footer")

    quote.locator("a.cite").click()
    page.wait_for_selector("#passage")
    assert "very finely cut" in " ".join(page.inner_text("#passage").split())
    at = page.inner_text(".reader-page")
    assert at == page.get_attribute("p[data-offset]:has(#passage)", "data-page")
    page.evaluate("""() => {
        for (const one of document.querySelectorAll(".reader-text p")) one.dataset.page = "p. 99";
        document.querySelector(".reader-text").dispatchEvent(new Event("scroll"));
    }""")
    page.wait_for_function("document.querySelector('.reader-page').textContent === 'p. 99'")


def test_a_follow_up_is_looked_for_with_the_question_before_it(
    serve, open_page, drop, sample, engine, monkeypatch
):
    """Of its own words the book knows none."""
    monkeypatch.setenv("SCRIPT_ANSWER", BIRD)
    page = open_page(serve(engine))
    drop(page, sample)
    page.wait_for_selector(".two-ways")
    assert ask(page, "And why is it?").startswith(UNFOUND)
    assert ask(page, QUESTION).startswith("It is a wren")
    assert ask(page, "And why is it?").startswith("It is a wren")
    quote = page.locator("#turns .answer >> nth=2 >> .text blockquote")
    assert "It is a wren, very finely cut" in quote.inner_text()


def test_what_no_passage_says_is_not_said_and_the_nearest_are_shown(
    serve, open_page, drop, sample, engine, monkeypatch
):
    monkeypatch.delenv("SCRIPT_ANSWER", raising=False)  # it answers with words that stand in no book
    page = open_page(serve(engine))
    drop(page, sample)
    page.wait_for_selector(".two-ways")
    text = ask(page, QUESTION)
    assert text.startswith(UNFOUND) and text != UNFOUND
    quotes = page.locator("#turns .answer .text blockquote")
    assert quotes.count() == 3
    assert all("p. " in quotes.nth(at).locator("a.cite").inner_text() for at in range(3))
    assert page.locator("#turns .answer .sign").count() == 0, "nothing is claimed, so nothing is marked"


def test_from_passages_or_all_of_it_at_any_time(serve, open_page, drop, sample, engine, monkeypatch):
    monkeypatch.setenv("SCRIPT_ANSWER", BIRD)
    page = open_page(serve(engine))
    drop(page, sample)
    way = "select[data-act=reading-mode]"
    page.wait_for_selector(".two-ways")
    times = [figures(one) for one in page.locator(".two-ways button").all_inner_texts()]
    assert len(times) == 2 and all(times)
    page.click(".two-ways button:has-text('Read it')")
    page.wait_for_selector(".two-ways [aria-pressed=true]:has-text('Read it')")
    # the scripted engine's context is small
    assert page.input_value(way) == "chunked"
    read = ask(page, "Who is Mr. Tull, the stationmaster?")
    assert read and page.locator("#turns .answer .text blockquote").count() == 0
    page.select_option(way, "retrieval")
    page.wait_for_selector(f"{way} option[value=retrieval][selected]", state="attached")
    assert ask(page, QUESTION).startswith("It is a wren")
    assert page.locator("#turns .answer >> nth=1 >> .text blockquote").count() == 1


def test_nothing_behind_the_limit_is_answered_or_shown(serve, open_page, drop, sample, engine, monkeypatch):
    monkeypatch.setenv("SCRIPT_ANSWER", BIRD)
    page = open_page(serve(engine))
    drop(page, sample)
    page.wait_for_selector(".two-ways")
    tokens, suggested = page.inner_text(".card-facts"), page.locator("[data-act=suggest]").all_inner_texts()
    page.select_option("select[data-act=limit]", "1")
    page.wait_for_selector(".ways p")
    page.wait_for_selector(".card-facts:has-text('1 chapter')")
    page.wait_for_selector(".card-facts:has-text('tokens')")
    assert page.inner_text(".card-facts") != tokens
    left = page.locator("[data-act=suggest]").all_inner_texts()
    assert [one in suggested for one in left] == [True, False], "none about the end"
    text = ask(page, QUESTION)
    assert text.startswith(UNFOUND) and "wren" not in page.inner_text("#turns")
    page.reload()
    page.wait_for_selector(".ways p")
    page.select_option("select[data-act=limit]", "0")
    page.wait_for_selector(".ways p", state="detached")
    assert ask(page, QUESTION).startswith("It is a wren")


def test_reading_all_of_it_is_paused_and_goes_on_where_it_was(
    serve, open_page, drop, tmp_path, engine, monkeypatch
):
    """Nothing that was read is read again."""
    monkeypatch.setenv("SCRIPT_READ", "0.6")
    book = tmp_path / "ferry.txt"
    book.write_text("The ferryman Oddo hid the silver key under the jetty. " * 40, encoding="utf-8")
    page = open_page(serve(engine))
    drop(page, book)
    page.wait_for_selector(".two-ways")
    page.click(".two-ways button:has-text('Read it')")
    page.wait_for_selector(".two-ways [aria-pressed=true]:has-text('Read it')")
    page.fill("#question textarea", "Where is the key?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#prefill-box [aria-valuenow]:not([aria-valuenow='0'])")
    page.click("#stop button")
    page.wait_for_selector("#turns .answer footer:has-text('Paused:')")
    paused = page.inner_text("#turns .answer footer")
    done, total = (
        int(one.replace(",", "")) for one in re.search(r"([\d,]+) of ([\d,]+) tokens", paused).groups()
    )
    assert 0 < done < total

    assert ask(page, "Where is the key?").startswith("You asked")
    assert "Paused" not in page.inner_text("#turns .answer >> nth=1 >> footer")
    assert f"{done:,} reused" in page.text_content("body")
