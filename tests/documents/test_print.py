"""What printers leave on a page and what they hide: marks outside the crop box, running heads, headings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from core.documents import Document, read_document
from core.documents.pdf.reader import _two_up
from tests.support.printed_pages import WORDS, booklet, column, printed_pdf
from tests.support.said import worded_by


def prose(page: int, lines: int = 20) -> list[str]:
    """Lines of one length or nearly, alike on no two pages."""
    drawn = random.Random(page)
    return [" ".join(drawn.choices(WORDS, k=14))[:60].rpartition(" ")[0] for _line in range(lines)]


def read(folder: Path, data: bytes) -> Document:
    path = folder / "book.pdf"
    path.write_bytes(data)
    return read_document(path)


def titles(document: Document) -> list[str]:
    return [section.title for section in document.chapters]


def test_text_outside_the_crop_box_is_not_read(tmp_path: Path):
    """Printer's marks stood in the middle of sentences that run over a page's end: "har- 11 bours"."""
    marks = [(150, 570, "robin.indd 11"), (200, 20, "11"), (10, 300, "left"), (395, 300, "right")]
    first = column(["went on and", *prose(1), f"{prose(1)[0]} and har-"])
    second = column(["bours of it.", *prose(2)])
    text = read(tmp_path, printed_pdf([[*marks, *first], [*marks, *second]], crop=(50, 50, 390, 550))).text
    assert "and harbours of it." in text
    assert not any(mark[2] in text.split() for mark in marks) and "indd" not in text


def test_line_that_runs_over_the_edge_is_cut_there(tmp_path: Path):
    """Halves of a scanned sheet are often the same page twice, each with a crop box of its own."""
    sheet = column(["left side of the sheet right side of the sheet"] * 12)
    text = read(tmp_path, printed_pdf([sheet], crop=(0, 0, 158, 595))).text
    assert text.startswith("left side of the sheet left side")


def test_headings_at_the_tops_of_pages_are_no_running_heads(tmp_path: Path):
    """Two more tops of pages like it within twelve were enough: "Chapter III" to "XII" were gone."""
    numbers = ["I", "II", "III", "IV", "V", "VI", "VII"]
    pages = []
    for count, number in enumerate(numbers):
        pages.append([(180, 520, f"Chapter {number}"), *column(prose(4 * count), top=480)])
        pages += [column([*prose(4 * count + page), "it."]) for page in (1, 2, 3)]
    assert titles(read(tmp_path, printed_pdf(pages))) == [f"Chapter {number}" for number in numbers]


def test_head_that_says_the_chapter_on_every_page_is_gone(tmp_path: Path):
    """Chapter III on each of its pages is one."""
    heads = [f"Chapter {number}" for number in ("IV", "V", "VI") for _page in range(8)]
    pages = [column([head, *prose(page)]) for page, head in enumerate(heads)]
    assert "Chapter" not in read(tmp_path, printed_pdf(pages)).text


@pytest.mark.parametrize("end", ["bottom", "top"])
def test_a_line_of_a_paragraph_that_stands_on_many_pages_is_text(tmp_path: Path, end: str):
    """The entries of a gazetteer end alike: "who drew the maps, did not believe it." was gone from them."""
    said = "who drew all the maps of the county of Sarn in ink, knew of"
    pages = [column([*prose(page), said] if end == "bottom" else [said, *prose(page)]) for page in range(6)]
    assert read(tmp_path, printed_pdf(pages)).text.count(said) == 6


def test_a_heading_a_little_larger_than_the_text_is_no_line_of_it(tmp_path: Path):
    """Sentences were quoted as "Elmcombe Elmcombe lies on the river"."""
    page = [(60, 521, "Elmcombe", 11), *column(prose(1), top=506)]
    assert read(tmp_path, printed_pdf([page])).text.startswith("Elmcombe\n\n")


def test_heading_that_the_outline_names_stays(tmp_path: Path):
    """Its pages have it as their head, which is gone; where the chapter begins it is the heading."""
    names = ["The Boy", "The Wolf", "The Sea"]
    heads = [name for name in names for _page in range(5)]
    pages = [column([head, *prose(page)]) for page, head in enumerate(heads)]
    document = read(tmp_path, printed_pdf(pages, outline={5 * n: name for n, name in enumerate(names)}))
    assert titles(document) == names and [document.text.count(name) for name in names] == [1, 1, 1]


def test_heading_that_the_contents_name_stays(tmp_path: Path):
    """Without an outline the printed list is what says that a line at the top of a page is a heading."""
    names = ["The Boy", "The Wolf", "The Sea"]
    listed = [f"{name} ........ {2 + 5 * number}" for number, name in enumerate(names)]
    pages = [column(["Contents", *listed])]
    pages += [
        column([name, *prose(5 * number + page), "it."])
        for number, name in enumerate(names)
        for page in range(5)
    ]
    document = read(tmp_path, printed_pdf(pages))
    assert titles(document) == names
    body = document.text[document.chapters[0].start :]
    assert [body.count(name) for name in names] == [1, 1, 1]


def test_sheets_of_two_pages_without_numbers_are_named(tmp_path: Path):
    """Nothing says in which order they are to be read: a booklet's pages came mixed without a word."""
    sides = [
        [line for line in side if line[1] > 60] for side in booklet([prose(p) for p in range(16)], leaves=1)
    ]
    (said,) = read(tmp_path, printed_pdf(sides, size=(842, 595))).warnings
    assert worded_by(_two_up, said)


