"""No page of a PDF is lost without a word: turned text is read, what cannot be read is counted and named."""

from __future__ import annotations

import io
from pathlib import Path

import pypdf
import pytest

from core.documents import Document, read_document
from core.documents.legible import is_legible
from core.documents.structure.binding import _doubts
from core.errors import ScannedPages
from tests.support.minimal_pdf import HEIGHT, LEADING, pdf_of, text_pdf
from tests.support.said import worded_by
from tests.support.typeset import typeset

SENTENCE = "The boats lay at anchor while nobody spoke, and the {} of them went home to sleep. "
WORDS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
STORY = [(f"Part {word}", [SENTENCE.format(word) * 40]) for word in WORDS]


def read(folder: Path, data: bytes) -> Document:
    path = folder / "book.pdf"
    path.write_bytes(data)
    return read_document(path)


def turned(data: bytes, degrees: int, *, compensated: bool) -> bytes:
    """Every second page with its text turned by a matrix; `compensated`: a /Rotate makes it upright again."""
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    for page in writer.pages[::2]:
        width, height = float(page.mediabox.width), float(page.mediabox.height)
        moves = {90: (height, 0), 180: (width, height), 270: (0, width)}
        page.add_transformation(pypdf.Transformation().rotate(degrees).translate(*moves[degrees]))
        if degrees != 180:
            page.mediabox = page.cropbox = pypdf.generic.RectangleObject((0, 0, height, width))
        if compensated:
            page[pypdf.generic.NameObject("/Rotate")] = pypdf.generic.NumberObject(degrees)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("compensated", [True, False], ids=["with /Rotate", "as it lies"])
@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_turned_pages_are_read_like_upright_ones(degrees: int, compensated: bool, tmp_path: Path):
    """They were dropped as stamps, or read from the foot to the head."""
    upright = typeset("The Lake", "A. Writer", STORY)[0]
    document = read(tmp_path, turned(upright, degrees, compensated=compensated))
    assert document.text == read(tmp_path, upright).text
    assert not document.warnings


def test_a_turned_table_on_an_upright_page_is_read_and_a_stamp_is_not(tmp_path: Path):
    prose = [(40, 560 - LEADING * row, SENTENCE.format(word)[:60]) for row, word in enumerate(WORDS)]
    table = [f"{word}: so many boats in the harbour" for word in WORDS]
    sideways = "".join(
        f"BT /F 10 Tf 0 1 -1 0 {60 + LEADING * row} 40 Tm <{line.encode('utf-16-be').hex()}> Tj ET\n"
        for row, line in enumerate(table)
    )
    stamp = f"BT /F 10 Tf 0 1 -1 0 15 200 Tm <{'arXiv:1234'.encode('utf-16-be').hex()}> Tj ET\n"
    with_table = " ".join(read(tmp_path, text_pdf([prose], extra=sideways)).text.split())
    assert all(line in with_table for line in table) and SENTENCE.format("first")[:60].strip() in with_table
    assert "arXiv" not in read(tmp_path, text_pdf([prose], extra=stamp)).text


def test_text_at_a_slant_is_named_with_its_pages(tmp_path: Path):
    line = SENTENCE.format("last").encode("utf-16-be").hex()
    slanted = "".join(f"BT /F 10 Tf .7 .7 -.7 .7 {40 + 20 * n} 100 Tm <{line}> Tj ET\n" for n in range(3))
    prose = [(40, HEIGHT - 60, "An upright line.")]
    document = read(tmp_path, text_pdf([prose], extra=slanted))
    assert any("slant" in said and "(pages 1)" in said for said in document.warnings)


def shifted(text: str, by: int = -29) -> str:
    """As a font without a table of characters shows it: numbers of glyphs taken for letters."""
    return "".join(chr(ord(char) + by) if char > " " else char for char in text)


def test_a_book_whose_letters_make_no_words_is_refused_and_offered_to_ocr(tmp_path: Path):
    page = [(20, 560 - LEADING * row, shifted(SENTENCE.format(word))) for row, word in enumerate(WORDS)]
    with pytest.raises(ScannedPages, match="make no words"):
        read(tmp_path, text_pdf([page]))


def test_some_pages_without_words_are_left_out_and_named(tmp_path: Path):
    good = [(20, 560 - LEADING * row, SENTENCE.format(word)) for row, word in enumerate(WORDS)]
    bad = [(x, y, shifted(text)) for x, y, text in good]
    document = read(tmp_path, text_pdf([good, bad, good, good]))
    assert shifted("boats") not in document.text and document.pictures == 1
    assert any("page 2" in said for said in document.warnings)


def test_a_page_drawn_as_shapes_is_a_picture(tmp_path: Path):
    """Letters turned into outlines leave no text; a page of them is no empty page."""
    outlines = "0 0 m 5 5 l S " * 300
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Count 1/Kids[3 0 R]>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 600]/Contents 4 0 R>>",
        f"<</Length {len(outlines)}>>stream\n{outlines}\nendstream",
    ]
    with pytest.raises(ScannedPages):
        read(tmp_path, pdf_of(objects))


@pytest.mark.parametrize(
    "text",
    [
        "Ebben a házban lakott egykor egy öreg halász, aki soha nem ment ki többé a tengerre. " * 3,
        "Tässä talossa asui kerran vanha kalastaja, joka ei koskaan enää lähtenyt merelle. " * 3,
        "Trong ngôi nhà này từng có một ông lão đánh cá không bao giờ ra khơi nữa. " * 4,
        "W tym domu mieszkał kiedyś stary rybak, który już nigdy nie wypłynął na morze. " * 3,
        "В этом доме жил когда-то старый рыбак, который больше никогда не выходил в море. " * 3,
        "Yn y tŷ hwn bu unwaith yn byw hen bysgotwr na fyddai byth eto yn mynd i'r môr. " * 3,
        "17.25  18.50  19.75  21.00  Total 76.50 ......... 3\n" * 20,
        "却说那女娲氏炼石补天之时，于大荒山无稽崖炼成高经十二丈方经二十四丈顽石。" * 10,
        "GO HOME, SAID THE OLD MAN, AND NEVER COME BACK TO THIS HOUSE AGAIN. " * 4,
    ],
)
def test_every_language_is_legible(text: str):
    assert is_legible(text)


def test_a_text_whose_words_are_no_words_is_said_to_be_that(tmp_path: Path):
    path = tmp_path / "book.txt"
    path.write_text(shifted(SENTENCE.format("last") * 20, by=3), "utf-8")
    assert worded_by(_doubts, *read_document(path).warnings)
