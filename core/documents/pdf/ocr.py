"""Text from scanned pages by RapidOCR, an optional extra: never installed by itself."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from core.errors import DocumentError, ScannedPages
from core.events import Progress
from core.paths import ROOT
from core.text.words import joined_sentences
from core.text.words import translated as _

if TYPE_CHECKING:  # the app asks `available` without loading a PDF engine
    import pypdfium2

    from core.documents.pdf.page import LinePiece

_DPI = 200
REQUIREMENTS = ROOT / "requirements-ocr.txt"


def available() -> bool:
    """True when the OCR extra is installed."""
    return (
        importlib.util.find_spec("rapidocr") is not None
        and importlib.util.find_spec("onnxruntime") is not None
    )


def how_to() -> str:
    """One sentence that tells the user how to get text out of pictures."""
    if available():
        return _(
            "OCR can read them, in some seconds per page: with the app's button, or with --ocr on the "
            "command line."
        )
    command = f'"{sys.executable}" -m pip install -r "{REQUIREMENTS}"'
    return _(
        "To read them, install the OCR extra with the command {command} and open the file again, "
        "or run an OCR program on it first."
    ).format(command=command)


def recognise(
    pdf: pypdfium2.PdfDocument,
    pages: list[list[LinePiece]],
    scanned: list[int],
    name: str,
    progress: Progress,
) -> list[list[LinePiece]]:
    """The pages, with the lines of the `scanned` ones read from their pictures."""
    if not available():
        raise ScannedPages(
            joined_sentences(
                _("{count} of {pages} pages of {name} are pictures and need OCR.").format(
                    count=len(scanned), pages=len(pages), name=name
                ),
                how_to(),
            )
        )
    from rapidocr import RapidOCR

    engine = RapidOCR()
    result = list(pages)
    for position, number in enumerate(scanned):
        progress(_("Reading scanned pages"), position / len(scanned))
        page = pdf[number]
        found = engine(page.render(scale=_DPI / 72).to_numpy())
        boxes = found.boxes if found.boxes is not None else []
        result[number] = [
            _line(box, text, page.get_height(), number)
            for box, text in zip(boxes, found.txts or (), strict=False)
        ]
    if not any(result):
        raise DocumentError(_("{name} is a scan in which no text could be recognised.").format(name=name))
    return result


def _line(box: object, text: str, height: float, number: int) -> LinePiece:
    """A recognised line in page coordinates: four corners in pixels from the top left."""
    from core.documents.pdf.page import LinePiece

    scale = 72 / _DPI
    xs, ys = [float(corner[0]) * scale for corner in box], [float(corner[1]) * scale for corner in box]
    size = round((max(ys) - min(ys)) * 0.8)
    return LinePiece(text, min(xs), max(xs), height - max(ys) + 0.2 * size, float(max(1, size)), number)
