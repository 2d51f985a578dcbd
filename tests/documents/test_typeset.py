"""A book set in print and read back is the same book: word for word, paragraph for paragraph, however it was
set.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.lib.wer import word_error
from benchmarks.quality.documents import chapters_of
from core.documents import Document, read_document
from tests.support.typeset import Style, annotated, note_text, typeset

REPO = Path(__file__).resolve().parents[2]
WIDE = Style(columns=2, width=595, height=842)
STYLES = {
    "one column": Style(),
    "two columns": WIDE,
    "two columns drawn row by row": replace(WIDE, row_by_row=True),
    "three columns": Style(columns=3, width=842, height=595),
    "footnotes": Style(notes_every=3),
    "footnotes in two columns": replace(WIDE, notes_every=3),
    "drop capitals": Style(drop_capitals=True),
    "ligatures": Style(ligatures=True),
    "bare pages": Style(heads=False, hyphens=False),
    "no outline": Style(outline=False),
}
Chapters = list[tuple[str, list[str]]]


@cache
def some_chapters(shared_data: Path) -> Chapters:
    """Five chapters of a real book as plain paragraphs: the truth."""
    book = read_document(shared_data / "books" / "the-war-of-the-worlds.epub")
    return [
        (
            section.title,
            [
                " ".join(part.split())
                for part in book.text[section.start : section.end].strip().split("\n\n")[2:]
            ],
        )
        for section in book.chapters[:5]
    ]


def printed(chapters: Chapters, style: Style, folder: Path) -> Document:
    number, pages = 1, []
    for title, paragraphs in chapters:
        marked, number = annotated(paragraphs, style.notes_every, number)
        pages.append((title, marked))
    path = folder / "printed.pdf"
    path.write_bytes(typeset("The War of the Worlds", "H. G. Wells", pages, style)[0])
    return read_document(path)


def body(document: Document, index: int) -> str:
    """A chapter without its footnotes, which follow their paragraph as "[3] ..."."""
    section = document.chapters[index]
    return "\n".join(
        part for part in document.text[section.start : section.end].split("\n\n") if not part.startswith("[")
    )


@pytest.mark.parametrize("name", STYLES)
def test_print_reads_back_as_it_was(name: str, shared_data: Path, tmp_path: Path):
    """Running heads, page numbers, broken words, columns and notes must leave no trace in the sentences."""
    chapters = some_chapters(shared_data)
    document = printed(chapters, STYLES[name], tmp_path)
    assert [" ".join(section.title.split()) for section in document.chapters] == [
        title for title, _ in chapters
    ]
    for index, (title, paragraphs) in enumerate(chapters):
        error, places = word_error(f"{title} {' '.join(paragraphs)}", body(document, index))
        assert error < 0.003, (title, places)
    truth = {paragraph for _, paragraphs in chapters for paragraph in paragraphs}
    assert len(truth & set(document.text.split("\n\n"))) > 0.9 * len(truth)


SAMPLE = REPO / "assets" / "samples" / "the-light-on-the-holm.epub"


@pytest.mark.parametrize(
    ("style", "least"),
    [(Style(), 1.0), (replace(WIDE, row_by_row=True), 0.98), (Style(notes_every=3), 0.98)],
    ids=["plain", "columns", "notes"],
)
def test_paragraphs_of_a_talkative_book_stay_apart(style: Style, least: float, tmp_path: Path):
    """Short lines of dialogue look like the lines of one indented paragraph; a chapter's last column may hold
    four lines.
    """
    chapters = chapters_of(read_document(SAMPLE))
    document = printed(chapters, style, tmp_path)
    truth = {paragraph for _, paragraphs in chapters for paragraph in paragraphs}
    assert len(truth & set(document.text.split("\n\n"))) >= least * len(truth)


def test_samples_in_the_documentation_are_what_comes_out(tmp_path: Path):
    """The passages after "After:" in docs/documents.md, looked up in the sample set as it says there."""
    chapters = chapters_of(read_document(SAMPLE))
    read = "\n\n".join(
        printed(chapters, style, tmp_path).text
        for style in (replace(WIDE, row_by_row=True), Style(notes_every=3))
    )
    page = (REPO / "docs" / "documents.md").read_text(encoding="utf-8")
    shown = re.findall(r"^After:\n\n((?:>.*\n)+)", page, re.M)
    assert len(shown) == 2
    for passage in shown:
        lines = [line[2:] for line in passage.splitlines()]
        assert "\n\n".join(" ".join(part.split()) for part in "\n".join(lines).split("\n\n")) in read


def test_footnotes_follow_their_paragraph(shared_data: Path, tmp_path: Path):
    chapters = some_chapters(shared_data)
    document = printed(chapters, STYLES["footnotes"], tmp_path)
    parts = document.text.split("\n\n")
    marked, _ = annotated(chapters[0][1], 3, 1)
    owners = [" ".join(paragraph.split("{")[0].split()) for paragraph in marked if "{" in paragraph]
    for number, owner in enumerate(owners, 1):
        place = parts.index(f"[{number}] {note_text(number)}")
        assert owner[-60:] in parts[place - 1]


def test_every_offset_knows_its_printed_page(shared_data: Path, tmp_path: Path):
    """The word after a page break belongs to the next page, also in the middle of a paragraph."""
    chapters = some_chapters(shared_data)
    document = printed(chapters, Style(), tmp_path)
    assert list(document.page_starts) == sorted(document.page_starts)
    import pypdfium2

    pdf = pypdfium2.PdfDocument(tmp_path / "printed.pdf")
    for index in range(1, len(pdf)):
        lines = [line for line in pdf[index].get_textpage().get_text_range().split("\r\n") if len(line) > 40]
        words = " ".join(lines[1].split()[1:7])
        found = document.text.find(words, max(0, document.page_starts[index] - 200))
        assert document.page_at(found) == str(index + 1), (index, words)


@pytest.mark.wide
def test_sample_of_a_real_print(shared_data: Path):
    """XeLaTeX, drop capitals, footnotes, running heads: places of Viking Tales checked by eye."""
    text = " ".join(read_document(shared_data / "books" / "viking-tales.pdf").text.split())
    for sentence in (
        "During the warm season they used to fish and make fish-oil and hunt sea-birds and gather feathers",
        "And in farmhouses all through Iceland these old tales were told over and over",
        "I thought that I stood in the grass before my bower. I pulled a thorn from my dress.",
        "[1] See note about house on page 129.",
        "and he jumped up from the high seat and hastened forward until he stood before the woman.",
        "King Halfdan lived in Norway long ago.",
        "As he did so a lean wolf jumped and snapped at him, snarling.",
    ):
        assert sentence.lower() in text.lower(), sentence
    assert "viking tales the project" not in text.lower() and "olaf’s farm 23" not in text.lower()