@pytest.mark.parametrize("width", [60, 130])
def test_pages_of_one_or_two_columns_are_no_sheets_of_two(width: int, tmp_path: Path):
    """Upright with two columns, and broad with lines that run across."""
    if width == 60:
        pages = [[*column(prose(p), x=40), *column(prose(50 + p), x=400)] for p in range(6)]
        data = printed_pdf(pages, size=(842, 1190))
        data = printed_pdf(
            [[(x, 3 * y - 400, text) for x, y, text in page] for page in pages], size=(842, 1190)
        )
    else:
        data = printed_pdf(
            [column([f"{a} {b}" for a, b in zip(prose(p), prose(p), strict=True)]) for p in range(6)]
        )
    assert not read(tmp_path, data).warnings


@pytest.mark.parametrize("leaves", [1, 2, 4])
def test_booklet_is_read_in_the_order_of_its_pages(leaves: int, tmp_path: Path):
    """Sheets for the print shop hold pages 4 and 1, then 2 and 3: sentences ran from page 8 into page 5, and
    page numbers stood among them.
    """
    pages = [prose(page) for page in range(32)]
    data = printed_pdf(booklet(pages, leaves=leaves), size=(842, 595))
    document = read(tmp_path, data)
    assert document.text.split() == " ".join(line for page in pages for line in page).split()
    assert document.page_labels == tuple(str(number) for number in range(1, 33))


def test_booklet_without_a_number_on_some_pages(tmp_path: Path):
    """First pages of chapters bear none: they are counted on from their neighbours."""
    pages = [prose(page) for page in range(32)]
    sides = booklet(pages, leaves=1)
    for side in sides[5::3]:
        side.pop()
    document = read(tmp_path, printed_pdf(sides, size=(842, 595)))
    assert document.text.split() == " ".join(line for page in pages for line in page).split()


def test_outline_of_a_booklet_leads_to_the_page_of_its_chapter(tmp_path: Path):
    names = {5: "The Boy", 14: "The Wolf", 23: "The Sea"}
    pages = [[*([names[page]] if page in names else []), *prose(page)] for page in range(32)]
    sides = booklet(pages, leaves=1)
    shown = {side: name for side, lines in enumerate(sides) for name in names.values() if name in str(lines)}
    document = read(tmp_path, printed_pdf(sides, outline=shown, size=(842, 595)))
    assert titles(document)[-3:] == list(names.values())
