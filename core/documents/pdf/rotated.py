"""Text that lies sideways or upside down: whole pages of it, or a turned table on an upright page.

A page is read once in each direction that holds more than a stamp along the margin, each time turned so that
these lines are upright. Knows nothing of paragraphs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pypdfium2
import pypdfium2.raw as pdfium_c

from core.documents.pdf.page import LinePiece, PageText

# letters in another direction that are more than a stamp or a watermark
_STAMP_LETTERS = 80


@dataclass(frozen=True, slots=True)
class TurnedPage:
    """A page's lines. `turned`: places are not those of the page as stored; `lost`: letters left out."""

    lines: list[LinePiece]
    turned: bool = False
    lost: int = 0
    text: PageText | None = None  # still open, of a page that was kept


MOST_KEPT_CHARS = 1_000_000  # of all pages that are kept: some 300, and 60 MB
_MOST_KEPT_OBJECTS = 2000  # of one page


def page_lines(
    page: pypdfium2.PdfPage, number: int, glued: dict[str, int] | None = None, *, keep: bool = False
) -> TurnedPage:
    """All lines of the page in whatever direction they lie; the direction of most of the text comes first.

    `keep`: an upright page without much drawn on it stays open in PDFium, to be read again with `glued`.
    """
    own = page.get_rotation()
    text = PageText(page, number, glued)
    lines, turned = text.lines(), dict(text.turned)
    if not turned and keep and pdfium_c.FPDFPage_CountObjects(page) <= _MOST_KEPT_OBJECTS:
        return TurnedPage(lines, own != 0, text=text)
    text.close()
    if not turned:
        return TurnedPage(lines, own != 0)
    if max(turned.values()) > _STAMP_LETTERS:
        lines, turned = _read(page, number, glued, mixed=True)
    mixed = bool(lines) or len(turned) > 1
    views = {0: lines}
    for quarter, letters in turned.items():
        if quarter is not None and (letters > _STAMP_LETTERS or not lines):
            page.set_rotation((own + 90 * quarter) % 360)
            views[quarter] = _read(page, number, glued, mixed=mixed)[0]
    page.set_rotation(own)
    lost = sum(letters for quarter, letters in turned.items() if quarter is None and letters > _STAMP_LETTERS)
    ordered = sorted(views.values(), key=lambda view: -sum(len(line.text) for line in view))
    return TurnedPage(_stacked(ordered), own != 0 or ordered[0] is not lines, lost)


def _read(
    page: pypdfium2.PdfPage, number: int, glued: dict[str, int] | None, *, mixed: bool = False
) -> tuple[list[LinePiece], dict[int | None, int]]:
    text = PageText(page, number, glued)
    try:
        return text.lines(mixed=mixed), dict(text.turned)
    finally:
        text.close()


def _stacked(views: list[list[LinePiece]]) -> list[LinePiece]:
    """One page of the views, each below the one before."""
    result = list(views[0])
    for view in views[1:]:
        if not view or not result:
            result += view
            continue
        floor = min(line.y for line in result)
        drop = max(line.y for line in view) - floor + 4 * max(line.size for line in view)
        result += [replace(line, y=line.y - drop) for line in view]
    return result
