"""The pages of summaries: where the number behind a sentence leads."""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.report import summary_page
from core.documents.document import Document, Section
from core.events import Delta, Finished, Piece, ReadingStep, SourceSpan, Stats

TEXT = "Ann met a lion. She ran.\n\nThen it was late. She slept."
SECOND = TEXT.index("Then")
BOOK = Document(
    "Ann", "A. Nobody", "txt", TEXT, (Section("I", 0, SECOND), Section("II", SECOND, len(TEXT))), sha256="a"
)


def _said(text: str, *sentences: str) -> Finished:
    stands = []
    for one in sentences:
        start, at = text.index(one), TEXT.index(one)
        stands.append(SourceSpan(start, start + len(one), at, at + len(one)))
    return Finished("stop", text, Stats(), notes=("Own sentences.",), stands=tuple(stands))


def test_every_sentence_leads_to_the_chapter_it_stands_in():
    """Those by chapters had no number, and no word said what a number leads to."""
    by_chapters = "## One\n\nAnn met a lion. She ran.\n\n## Two\n\nShe slept."
    made = summary_page.summary_page(
        BOOK,
        {
            "page": _said("She ran. She slept.", "She ran.", "She slept."),
            "chapters": _said(by_chapters, "Ann met a lion.", "She ran.", "She slept."),
        },
        "M",
    )
    opening, page, chapters = made.partition("## On a page")[0], *made.split("## On a page")[1].split("\n## ")
    (named,) = re.findall(r"further down, under\n\*(.+?)\*", opening)
    assert f"\n## {named}\n" in made
    assert "She ran. [1](#ch-1) She slept. [2](#ch-2)" in page
    first, second = chapters.split('<a id="ch-2"></a>')
    assert '<a id="ch-1"></a>\n\n### 1. One\n\nAnn met a lion. [1](#ch-1) She ran. [1](#ch-1)' in first
    assert "### 2. Two\n\nShe slept. [2](#ch-2)" in second
    assert max(map(len, made.splitlines())) <= 120


def test_what_was_written_and_did_not_stay_is_struck_out():
    """A reader of the page sees what the book did not bear out."""
    said = "A lion was met by Ann. Ann flew to the moon. And"
    done = _said("Ann met a lion. She ran.", "She ran.")
    done = replace(done, text=f"A lion was met by Ann. {done.text}")
    step = ReadingStep(1, 1, "I", "telling")  # said again with what is left
    parts, end = summary_page.heard(
        [step, Delta((Piece(said[:24], "target"),)), step, Delta((Piece(said[24:], "target"),)), done]
    )
    made = summary_page.summary_page(
        BOOK, {"page": replace(end, stands=()), "chapters": _said("")}, "M", parts
    )
    assert "**1 of 1, I.** A lion was met by Ann. ~~Ann flew to the moon.~~ ~~And~~" in made
