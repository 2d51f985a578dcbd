"""Text from scanned pages by RapidOCR, an optional extra: never installed by itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pypdfium2

from core.documents.pdf_page import Line
from core.errors import DocumentError

_DPI = 200
_INSTALL = "-r requirements-ocr.txt"


def available() -> bool:
    """True when the OCR extra is installed."""
    return importlib.util.find_spec("rapidocr") is not None and importlib.util.find_spec("onnxruntime") is not None


def how_to() -> str:
    """One sentence that tells the user how to get text out of a scan."""
    if available():
        return "Read it again with OCR switched on; that takes some seconds per page."
    return (f"Install the OCR extra (pip install {_INSTALL} in the app's environment) and read it with OCR, "
            "or run an OCR program on it first.")


def recognise(pdf: pypdfium2.PdfDocument, pages: list[list[Line]], scanned: list[int], name: str,
              progress: Callable[[str, float | None], None]) -> list[list[Line]]:
    """The pages, with the lines of the `scanned` ones read from their pictures."""
    if not available():
        raise DocumentError(f"{name} is a scan and needs OCR. {how_to()}")
    from rapidocr import RapidOCR

    engine = RapidOCR()
    result = list(pages)
    for position, number in enumerate(scanned):
        progress("Reading scanned pages", position / len(scanned))
        page = pdf[number]
        found = engine(page.render(scale=_DPI / 72).to_numpy())
        boxes = found.boxes if found.boxes is not None else []
        result[number] = [_line(box, text, page.get_height(), number)
                          for box, text in zip(boxes, found.txts or (), strict=False)]
    if not any(result):
        raise DocumentError(f"{name} is a scan in which no text could be recognised.")
    return result


def _line(box: object, text: str, height: float, number: int) -> Line:
    """A recognised line in page coordinates: four corners in pixels from the top left."""
    scale = 72 / _DPI
    xs, ys = [float(corner[0]) * scale for corner in box], [float(corner[1]) * scale for corner in box]
    size = round((max(ys) - min(ys)) * 0.8)
    return Line(text, min(xs), max(xs), height - max(ys) + 0.2 * size, float(max(1, size)), number)
