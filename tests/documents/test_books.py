"""Real books open whole: titles, authors, chapters, first and last sentences, and no licence text in the
story.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from core.documents import Document, read_document

BOOKS = ("the-time-machine.txt", "the-war-of-the-worlds.epub", "moby-dick.epub", "viking-tales.pdf")


@cache
def read(path: Path) -> Document:
    return read_document(path)


def flat(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def story(document: Document) -> str:
    return flat("\n".join(document.text[section.start : section.end] for section in document.chapters))


@pytest.fixture(params=BOOKS)
def book(request: pytest.FixtureRequest, shared_data: Path) -> tuple[Document, dict]:
    facts = json.loads((shared_data / "books" / "facts.json").read_text("utf-8"))["books"]
    return read(shared_data / "books" / request.param), next(
        entry for entry in facts if entry["file"] == request.param
    )


def test_title_and_author_are_the_books_own(book):
    document, facts = book
    assert (document.title, document.author) == (facts["title"], facts["author"])


def test_chapters_are_those_the_reader_knows(book):
    """Chapters share files, files break inside chapters, labels and names are separate entries."""
    document, facts = book
    # its 135 are numbered, the Epilogue is counted apart
    extra = 1 if facts["file"] == "moby-dick.epub" else 0
    assert len(document.chapters) == facts["chapters"] + extra


def test_story_holds_first_and_last_sentence_and_every_fact(book):
    document, facts = book
    text = story(document)
    for wanted in (
        facts["first_sentence"],
        facts["last_sentence"],
        *(fact["evidence"] for fact in facts["facts"]),
    ):
        assert flat(wanted) in text, wanted


def test_story_begins_with_the_first_sentence_and_ends_with_the_last(book):
    document, facts = book
    first, last = document.chapters[0], document.chapters[-1]
    assert flat(facts["first_sentence"]) in flat(document.text[first.start : first.start + 3000])
    assert flat(facts["last_sentence"]) in flat(document.text[last.start : last.end][-3000:])


def test_licence_is_no_part_of_the_story(book):
    document, _ = book
    assert not re.search(r"project gutenberg|small print|electronic works", story(document), re.I)


def test_sections_cover_the_text_in_order(book):
    document, _ = book
    assert document.sections[0].start == 0 and document.sections[-1].end == len(document.text)
    for left, right in zip(document.sections, document.sections[1:], strict=False):
        assert left.end == right.start and left.start < left.end


def test_words_are_about_as_many_as_counted_by_hand(book):
    document, facts = book
    assert document.words == pytest.approx(facts["words_whole_file"], rel=0.03)


def test_document_survives_json(book):
    document, _ = book
    assert Document.from_json(json.loads(json.dumps(document.to_json()))) == document


def test_what_is_packed_is_the_document_and_of_a_cut_one_the_cut(book):
    """A limit is a promise: the engine must not be handed what lies behind it."""
    document, _ = book
    assert Document.unpacked(document.packed) == document
    cut = document.up_to(1)
    assert Document.unpacked(cut.packed) == cut and len(cut.packed) <= len(document.packed)


def test_book_stored_by_an_older_reader_still_opens(book):
    """Shelves hold books with fields that are gone (language) and without the new ones."""
    document, _ = book
    stored = json.loads(json.dumps(document.to_json())) | {"language": "en"}
    del stored["reader_version"]
    assert Document.from_json(stored) == replace(document, reader_version=0)
