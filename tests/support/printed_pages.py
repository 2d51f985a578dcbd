"""Pages of a PDF set line by line, with an outline and a crop box, by reportlab."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence

from reportlab.pdfgen.canvas import Canvas

Line = tuple[float, float, str] | tuple[float, float, str, float]  # x and y of its first letter, in points
WIDTH, HEIGHT, SIZE, LEADING = 420, 595, 10, 14

WORDS = [  # of which pages are made
    "rain",
    "lake",
    "house",
    "nobody",
    "went",
    "came",
    "the",
    "of",
    "and",
    "long",
    "winter",
    "door",
    "any",
]


def printed_pdf(
    pages: Sequence[Sequence[Line]],
    *,
    outline: Mapping[int, str] | None = None,
    crop: tuple[float, float, float, float] | None = None,
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> bytes:
    """A PDF of these lines in Helvetica; a fourth value is its size. `outline`: titles by page, from 0;
    `crop`: left, bottom, right, top of what is shown.
    """
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=size, invariant=1, pageCompression=0)
    for number, lines in enumerate(pages):
        if crop:
            canvas.setCropBox(crop)
        if outline and number in outline:
            canvas.bookmarkPage(str(number))
            canvas.addOutlineEntry(outline[number], str(number))
        for x, y, text, *size in lines:
            canvas.setFont("Helvetica", *size or (SIZE,))
            canvas.drawString(x, y, text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def column(lines: Sequence[str], *, x: float = 60, top: float = 520, leading: float = LEADING) -> list[Line]:
    """The lines one below the other."""
    return [(x, top - leading * number, line) for number, line in enumerate(lines)]


def booklet(pages: Sequence[Sequence[str]], *, leaves: int) -> list[list[Line]]:
    """The sides of sheets that hold two pages each, in the order of printing: gatherings of so many leaves
    are folded once. Every page has its number at its foot; their count is a multiple of 4 * leaves.
    """
    sides = []
    for first in range(0, len(pages), 4 * leaves):
        outer, inner = first + 4 * leaves - 1, first
        while inner < outer:
            pair = (outer, inner) if (inner - first) % 2 == 0 else (inner, outer)
            sides.append(
                [
                    line
                    for page, x in zip(pair, (40, 450), strict=True)
                    for line in [*column(pages[page], x=x), (x + 170, 60, str(page + 1))]
                ]
            )
            outer, inner = outer - 1, inner + 1
    return sides


def ocr_layer(pages: Sequence[Sequence[Line]], *, right: float) -> bytes:
    """A PDF as OCR programs write them: invisible text, every line with a size and a place as measured, and
    stretched to its width in the picture. Lines of more than 50 letters end at `right`.
    """
    buffer, drawn = io.BytesIO(), random.Random(5)
    canvas = Canvas(buffer, pagesize=(WIDTH, HEIGHT), invariant=1, pageCompression=0)
    for lines in pages:
        for x, y, text in lines:
            size, x = SIZE * drawn.uniform(0.82, 1.18), x + drawn.uniform(-2, 2)
            laid = canvas.beginText(x, y + drawn.uniform(-1, 1))
            laid.setTextRenderMode(3)
            laid.setFont("Helvetica", size)
            wide = right - x + drawn.uniform(-4, 4) if len(text) > 50 else 4.8 * len(text)
            laid.setHorizScale(100 * wide / canvas.stringWidth(text, "Helvetica", size))
            laid.textOut(text)
            canvas.drawText(laid)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()
