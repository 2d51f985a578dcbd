"""A book's cover is found where its format names it, drawn anew and small, and never costs the book."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from core.documents import cover_safely
from core.documents.cover import SIZE, cover_of, redrawn
from tests.support.documents_made import BODY, CONTAINER, zipped

SECRET = b"taken in Mrs Dale's garden"


def picture(kind: str = "PNG", size: tuple[int, int] = (200, 300), colour: str = "teal") -> bytes:
    image = Image.new("RGB", size, "white")
    image.paste(colour, (0, 0, size[0] // 2, size[1] // 2))
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def shown(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    assert image.format == "JPEG"
    return image


def colour(data: bytes) -> str:
    red, green, blue = shown(data).getpixel((10, 10))
    return "red" if red > 150 else "blue" if blue > 150 else "teal" if green > 80 else "other"


def book(manifest: str, metadata: str = "", guide: str = "", page: str = BODY, **files: bytes) -> bytes:
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata>{metadata}</metadata>'
        "<manifest>"
        f'<item id="page" href="a.xhtml" media-type="application/xhtml+xml"/>{manifest}</manifest>'
        f'<spine><itemref idref="page"/></spine>{guide}</package>'
    )
    named = {f"O/img/{name.replace('_', '.')}": data for name, data in files.items()}
    html = f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{page}</body></html>'
    return zipped({"META-INF/container.xml": CONTAINER, "O/p.opf": package, "O/a.xhtml": html, **named})


ITEMS = '<item id="one" href="img/one.png" media-type="image/png"/>'
BY_PROPERTY = ITEMS.replace("<item ", '<item properties="cover-image" ')
EPUBS = {
    "EPUB 3, by its property": book(BY_PROPERTY, one_png=picture(), two_png=picture(colour="red")),
    "EPUB 2, by the metadata": book(ITEMS, '<meta name="cover" content="one"/>', one_png=picture()),
    "the guide's page": book(
        ITEMS,
        guide='<guide><reference type="cover" href="a.xhtml"/></guide>',
        page='<p><img src="img/one.png"/></p>',
        one_png=picture(),
    ),
    "a drawing around the picture": book(
        ITEMS,
        page='<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink">'
        '<image width="1" x:href="img/one.png"/></svg>',
        one_png=picture(),
    ),
    "an SVG first, a picture after it": book(
        '<item id="s" href="img/one.svg" properties="cover-image" media-type="image/svg+xml"/>',
        page='<img src="img/one.png"/>',
        one_svg=b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        one_png=picture(),
    ),
}


@pytest.mark.parametrize("data", EPUBS.values(), ids=EPUBS)
def test_the_picture_that_an_epub_names(data: bytes, tmp_path: Path):
    path = tmp_path / "book.epub"
    path.write_bytes(data)
    assert colour(cover_of(path)) == "teal"


def test_a_book_without_a_cover_or_with_a_missing_one_has_none(tmp_path: Path):
    path = tmp_path / "book.epub"
    for data in (book(""), book(BY_PROPERTY), book(BY_PROPERTY, one_png=b"<svg/>")):
        path.write_bytes(data)
        assert cover_of(path) == b""
    path = tmp_path / "book.txt"
    path.write_text("Once upon a time. " * 50)
    assert cover_of(path) == b""


def test_fictionbook_and_a_zip_around_it(tmp_path: Path):
    inside = base64.b64encode(picture("JPEG", colour="red")).decode()
    text = (
        '<?xml version="1.0"?><FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0" '
        'xmlns:l="http://www.w3.org/1999/xlink"><description><title-info><coverpage>'
        '<image l:href="#c.jpg"/></coverpage></title-info></description><body><section><p>Text.</p></section>'
        f'</body><binary content-type="image/jpeg" id="c.jpg">{inside}</binary></FictionBook>'
    )
    (tmp_path / "book.fb2").write_text(text)
    (tmp_path / "book.fb2.zip").write_bytes(zipped({"book.fb2": text}))
    for path in tmp_path.iterdir():
        assert colour(cover_of(path)) == "red"


def test_a_pdf_shows_its_first_page_unless_that_is_empty(tmp_path: Path):
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    for name, mark in (("full", True), ("empty", False)):
        page = canvas.Canvas(str(tmp_path / f"{name}.pdf"), pagesize=(3000, 1000))
        page.setFillColor("blue")
        if mark:
            page.rect(0, 0, 1500, 1000, fill=1)
        page.showPage()
        page.save()
    image = shown(cover_of(tmp_path / "full.pdf"))
    assert image.size[0] == SIZE[0] and image.getpixel((5, 5))[2] > 150
    assert cover_of(tmp_path / "empty.pdf") == b""


def test_what_came_with_a_picture_does_not_come_along():
    image = Image.open(io.BytesIO(picture("JPEG", (2000, 3000))))
    out = io.BytesIO()
    image.save(out, "JPEG", comment=SECRET, exif=b"Exif\x00\x00" + SECRET)
    drawn = redrawn(out.getvalue() + SECRET)
    assert SECRET not in drawn and max(shown(drawn).size) <= SIZE[1]


def giant(wide: int, high: int) -> bytes:
    """A PNG of a few bytes that says it is large."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "data",
    [
        giant(60_000, 60_000),
        giant(500, 500),
        picture(size=(900, 60)),
        picture(size=(16, 16)),
        picture()[:200],
        picture("BMP"),
        b"",
    ],
    ids=["a giant", "cut off", "a banner", "an ornament", "damaged", "another format", "nothing"],
)
def test_what_is_no_cover_is_left_out(data: bytes):
    assert redrawn(data) == b""


def test_in_a_process_of_its_own_nothing_costs_the_book(tmp_path: Path):
    path = tmp_path / "book.epub"
    path.write_bytes(EPUBS["EPUB 3, by its property"])
    assert colour(cover_safely(path)) == "teal"
    assert cover_safely(path, should_stop=lambda: True) == b""
    path.write_bytes(b"PK\x03\x04 damaged")
    assert cover_safely(path) == b"" and cover_safely(tmp_path / "gone.epub") == b""
