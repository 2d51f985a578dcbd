"""Pages of two columns with something beside or above them, as the first and last pages of papers have."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from core.documents import read_document
from core.documents.pdf.layout import page_layout
from core.documents.pdf.page import LinePiece
from core.documents.pdf.reading_order import file_order, reads_better
from core.evidence.choosing import best_sentences
from tests.support.printed_pages import WORDS, Line, column, printed_pdf

LEFT, RIGHT = 40, 315  # of a sheet 595 wide


def prose(seed: int, lines: int) -> list[str]:
    """Lines of 45 characters that go on in one another."""
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=12))[:46].rpartition(" ")[0] for _line in range(lines)]


def words(folder: Path, pages: list[list[Line]]) -> list[str]:
    path = folder / "paper.pdf"
    path.write_bytes(printed_pdf(pages, size=(595, 842)))
    return read_document(path).text.split()


def in_order(text: list[str], *parts: list[str]) -> bool:
    """Every part's words stand in the text, one behind the other, the parts in this order."""
    joined, place = " ".join(text), 0
    for part in parts:
        place = joined.find(" ".join(part), place)
        if place < 0:
            return False
    return True


def full_page(seed: int) -> list[Line]:
    left, right = prose(seed, 45), prose(seed + 1, 45)
    return [*column(left, x=LEFT, top=780), *column(right, x=RIGHT, top=780)]


def test_short_last_page_is_read_column_by_column(tmp_path: Path):
    """Three lines to the right of the last references were woven into them."""
    left, right = prose(7, 30), prose(8, 3)
    last = [*column(left, x=LEFT, top=780), *column(right, x=RIGHT, top=780)]
    assert in_order(words(tmp_path, [full_page(1), full_page(3), full_page(5), last]), left, right)


@pytest.mark.parametrize("indent", [0, 60])
def test_table_beside_the_columns_does_not_hide_the_gutter(indent: int, tmp_path: Path):
    """The rows of a table over both columns and the boxes of a figure cross the gutter: the page was read
    across.
    """
    left, right = prose(7, 20), prose(8, 20)
    table = [
        (x + indent, 780 - 12 * row, str(100 * row + x))
        for row in range(24)
        for x in (60, 150, 240, 300, 390)
    ]
    page = [*table, *column(left, x=LEFT, top=440), *column(right, x=RIGHT, top=440)]
    assert in_order(words(tmp_path, [full_page(1), full_page(3), full_page(5), page]), left, right)


def pieces(lines: list[str], *, x: float, top: float, size: float = 10) -> list[LinePiece]:
    return [LinePiece(line, x, x + 5 * len(line), top - 12 * n, size, 0) for n, line in enumerate(lines)]


def test_order_of_the_file_is_taken_where_its_lines_go_on():
    """Figures of many labels leave no gutter to be found, while the file has one column after the other."""
    left, right = prose(1, 12), prose(2, 12)
    left = [f"{line} and an-" if n % 2 == 0 else f"other {line}" for n, line in enumerate(left)]
    right = [f"{line} and an-" if n % 2 == 0 else f"other {line}" for n, line in enumerate(right)]
    lines = [*pieces(left, x=40, top=700), *pieces(right, x=330, top=700)]
    rows = [sorted(lines, key=lambda line: (-line.y, line.x0))]
    assert [len(run) for run in file_order(lines)] == [12, 12]
    known = Counter({"another": 9})
    assert reads_better(file_order(lines), rows, known) and not reads_better(rows, file_order(lines), known)


def test_columns_are_taken_where_the_file_has_rows():
    """As some programs draw them: line by line across the page."""
    left, right = prose(1, 12), prose(2, 12)
    rows = [
        line
        for pair in zip(pieces(left, x=40, top=700), pieces(right, x=330, top=700), strict=True)
        for line in pair
    ]
    layout = page_layout(rows, body=10, known=Counter())
    assert [[line.text for line in region.lines] for region in layout.regions] == [left, right]


def word_list(columns: int, rows: int, gaps: int) -> list[Line]:
    """Short words in columns, drawn one column after the other. Every so many words a letter ends, each
    column's at places of its own, with a blank line; 0: never.
    """
    lines = []
    for number in range(columns):
        height = 780.0
        for row in range(rows):
            lines.append((60 + 150 * number, height, f"w{number}x{row}"))
            height -= 22 if gaps == 0 or (row + number) % gaps else 38
    return lines


def test_index_of_short_words_is_read_column_by_column(tmp_path: Path):
    """Words of a pronouncing index were read across: its lines are too short for columns of text."""
    text = words(tmp_path, [word_list(3, 14, 4)])
    assert text == [f"w{number}x{row}" for number in range(3) for row in range(14)]


def entries(seed: int, *, wrapped: bool) -> list[str]:
    """Those of an index, one a line, or each in two."""
    drawn = random.Random(seed)
    told = []
    for name in sorted(" ".join(drawn.choices(WORDS, k=2)).capitalize() for _entry in range(20)):
        first, second, *more = (str(drawn.randint(100, 400)) for _page in range(5))
        told += (
            [f"{name}, {first}, {second},", ", ".join(more)] if wrapped else [f"{name}, {first}, {second}"]
        )
    return told


@pytest.mark.parametrize("wrapped", [False, True])
def test_entries_of_an_index_stand_apart(wrapped: bool, tmp_path: Path):
    """Two columns of an index were one paragraph, as its lines are about equally long."""
    left, right = entries(1, wrapped=wrapped), entries(2, wrapped=wrapped)
    path = tmp_path / "index.pdf"
    index = [*column(left, x=LEFT, top=780), *column(right, x=RIGHT, top=780)]
    path.write_bytes(printed_pdf([full_page(1), full_page(3), index], size=(595, 842)))
    book = read_document(path)
    lines = left + right
    if wrapped:
        lines = [" ".join(pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
    assert book.text.split("\n")[1 - len(lines) :] == lines[1:]
    start = book.text.index(lines[1])
    assert all(one < start for one, _end in best_sentences(book.text, [(0, len(book.text))], 400))


def test_table_that_is_drawn_column_by_column_keeps_its_rows(tmp_path: Path):
    text = words(tmp_path, [word_list(3, 14, 0)])
    assert text == [f"w{number}x{row}" for row in range(14) for number in range(3)]
