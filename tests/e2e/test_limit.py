"""A spoiler limit in a real browser, through the real page, pipe, worker and session: a word that stands in
every later chapter is in no prompt and nowhere on the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.engine.client import Runtime
from core.config import Settings
from tests.support.browsing import ask

pytestmark = pytest.mark.e2e
WORKER = (sys.executable, str(Path(__file__).resolve().parent.parent / "support" / "scripted_worker.py"))
MARKER = "Zyxomma"
EARLY = "The ferryman Oddo hid the silver key under the third plank of the jetty at dusk. " * 4
LATE = f"The ferryman Oddo gave {MARKER} the silver key of the jetty, and she rowed away. " * 4
BOOK = "\n\n".join(f"Chapter {at}\n\n{text}" for at, text in enumerate((EARLY, EARLY, LATE, LATE), 1))
LIMITED = ".ways p:has-text('Chapter 2')"
TALKS = ".talks li"


def unseen(page) -> None:
    """Nor in what is folded away, or said of an element."""
    assert MARKER.lower() not in page.content().lower()


def tell(page, chapter: int) -> None:
    """Has all chapters told up to this one."""
    row = f".tree li:has(input) >> nth={chapter - 1}"
    page.hover(row)
    page.click(f"{row} >> [data-act=tell-up-to]")
    page.wait_for_selector(f".tree li:has-text('summarised') >> nth={chapter - 1}")
    page.wait_for_selector("body[data-connected] .engine-ready")


def again(page, *, answers: int) -> None:
    """The last answer, made anew."""
    page.click("[data-act=regenerate]")
    page.wait_for_selector(f"#turns .answer >> nth={answers - 1} >> [data-version]", state="attached")


@pytest.fixture
def prompts(home, monkeypatch) -> Path:
    """The file of all that the engine is asked. What it reads of the end, it tells."""
    path = home / "prompts.txt"
    monkeypatch.setenv("SCRIPT_PROMPTS", str(path))
    monkeypatch.setenv(
        "SCRIPT_ANSWER", f"{MARKER}=The ferryman Oddo gave {MARKER} the silver key of the jetty."
    )
    return path


@pytest.fixture
def known(serve, open_page, drop, tmp_path, prompts):
    """A page on which all of the book was answered, told, noted and found before."""
    book = tmp_path / "ferry.txt"
    book.write_text(BOOK, encoding="utf-8")
    page = open_page(serve(Runtime(Settings(), worker=WORKER)))
    drop(page, book)
    page.wait_for_selector(".card-facts:has-text('tokens')")
    ask(page, "Who gets the key?", answers=1)
    assert MARKER in page.inner_text("#turns .answer .text"), "else this test shows nothing"
    page.click("#tab-reader")
    page.click(".tree > summary")
    tell(page, 4)
    reading, late = serve.desk.reader, BOOK.index(LATE[:40])
    reading.mark(late, LATE[:60])
    reading.note(late, f"{MARKER} has the silver key.")
    reading.show(late, 60)
    page.wait_for_selector(".marks")
    page.click("[data-act=new]")
    page.wait_for_selector("#turns .bubble", state="detached")
    assert MARKER in page.content()
    return page


def test_nothing_behind_a_limit_is_shown_found_told_or_read(known, prompts):
    page = known
    page.select_option("select[data-act=limit]", "2")
    page.wait_for_selector(LIMITED)
    page.wait_for_selector(".marks", state="detached")
    page.wait_for_selector(".tree li:has(input) >> nth=2", state="detached")
    prompts.unlink()
    unseen(page)

    page.fill("[data-search]", "silver key")
    page.wait_for_selector(".hits:has-text('behind a spoiler limit')")
    # the summaries of what may be known, and the first five places of the book up to there
    page.wait_for_selector(".hits li [data-act=place] >> nth=6")  # the book's come behind the summaries'
    assert page.locator(".hits li [data-act=place]").count() == 2 + 5
    page.fill("[data-find]", "silver key")
    page.wait_for_selector(".found summary:has-text('8 places')")
    unseen(page)
    page.press("[data-search]", "Escape")

    ask(page, "Who gave the key?", answers=1)
    again(page, answers=1)
    page.click("[data-act=fork]")
    page.wait_for_selector(f"{TALKS} >> nth=2")
    page.wait_for_selector(LIMITED)
    ask(page, "And who rowed away?", answers=2)
    again(page, answers=2)
    unseen(page)

    tell(page, 2)
    page.click(".tree .tree-title >> nth=1")
    page.wait_for_selector(".told p")
    for form in ("Markdown", "HTML", "JSON"):
        with page.expect_download() as sent:
            page.click(f".tree-export >> text={form}")
        assert MARKER not in sent.value.path().read_text(encoding="utf-8")
    page.reload()
    page.wait_for_selector(LIMITED)
    unseen(page)
    asked = prompts.read_text(encoding="utf-8")
    assert "And who rowed away?" in asked and EARLY.strip() in asked and MARKER not in asked


def test_a_limit_set_in_the_middle_of_a_conversation_holds_for_all_that_is_asked_from_then_on(known, prompts):
    """What was answered before is folded away until the person opens it; the model is not told of it."""
    page = known
    page.click(f"{TALKS} [data-act=talk]")
    page.wait_for_selector("#turns .bubble:has-text('Who gets the key?')")
    page.select_option("select[data-act=limit]", "2")
    page.wait_for_selector(LIMITED)
    prompts.unlink()
    before = page.locator("#turns .answer").count()
    assert MARKER not in page.inner_text("#turns"), "what knew more stood there to be read"
    page.click("#turns details.behind > summary >> nth=0")
    page.wait_for_selector(f"#turns .answer .text >> text={MARKER}")
    page.click("#turns details.behind > summary >> nth=0")
    ask(page, "And who has it now?", answers=before + 1)
    again(page, answers=before + 1)
    page.click("[data-act=fork] >> nth=-1")
    page.wait_for_selector(f"{TALKS} >> nth=1")
    page.wait_for_selector(LIMITED)
    ask(page, "And then?", answers=before + 2)
    for at in (before, before + 1):
        assert MARKER not in page.inner_html(f"#turns .answer >> nth={at}")
    asked = prompts.read_text(encoding="utf-8")
    assert "And then?" in asked and MARKER not in asked
