"""What an answer stands on: signs behind sentences, quotations, the list of places."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from app.web.citations import Citations
from app.web.regions import answer_html
from core.conversation.part_summaries import SummaryLine
from core.conversation.summary_layout import HeadedLines, composed
from core.documents.document import Document, Section
from core.events import SourceSpan
from core.evidence.passages import sentence_spans
from core.evidence.support import Evidence

FILLER = " ".join(f"The keeper counted sheep number {at} upon the quiet hill." for at in range(40)) + "\n\n"
FIRST = "Ogilvy, the astronomer, lived at Ottershaw and watched the planet every night.\n\n"
SECOND = "Henderson ran to the railway station to telegraph the news to London.\n\n"


def book(*, pages: bool) -> Document:
    one, two = FIRST + FILLER, SECOND + FILLER
    sections = (Section("I. Mars", 0, len(one)), Section("II. The News", len(one), len(one) + len(two)))
    return Document(
        "Mars",
        "",
        "txt",
        one + two,
        sections,
        page_starts=(0, len(one)) if pages else (),
        sha256=f"{pages:064}",
    )


@pytest.mark.parametrize(("pages", "said"), [(True, ["p. 1", "p. 2"]), (False, ["ch. 1", "ch. 2"])])
def test_each_sentence_shows_where_to_look(pages, said):
    """The page, or the chapter where there are no pages; a sentence the book does not have gets no place."""
    text = (
        "The astronomer Ogilvy lived at Ottershaw. He collected stamps. Henderson ran to the railway station."
    )
    cited = Citations()(text, book(pages=pages))
    signs = [one for one in cited.citations if one.kind]
    assert [text[one.start : one.end] for one in signs] == [f"{one}." for one in text[:-1].split(". ")]
    assert [one.kind for one in signs] == ["agrees", "nothing", "quoted"]
    assert [one.short for one in signs if one.kind != "nothing"] == said
    assert (cited.sentences, cited.supported) == (3, 2)
    assert [found.excerpt[:9] for found in cited.found] == ["Ogilvy, t", "Henderson"]


def test_an_answer_that_is_doubted_is_not_said_to_stand_nowhere():
    """“Nothing found that says this” stood above the sentence of the book that says it, word for word."""
    text, known = "Henderson.", book(pages=True)
    doubted = SourceSpan(0, len(text), known.text.index("Henderson"), len(known.text), borne_out=False)
    html = answer_html(((text, "target"),), Citations()(text, known, "Who ran?", (), (doubted,)).citations)
    assert "sign-nothing" in html and '<span class="sign' not in html
    assert re.search(r'title="[^"]*page 2"', html)


def test_sign_stands_behind_its_sentence_in_lists_and_paragraphs():
    """A sign in the wrong item would send the reader to the wrong page."""
    items = "- Henderson ran to the railway station.\n- He liked jazz."
    text = f"So it was:\n\n{items}\n\nThe astronomer Ogilvy lived at Ottershaw."
    html = answer_html(((text, "target"),), Citations()(text, book(pages=True)).citations)
    first, second = html.split("<li>")[1:3]
    assert "sign-quoted" in first and "p. 2" in first and first.index("station.") < first.index("sign-quoted")
    assert "sign-nothing" in second and "sign-quoted" not in second
    assert "p. 1" in html.split("</ul>")[1]


@pytest.mark.parametrize("number", [0, 1])
def test_a_sentence_that_stands_twice_is_shown_where_it_was_taken_from(number: int):
    """Each led to the first place: the page of a sentence between p. 140 and p. 167 was p. 10."""
    said = "He did not believe a word of it."
    twice = f"Ogilvy came home. {said} Henderson ran to the railway station. {said}"
    known = Document("T", "", "txt", twice, (Section("One", 0, len(twice)),), sha256="d")
    at = [match.start() for match in re.finditer(said, twice)][number]
    line = SummaryLine(said, at, at + len(said), own=True)
    text, stands = composed([HeadedLines("", (line,))], quoting=True)
    (one,) = Citations()(text.text, known, "", (), stands).citations
    assert one.offset == at


@pytest.mark.parametrize("judged", ["borne out", "doubted", "no answer"])
def test_a_quotation_that_stands_in_every_chapter_is_shown_in_the_one_that_was_read(judged: str):
    """“Chapter 5, p. 9:” stood above a quotation whose mark said p. 2."""
    stock = "Whatever is found is reported\nto the dock before the last car."
    chapters = [f"The {car} car was mended by {car}son.\n\n{stock}\n\n{FILLER}" for car in ("red", "blue")]
    chapters.append(f"The last note.\n\n{stock.replace(chr(10), ' ')}\n\n{FILLER}")
    starts = [0, len(chapters[0]), len(chapters[0] + chapters[1])]
    sections = [
        Section(f"Chapter {at}", start, start + len(one))
        for at, (start, one) in enumerate(zip(starts, chapters, strict=True), 1)
    ]
    known = Document("T", "", "txt", "".join(chapters), tuple(sections), sha256="d")
    at = known.text.index(stock, starts[1])
    text = f"Blueson.\n\nChapter 2:\n> {' '.join(stock.split())}"
    stands = (SourceSpan(0, 8, starts[1], at + len(stock), borne_out=judged == "borne out"),)
    asked = "Where is reported what blueson found in the blue car?"
    cited = Citations()(text, known, asked, (), () if judged == "no answer" else stands)
    (quoted,) = [one for one in cited.citations if not one.kind]
    assert (quoted.offset, quoted.short) == (at, "ch. 2")


def test_quotation_shows_its_place_once():
    """Two buttons for one place side by side are noise."""
    text = "It says that “Henderson ran to the railway station”."
    cited = Citations()(text, book(pages=True))
    assert [one.kind for one in cited.citations] == [""]


def test_short_answer_is_held_against_the_book_with_its_question():
    """ "Ottershaw." agrees with nothing by itself."""
    question = "Where did Ogilvy the astronomer live while he watched the planet?"
    (sign,) = Citations()("Ottershaw.", book(pages=True), question).citations
    assert (sign.kind, sign.short) == ("agrees", "p. 1")


def test_another_book_has_its_own_evidence():
    """Evidence kept of the book before must not serve the next one."""
    citations = Citations()
    text = "The astronomer Ogilvy lived at Ottershaw."
    assert citations(text, book(pages=True)).supported == 1
    other = Document("Sea", "", "txt", FILLER, (Section("I", 0, len(FILLER)),), sha256="f" * 64)
    assert citations(text, other).supported == 0


def test_a_book_that_was_read_again_has_the_evidence_of_its_new_text():
    """OCR and a newer reader give one file another text: marks must not open it at the old offsets."""
    citations, before = Citations(), book(pages=True)
    text = "The astronomer Ogilvy lived at Ottershaw."
    (sign,) = citations(text, before).citations
    moved = replace(
        before,
        text="A new first line.\n\n" + before.text,
        sections=tuple(replace(one, start=one.start + 19, end=one.end + 19) for one in before.sections),
    )
    (moved_sign,) = citations(text, moved).citations
    assert moved_sign.offset == sign.offset + 19


def test_a_growing_answer_is_looked_up_once_a_sentence(monkeypatch):
    """All of it was, twenty times a second: behind 2,000 words that took a sixth of a core."""
    citations, of = Citations(), book(pages=True)
    said = "The astronomer Ogilvy lived at Ottershaw. “Henderson ran to the railway station.” He liked jazz. "
    text = f"\n {said}So it was.\n\n- Mr. Hill liked e.g. tea\n- {said}\n\nNobody came. " + said * 3
    citations(text, of)
    looked_up: list[str] = []
    marks = Evidence.marks
    monkeypatch.setattr(
        Evidence, "marks", lambda self, *given: looked_up.append(given[0]) or marks(self, *given)
    )
    found = [citations.so_far(text[:end], of) for end in range(len(text) + 1)]
    assert len(looked_up) == len(set(looked_up)) <= 20
    monkeypatch.undo()
    begins = len(text) - len(text.lstrip())
    for end in range(0, len(text) + 1, 7):
        spans = sentence_spans(text[:end], begins, end)[:-1]
        whole = citations(text[begins : spans[-1][1]], of).citations if spans else ()
        assert found[end] == tuple(replace(one, start=one.start + 2, end=one.end + 2) for one in whole), end


def test_another_answer_is_not_taken_for_the_one_before():
    citations, of = Citations(), book(pages=True)
    first, other = "He liked jazz. Henderson ran. He", "Ogilvy lived at Ottershaw. He"
    citations(first, of)
    assert len(citations.so_far(first, of)) == 2
    (sign,) = citations.so_far(other, of)
    assert sign.kind == "agrees" and (sign.start, sign.end) == (0, len("Ogilvy lived at Ottershaw."))
    assert citations.so_far("He", of) == ()
