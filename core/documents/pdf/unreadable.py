"""Pages of a PDF that show more than can be read: pictures without a text layer, text drawn as shapes, fonts
that do not say which letters they show, lines at a slant. They are counted and named, never dropped silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

import pypdfium2

from core.documents.legible import is_legible
from core.documents.pdf.ocr import how_to
from core.documents.pdf.page import LinePiece
from core.documents.pdf.rotated import TurnedPage
from core.errors import DocumentError, ScannedPages
from core.text.words import joined_sentences
from core.text.words import translated as _
from core.text.words import translated_count as _n

_SCAN_CHARS = 25  # a page with fewer characters has no text layer worth the name
_PLATES = 3  # so many pages without text are a cover and illustrations, not worth a word
_DRAWN_SHAPES = 100  # more shapes than a page's rules and ornaments have: letters drawn as outlines
_THIN = 0.1  # of the text that the book's pages usually hold
_SHOWN_NUMBERS = 10


@dataclass(frozen=True, slots=True)
class UnreadablePages:
    """Page indices by what is wrong with them. `empty` pages hold no text, with or without anything else;
    `thin` ones a picture as large as the page and far less text than the book's other pages.
    """

    pages: int
    empty: int
    pictures: tuple[int, ...]
    thin: tuple[int, ...]
    garbled: tuple[int, ...]
    slanted: tuple[int, ...]
    slanted_letters: int

    @property
    def for_ocr(self) -> list[int]:
        """The pages that OCR may be able to read."""
        return sorted({*self.pictures, *self.thin, *self.garbled})

    def refuse(self, name: str) -> None:
        """Raises ScannedPages, with the way out, when most of the book cannot be read."""
        if not (self.pictures or self.garbled) or self.empty + len(self.garbled) <= 0.5 * self.pages:
            return
        if len(self.garbled) > len(self.pictures):
            said = _(
                "On {count} of {pages} pages of {name} the letters make no words: the PDF does not say "
                "which characters its fonts show."
            )
        else:
            said = _("{count} of {pages} pages of {name} are pictures without a text layer, as in a scan.")
        count = max(len(self.garbled), len(self.pictures))
        raise ScannedPages(joined_sentences(said.format(count=count, pages=self.pages, name=name), how_to()))

    def warnings(self) -> tuple[str, ...]:
        """What to tell of the pages that were left out."""
        said = []
        if len(self.pictures) > _PLATES:
            left_out = _("{count} of {pages} pages are pictures without text and were left out.")
            said.append(
                joined_sentences(left_out.format(count=len(self.pictures), pages=self.pages), how_to())
            )
        if len(self.thin) > _PLATES:
            little = _("{count} of {pages} pages are pictures with little text; what they show was not read.")
            said.append(joined_sentences(little.format(count=len(self.thin), pages=self.pages), how_to()))
        if self.garbled:
            left_out = _n(
                "{count} page was left out because its letters make no words (page {numbers}).",
                "{count} pages were left out because their letters make no words (pages {numbers}).",
                len(self.garbled),
            ).format(count=len(self.garbled), numbers=_numbers(self.garbled))
            said.append(joined_sentences(left_out, how_to()))
        return (*said, *self.slanted_warning())

    def slanted_warning(self) -> tuple[str, ...]:
        """What to tell of text that is neither level nor upright, which OCR does not help."""
        if not self.slanted:
            return ()
        said = _("{letters:,} letters of text set at a slant were left out (pages {numbers}).")
        return (said.format(letters=self.slanted_letters, numbers=_numbers(self.slanted)),)


def find_unread(
    pdf: pypdfium2.PdfDocument, pages: Sequence[TurnedPage], lines: Sequence[list[LinePiece]], name: str
) -> UnreadablePages:
    """What of the book cannot be read. `lines`: of each page, without running heads and page numbers.

    Raises DocumentError for a file without any text or picture.
    """
    lengths = [sum(len(line.text) for line in page) for page in lines]
    usual = median(filter(None, lengths)) if any(lengths) else 0
    empty = [number for number, length in enumerate(lengths) if length < _SCAN_CHARS]
    thin = tuple(
        number
        for number, length in enumerate(lengths)
        if _SCAN_CHARS <= length < _THIN * usual and _is_covered(pdf, number)
    )
    pictures = tuple(number for number in empty if _shows_something(pdf, number))
    if not any(page.lines for page in pages) and not pictures:
        raise DocumentError(_("{name} is a PDF without any text.").format(name=name))
    garbled = tuple(
        number for number, page in enumerate(lines) if not is_legible("\n".join(line.text for line in page))
    )
    slanted = tuple(number for number, page in enumerate(pages) if page.lost)
    return UnreadablePages(
        pages=len(pages),
        empty=len(empty),
        pictures=pictures,
        thin=thin,
        garbled=garbled,
        slanted=slanted,
        slanted_letters=sum(pages[number].lost for number in slanted),
    )


def _shows_something(pdf: pypdfium2.PdfDocument, number: int) -> bool:
    """The page holds a picture, or so many shapes that they may be letters."""
    raw = pypdfium2.raw
    try:
        page = pdf[number]
        pictures = page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_FORM), max_depth=2)
        if any(True for _found in pictures):
            return True
        shapes = page.get_objects(filter=(raw.FPDF_PAGEOBJ_PATH,), max_depth=2)
        return sum(1 for _found in islice(shapes, _DRAWN_SHAPES)) >= _DRAWN_SHAPES
    except pypdfium2.PdfiumError:
        return False


def _is_covered(pdf: pypdfium2.PdfDocument, number: int) -> bool:
    """One picture takes up most of the page, as a scan does and a plate with its caption."""
    try:
        page = pdf[number]
        area = page.get_width() * page.get_height()
        boxes = [
            image.get_bounds()
            for image in page.get_objects(filter=(pypdfium2.raw.FPDF_PAGEOBJ_IMAGE,), max_depth=2)
        ]
        return any((right - left) * (top - bottom) > 0.6 * area for left, bottom, right, top in boxes)
    except pypdfium2.PdfiumError:
        return False


def _numbers(pages: Sequence[int]) -> str:
    """Page indices for people: "3, 4, 9"; the first few."""
    shown = ", ".join(str(page + 1) for page in pages[:_SHOWN_NUMBERS])
    return shown + (", …" if len(pages) > _SHOWN_NUMBERS else "")
