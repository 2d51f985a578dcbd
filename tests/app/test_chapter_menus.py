"""The menus of chapters."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.web import regions
from core.documents.document import Document, Section

TITLES = ("Chapter 1. The Quay", "II: Fog", "In the Forest", "Four.")
TEXT = "".join(f"{title}\n\nThere it was.\n\n" for title in TITLES)
STARTS = [TEXT.index(title) for title in TITLES]
SECTIONS = tuple(
    Section(title, start, end)
    for title, start, end in zip(TITLES, STARTS, [*STARTS[1:], len(TEXT)], strict=True)
)
BOOK = Document("B", "", "txt", TEXT, SECTIONS, sha256="b")


def options(html: str) -> list[str]:
    return [" ".join(one.split()) for one in re.findall(r"<option[^>]*>([^<]*)", html)]


def test_a_chapter_that_has_a_number_gets_no_second_one():
    """The menus said "1. Chapter 1. The Quay" and "Up to chapter 1: Chapter 1. The Quay"."""
    chosen = options(regions.choices_html(BOOK, (0, 0), "page", fixed=False))
    assert chosen[1:5] == ["Chapter 1. The Quay", "II: Fog", "3. In the Forest", "Four."]
    ways = options(regions.ways_html(BOOK, reading_mode="auto", spoiler_limit=None, busy=False))
    assert ways[-4:] == [
        "Up to Chapter 1. The Quay",
        "Up to II: Fog",
        "Up to chapter 3: In the Forest",
        "Up to Four.",
    ]


def test_no_chapter_is_counted_against_the_numbers_of_the_book():
    """ "1. Preface" and "2. One Hundred" stood above the book's own chapter 1, or beside its hundredth."""
    titles = ("Preface", "One Hundred", "Ninety-nine", "In the Forest")
    sections = [replace(section, title=title) for section, title in zip(SECTIONS, titles, strict=True)]
    book = replace(BOOK, sections=tuple(sections))
    assert options(regions.choices_html(book, (0, 0), "page", fixed=False))[1:5] == list(titles)
    ways = options(regions.ways_html(book, reading_mode="auto", spoiler_limit=None, busy=False))
    assert ways[-4:] == [f"Up to {title}" for title in titles]


def test_behind_the_spoiler_limit_chapters_are_numbers():
    """The menu that sets the limit named what lies behind it: "Eleventh Letter: Clara to Lucien", the book's
    whole secret. A part that begins there was named, too.
    """
    ways = options(regions.ways_html(BOOK, reading_mode="auto", spoiler_limit=2, busy=False))
    assert ways[-4:] == ["Up to Chapter 1. The Quay", "Up to II: Fog", "Up to chapter 3", "Up to chapter 4"]

    begun = ("Part One", 0), ("His Death", STARTS[2])
    parts = (Section(title, start, start, kind="part") for title, start in begun)
    in_parts = Document("B", "", "txt", TEXT, (*parts, *SECTIONS), sha256="b")
    assert "Death" in regions.ways_html(in_parts, reading_mode="auto", spoiler_limit=None, busy=False)
    page = regions.ways_html(in_parts, reading_mode="auto", spoiler_limit=2, busy=False)
    assert "Death" not in page and "Forest" not in page


@pytest.mark.parametrize(("limit", "said"), [(1, TITLES[0]), (2, TITLES[1]), (3, "3")])
def test_below_the_menu_the_limit_is_called_as_in_it(limit: int, said: str):
    """ "Nothing behind chapter 2" stood below "Up to I: The Quay", of a book with a preface."""
    page = regions.ways_html(BOOK, reading_mode="auto", spoiler_limit=limit, busy=False)
    (line,) = re.findall(r"<p>(.*?)</p>", page, re.DOTALL)
    others = {*TITLES, "1", "2", "3"} - {said}
    assert said in line and not any(one in line for one in others if one not in said)
