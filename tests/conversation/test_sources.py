"""What was read for an answer, and what was not, as the reader is told it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.conversation.reading import ReadingStyle, plan_reading
from core.conversation.source_names import source_names
from core.documents.document import NOTICES, Document, Section
from tests.support.ferry import HIDDEN, QUESTION, reader, told
from tests.support.said import values
from tests.support.talks import ask, finished, make, reply_by_prompt


class Words:
    def count(self, text: str) -> int:
        return len(text.split())


def framed(*lengths: int) -> Document:
    """A book between a header and a licence; chapters of so many words."""
    text, sections = "", []
    for title, words, kind in [
        ("Header", 5, "front"),
        *((f"Chapter {number}", words, "chapter") for number, words in enumerate(lengths, 1)),
        ("Licence", 5, "back"),
    ]:
        start = len(text)
        text += "the lighthouse keeper came\n\n" * (words // 4 + 1)
        sections.append(Section(title, start, len(text), kind=kind))
    return Document("B", "", "txt", text, tuple(sections), sha256="framed")


def parts_of(document: Document, tokens: int = 20):
    style = ReadingStyle(part_tokens=tokens)
    return plan_reading(document, Words(), context_tokens=1000, style=style, reading_mode="chunked").parts


def test_all_of_a_long_book_is_counted_instead_of_named():
    """237 parts filled twenty lines."""
    document = framed(*[8] * 59)
    parts = parts_of(document)
    assert len(parts) > 10
    (name,) = source_names(document, parts)
    assert values(name) == {"count": 59}


def test_parts_in_a_row_are_one_place_and_others_are_apart():
    document = framed(*[16] * 6)
    parts = parts_of(document)
    assert len(parts) == 6
    assert source_names(document, [*parts[:3], parts[4]]) == ("Chapters 1–3", "Chapter 5")


def test_a_chapter_in_pieces_is_whole_when_all_were_read_and_its_pieces_are_named_else():
    document = framed(16, 120, 16)
    parts = parts_of(document)
    pieces = [part for part in parts if ", part " in part.label]
    assert len(pieces) >= 4
    assert source_names(document, parts[: len(pieces) + 1]) == ("Chapters 1–2",)
    assert source_names(document, parts[:2]) == ("Chapter 1", pieces[0].label)


@pytest.mark.parametrize("reading_mode", ["retrieval", "chunked"])
def test_an_answer_from_one_place_does_not_list_what_else_it_did_not_read(reading_mode):
    """ "Not read: Header; Licence" stood under an answer from one passage, as if all else had been."""
    session, _engine = make(reply_by_prompt)
    done = finished(
        ask(session, framed(400, 400), "Who is the keeper of the lighthouse?", reading_mode=reading_mode)
    )
    assert done.sources and not any("places" in values(note) for note in done.notes)


def test_chapters_that_were_not_chosen_are_named_also_under_an_answer_from_passages():
    session, _engine = make(reply_by_prompt)
    for reading_mode in ("retrieval", "chunked"):
        done = finished(
            ask(session, framed(400, 400, 400), "The keeper?", reading_mode=reading_mode, chapters=(1, 2))
        )
        assert "Chapter 3" in [values(note).get("places") for note in done.notes]


def test_what_is_left_out_of_a_whole_reading_is_named():
    session, _engine = make(reply_by_prompt)
    done = finished(ask(session, framed(16), "Who is the keeper?", reading_mode="full"))
    assert any("Header" in note and "Licence" in note for note in done.notes)


@pytest.mark.parametrize(
    ("question", "answers", "named"),
    [(QUESTION, {}, True), (QUESTION, HIDDEN, False), ("???!!!", {}, False)],
    ids=["unfound", "found", "nothing to look for"],
)
def test_what_passages_are_not_looked_for_in_is_named_where_none_answers(question, answers, named: bool):
    """The persons of a play stood in its front matter, and "No answer was found" did not say so; where no
    passage was read, all else seemed to have been.
    """
    book = told()
    first, *chapters = book.sections
    header = Section("Header", 0, 10, kind="front")
    book = replace(book, sections=(header, replace(first, start=10), *chapters))
    session, _engine = make(reader(answers))
    done = finished(ask(session, book, question, reading_mode="retrieval"))
    assert any("Header" in note for note in done.notes) == named


def test_notices_around_a_book_are_not_said_to_be_left_out():
    """ "Not read: Project Gutenberg header" stood under each summary, as if it were of the book."""
    session, _engine = make(reply_by_prompt)
    document = framed(16)
    front, chapter, back = document.sections
    titles = zip((front, back), NOTICES, strict=True)
    front, back = (replace(section, title=title) for section, title in titles)
    noticed = replace(document, sections=(front, chapter, back))
    assert not [note for note in finished(ask(session, noticed, None)).notes if "places" in values(note)]


def test_passages_of_the_same_place_are_counted():
    """Two passages of a chapter were called one."""
    session, engine = make(reader({}))
    done = finished(
        ask(session, framed(2000), "Who is the keeper of the lighthouse?", reading_mode="retrieval")
    )
    assert done.sources == (f"{len(engine.prompts)} passages of Chapter 1",) and len(engine.prompts) > 1
