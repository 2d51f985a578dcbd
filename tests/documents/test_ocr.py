"""A scan is recognised as one, says the way out, and is read where the OCR extra is installed."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from core.documents import read_document, read_safely
from core.documents.pdf import ocr
from core.documents.pdf.reader import _by_ocr
from core.errors import DocumentError, ScannedPages
from tests.support.said import values, worded_by

SCAN = "pdf-scan-no-text.pdf"


def test_scan_without_the_extra_says_what_to_install(shared_data: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ocr, "available", lambda: False)
    for wanted in (False, True):
        with pytest.raises(DocumentError, match=r"requirements-ocr\.txt"):
            read_document(shared_data / "hostile" / SCAN, ocr=wanted)


def test_some_scanned_pages_are_counted_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A book with a few pictured pages opens; the app offers OCR by this count, the command line by the
    warning.
    """
    monkeypatch.setattr(ocr, "available", lambda: False)
    path = tmp_path / "mixed.pdf"
    path.write_bytes(mixed_pdf(words=6, pictures=5))
    document = read_document(path)
    assert document.pictures == 5
    assert (
        document.warnings[0].startswith("5 of 11 pages are pictures")
        and "requirements-ocr.txt" in document.warnings[0]
    )
    path.write_bytes(mixed_pdf(words=6, pictures=2))
    document = read_document(path)
    assert (document.pictures, document.warnings) == (0, ()), "a cover and a plate are no scan"
    path.write_bytes(mixed_pdf(words=4, pictures=8))
    with pytest.raises(ScannedPages, match="8 of 12 pages"):
        read_safely(path)


def mixed_pdf(*, words: int, pictures: int) -> bytes:
    """Pages of text, then pages that show one picture each."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=(300, 400))
    for number in range(words):
        for line, said in enumerate(
            ("The keeper of a", "small house by the sea", "wrote into his log", "what he saw.")
        ):
            canvas.drawString(40, 300 - 14 * line, f"{said} {'abcdefgh'[number] * 3}")
        canvas.showPage()
    for _ in range(pictures):
        canvas.drawInlineImage(Image.new("L", (20, 20), 128), 40, 40, 200, 300)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def test_recognised_lines_become_paragraphs_in_page_order(shared_data: Path, monkeypatch: pytest.MonkeyPatch):
    """Boxes are pixels from the top left, lines are points from the bottom left."""
    said = [
        "The first line of a page that was read from its picture",
        "goes on here and ends.",
        "A second paragraph begins a little far-",
        "ther down the same page.",
    ]
    tops = [200, 240, 360, 400]
    boxes = [[(100, top), (1000, top), (1000, top + 30), (100, top + 30)] for top in tops]
    engine = ModuleType("rapidocr")
    engine.RapidOCR = lambda: lambda picture: SimpleNamespace(boxes=boxes, txts=said)
    monkeypatch.setitem(sys.modules, "rapidocr", engine)
    monkeypatch.setattr(ocr, "available", lambda: True)
    steps: list[str] = []
    document = read_document(
        shared_data / "hostile" / SCAN, ocr=True, progress=lambda stage, fraction: steps.append(stage)
    )
    assert (
        document.text
        == f"{said[0]} {said[1]}\n\nA second paragraph begins a little farther down the same page."
    )
    assert worded_by(ocr.recognise, *steps)
    assert [values(one)["count"] for one in worded_by(_by_ocr, *document.warnings)] == [1]


@pytest.mark.slow
@pytest.mark.skipif(not ocr.available(), reason="the OCR extra is not installed")
def test_real_scan_is_read(shared_data: Path):
    text = " ".join(read_safely(shared_data / "hostile" / SCAN, ocr=True).text.split())
    assert "towards the end of the widow's garden" in text
