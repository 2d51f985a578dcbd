"""The desk's regions say what is known: a book from before needs no time to read, and progress names what
came from disk.
"""

from __future__ import annotations

from dataclasses import replace

from app.job import Snapshot
from app.views import progress_html, stage_html
from core.documents.document import READER_VERSION, Document, Section
from core.events import Prefill

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
    assert "about <b>42 s</b> to read" in card(snapshot_tokens=0)
    # a reading that was cancelled early
    assert "about <b>42 s</b> to read" in card(snapshot_tokens=1024)
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
