"""Word, OpenDocument and RTF files: headings by outline level, notes after their paragraph, rows as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.documents import Document, read_document
from core.documents.formats.rtf_marks import marked_source
from core.errors import DocumentError
from tests.support.documents_made import zipped
from tests.support.word_processing import (
    open_document_table,
    rich_text,
    word_document,
    word_paragraph,
    word_style,
    word_table,
)

PROSE = "The rain went on and nobody came to the door of the house by the lake that day, or the day after. "
LONG = PROSE * 20  # 420 words
NAMES = ["The Boy", "The Wolf", "The Sea"]
ROWS = [["Year", "Boats", "Men"], ["1863", "4", "31"], ["1864", "5", "40"]]
LINES = "Year | Boats | Men\n1863 | 4 | 31\n1864 | 5 | 40"


def read(folder: Path, name: str, data: bytes) -> Document:
    path = folder / name
    path.write_bytes(data)
    return read_document(path)


def titles(document: Document) -> list[str]:
    return [section.title for section in document.chapters]


STYLES = {
    "outline level of its own": word_style("Mine", "Mine", level=0),
    "based on a heading": word_style("Heading1", "heading 1")
    + word_style("Mine", "Mine", based_on="Heading1"),
    "based on one based on it": word_style("Heading1", "heading 1", level=0)
    + word_style("Between", "It's between", based_on="Heading1")
    + word_style("Mine", "It's mine", based_on="Between"),
}


@pytest.mark.parametrize("kind", STYLES)
def test_word_style_that_is_a_heading_makes_chapters(kind: str, tmp_path: Path):
    """Only styles called "Heading 1" were headings: books set with styles of their own had even parts."""
    body = "".join(word_paragraph(name, style="Mine") + word_paragraph(LONG) for name in NAMES)
    assert titles(read(tmp_path, "book.docx", word_document(body, styles=STYLES[kind]))) == NAMES


def test_outline_level_of_a_word_paragraph_makes_chapters(tmp_path: Path):
    level = '<w:outlineLvl w:val="0"/>'
    body = "".join(word_paragraph(name, properties=level) + word_paragraph(LONG) for name in NAMES)
    assert titles(read(tmp_path, "book.docx", word_document(body))) == NAMES


def test_style_that_gives_its_level_up_is_no_heading(tmp_path: Path):
    """Level 10 (outlineLvl 9) is body text, whatever the style is based on; a circle of styles ends."""
    styles = word_style("Heading1", "heading 1") + word_style("Quote", "Quote", based_on="Heading1", level=9)
    styles += word_style("A", "A", based_on="B") + word_style("B", "B", based_on="A")
    body = "".join(
        word_paragraph(name, style="Heading1")
        + word_paragraph(PROSE, style="Quote")
        + word_paragraph(LONG, style="A")
        for name in NAMES
    )
    assert titles(read(tmp_path, "book.docx", word_document(body, styles=styles))) == NAMES


def test_word_notes_stand_after_their_paragraph(tmp_path: Path):
    """All stood at the end of the last chapter, where nobody knows what they belong to."""
    body = word_paragraph("He came back.", note=1) + word_paragraph("Nobody spoke.")
    body += word_paragraph("It rained.", note=2)
    document = read(tmp_path, "notes.docx", word_document(body, notes={1: "In 1863.", 2: "See above."}))
    assert document.text.split("\n\n") == [
        "He came back.[1]",
        "[1] In 1863.",
        "Nobody spoke.",
        "It rained.[2]",
        "[2] See above.",
    ]


def test_word_table_has_its_rows(tmp_path: Path):
    """Every cell was a paragraph."""
    body = word_paragraph("The boats:") + word_table(*ROWS) + word_paragraph("So it was.")
    assert read(tmp_path, "t.docx", word_document(body)).text.split("\n\n")[1:] == [LINES, "So it was."]


def test_word_page_set_in_a_table_stays_paragraphs(tmp_path: Path):
    """A letter set in a table is no list of rows."""
    text = read(tmp_path, "t.docx", word_document(word_table(["From", LONG], ["To", LONG]))).text
    assert " | " not in text and text.startswith("From\n\nThe rain")


def test_opendocument_table_has_its_rows(tmp_path: Path):
    names = ("office", "text", "table")
    spaces = "".join(f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in names)
    body = f"<text:p>The boats:</text:p>{open_document_table(*ROWS)}<text:p>So it was.</text:p>"
    content = f"<office:body{spaces}><office:text>{body}</office:text></office:body>"
    data = zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})
    assert read(tmp_path, "t.odt", data).text.split("\n\n") == ["The boats:", LINES, "So it was."]


RTF_HEADINGS = {
    "outline level": (r"{\pard\outlinelevel0\b %s\par}", ""),
    "style of that name": (r"{\pard\s3 %s\par}", r"{\s3 heading 1;}"),
    "style with a level": (r"\pard\plain \s4\qc {%s}{\par }", r"{\s4\outlinelevel0\qc Mine;}"),
    "style based on one": (r"\pard \s5 %s\par", r"{\s4\outlinelevel0 Mine;}{\s5\sbasedon4 Other;}"),
}


@pytest.mark.parametrize("kind", RTF_HEADINGS)
def test_rtf_heading_makes_chapters_and_a_line_of_its_own(kind: str, tmp_path: Path):
    """An RTF was read as a plain text: its headings were short lines like others, joined to the next."""
    heading, styles = RTF_HEADINGS[kind]
    parts = [heading % name + r"\pard\s0 " + LONG + r"\par " for name in NAMES]
    document = read(tmp_path, "book.rtf", rich_text(*parts, styles=styles))
    assert titles(document) == NAMES and f"The Boy\n\n{PROSE[:20]}" in document.text


def test_rtf_notes_are_kept_after_their_paragraph(tmp_path: Path):
    r"""\footnote was passed over without a word."""
    note = r"{\super\chftn}{\footnote\pard {\super\chftn} In %d.\par It is said.}"
    parts = [rf"\pard {PROSE * 2}Then{note % year} more.\par " for year in (1863, 1864)]
    blocks = read(tmp_path, "notes.rtf", rich_text(*parts)).text.split("\n\n")
    assert blocks[1::2] == ["[1] In 1863. It is said.", "[2] In 1864. It is said."]
    assert [block[-13:] for block in blocks[::2]] == ["Then[1] more.", "Then[2] more."]


def test_notes_of_an_rtf_of_wrapped_lines_stand_at_its_end(tmp_path: Path):
    r"""A line that ends with \par is no paragraph: a note must not tear the sentence."""
    line = r"The rain went on and nobody came to the door of the house{\footnote By the lake.}"
    text = read(tmp_path, "lines.rtf", rich_text(r"\par ".join([line] * 8))).text
    assert text.endswith("\n\n[8] By the lake.") and "to the door of the house[1] The rain" in text


def test_rtf_table_has_its_rows(tmp_path: Path):
    rows = "".join(r"\trowd " + "".join(rf"{cell}\cell " for cell in row) + r"\row " for row in ROWS)
    text = read(tmp_path, "t.rtf", rich_text(rf"\pard {LONG}\par ", rows, rf"\pard {LONG}\par ")).text
    assert LINES in text.split("\n\n")


def test_rtf_of_nothing_but_braces_is_refused(tmp_path: Path):
    """Groups are remembered while they are open: not without an end."""
    with pytest.raises(DocumentError):
        read(tmp_path, "deep.rtf", b"{\\rtf1 " + b"{" * 1_000_000 + b"x")


def test_rtf_style_sheet_of_nothing_but_control_words_is_read_in_its_length():
    """The pattern of a style has one way through a row of control words."""
    sheet = r"{\rtf1{\stylesheet{" + r"\a " * 40_000
    assert marked_source(sheet) == sheet
