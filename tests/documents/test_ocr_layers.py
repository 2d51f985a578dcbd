"""Text layers by OCR: paragraphs are whole, whatever size and place the program measured for each line."""

from __future__ import annotations

import random
from pathlib import Path

from core.documents import read_document
from core.documents.pdf.ocr_layer import straightened
from core.documents.pdf.page import LinePiece
from tests.support.printed_pages import LEADING, WORDS, Line, ocr_layer


def paragraph(seed: int) -> list[str]:
    """Seven lines, the last one short, that say one sentence."""
    drawn = random.Random(seed)
    lines = [" ".join(drawn.choices(WORDS, k=15))[:62].rpartition(" ")[0] for _line in range(6)]
    return [lines[0].capitalize(), *lines[1:], "and so it was."]


def laid_out(paragraphs: list[list[str]], lines: int = 32) -> list[list[Line]]:
    """Pages of so many lines; the first line of a paragraph is indented."""
    places = [(60 + 14 * (n == 0), line) for one in paragraphs for n, line in enumerate(one)]
    return [
        [(x, 540 - LEADING * n, text) for n, (x, text) in enumerate(places[first : first + lines])]
        for first in range(0, len(places), lines)
    ]


def test_paragraphs_of_an_ocr_layer_are_whole(tmp_path: Path):
    """Half of them ended in mid-sentence: each line's size was another, which looked like a new paragraph."""
    paragraphs = [paragraph(seed) for seed in range(24)]
    path = tmp_path / "scan.pdf"
    path.write_bytes(ocr_layer(laid_out(paragraphs), right=360))
    blocks = read_document(path).text.split("\n\n")
    assert blocks == [" ".join(lines) for lines in paragraphs]


def test_lines_that_print_set_alike_stay_as_they_are():
    """A book of verse and prose in two sizes is no text layer of OCR."""
    page = [LinePiece("went and came", 60 + n, 300, 500 - 14 * n, 10 if n < 9 else 8, 0) for n in range(18)]
    assert straightened([page]) == [page]


def test_title_of_an_ocr_layer_keeps_its_size():
    drawn = random.Random(3)
    lines = [LinePiece("came", 60, 300, 500 - 14 * n, drawn.uniform(9, 11), 0) for n in range(18)]
    title = LinePiece("The Boy", 100, 200, 560, 19, 0)
    assert straightened([[title, *lines]])[0][0] == title
