"""The desk's regions say what is known: a book from before needs no time to read, progress names what came
from disk, one word is one word, and a heading stands once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from app.desk.answer_job import Snapshot
from app.desk.values import ShownPassage
from app.render.templating import render
from app.web.reader import reader_html
from app.web.regions import progress_html, stage_html
from core.documents.document import READER_VERSION, Document, Section
from core.events import Prefill

ROOT = Path(__file__).resolve().parents[2]
BOOK = Document("B", "", "txt", "Once upon a time.", (Section("One", 0, 17),), sha256="b")
CARD = {
    "tokens": 7000,
    "share_of_context": 0.85,
    "fits": True,
    "parts": ["Whole book"],
    "read_s_estimate": 42.0,
    "notes": [],
}


def card(**changes) -> str:
    return stage_html(BOOK, {**CARD, **changes}, covered=False, opening=None, talking=False)


def test_a_book_from_before_opens_at_once():
    assert "about <b>42\u00a0s</b> to read" in card(snapshot_tokens=0)
    # a reading that was cancelled early
    assert "about <b>42\u00a0s</b> to read" in card(snapshot_tokens=1024)
    known = card(snapshot_tokens=6990, read_s_estimate=0.06)
    assert "read before" in known and "to read" not in known


def test_a_book_of_an_older_reader_says_that_its_file_may_be_dropped_again():
    """Its chapters may be wrong in ways that were mended since; nothing else would tell."""
    assert "Drop its file again" in card()
    new = replace(BOOK, reader_version=READER_VERSION)
    assert "Drop its file again" not in stage_html(new, CARD, covered=False, opening=None, talking=False)


def test_progress_names_what_came_from_disk():
    fresh = progress_html(Snapshot(phase="prefill", prefill=Prefill(100, 7000, 1.0, 9.0)))
    assert "100 of 7,000 tokens" in fresh and "known from before" not in fresh
    again = progress_html(Snapshot(phase="prefill", prefill=Prefill(0, 24, 0.1, None, 6976, 6976)))
    assert "0 of 24 tokens · 6,976 known from before" in again


def test_one_word_is_one_word():
    said = stage_html(
        replace(BOOK, text="Once"), {**CARD, "tokens": 1}, covered=False, opening=None, talking=False
    )
    assert all(re.search(rf"<b>1</b> {name}\b", said) for name in ("word", "token", "chapter"))


def test_the_reader_does_not_repeat_a_chapters_heading():
    """It stands above the text, and most files begin the chapter with it once more."""
    book = replace(BOOK, text="ONE.\n\nOnce upon a time.", sections=(Section("One", 0, 24),))
    page = reader_html(book, ShownPassage())
    assert page.count("<h3") == 1 and "ONE." not in page and "Once upon a time." in page
    assert ">ONE.<" in reader_html(book, ShownPassage(0, 4)), "what is marked is shown"


def test_the_place_to_drop_a_book_names_every_format_that_opens():
    """As the file dialog offers them: a format that is not named is not tried."""
    script = (ROOT / "assets" / "js" / "app.js").read_text(encoding="utf-8")
    offered = set(re.search(r'BOOKS = "([^"]*)"', script)[1].split(","))
    words = render("hero.html").casefold()
    names = {".txt": "text", ".md": "markdown", ".htm": "html", ".mhtml": "html", ".docx": "word", ".zip": ""}
    assert offered >= {".pdf", ".epub", ".fb2", ".docx", ".odt", ".rtf", ".txt", ".md", ".html"}
    assert all(names.get(one, one[1:]) in words for one in offered)
