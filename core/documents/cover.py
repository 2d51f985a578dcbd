"""A book's cover: found in its file, decoded, and written anew as a small JPEG.

Nothing is passed on as it came: no SVG, no giant, no bytes behind a picture.
"""

from __future__ import annotations

import base64
import contextlib
import io
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pypdfium2
from lxml import etree
from PIL import Image

from core.documents.files.archive import SafeArchive
from core.documents.files.decode import decode_markup
from core.documents.formats.html import parse
from core.documents.reader import open_book

SIZE = (320, 480)  # pixels at most, twice what the page shows and more
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
_MOST_PIXELS = 40_000_000  # of the picture as it came: a cover scanned at 600 dpi has 17 million
_LEAST_SIDE = 40  # a smaller picture is an ornament
_SLIM = 4  # one this much longer than wide, or wider than long, is a banner
_LEAST_CONTRAST = 24  # of 255
_QUALITY = 78
_FB2_PICTURE = re.compile(rb"<coverpage>.{0,2000}?href\s*=\s*[\"']#([^\"']+)[\"']", re.S)
_FB2_BINARY = rb"<binary\b[^>]*\bid\s*=\s*[\"']%s[\"'][^>]*>([^<]+)<"


def cover_of(path: str | Path, *, password: str | None = None) -> bytes:
    """The cover of the book in `path` as a JPEG: of an EPUB or FB2 the picture it names, of a PDF its first
    page. Empty where there is none that can be shown.

    Raises DocumentError when the file itself cannot be opened.
    """
    book = open_book(Path(path))
    if book.kind == "pdf":
        return _first_page(book.content, password)
    pictures = {"epub": _of_epub, "fb2": _of_fb2}.get(book.kind)
    found = pictures(book.content, book.name.name) if pictures else ()
    return next(filter(None, map(redrawn, found)), b"")


def redrawn(picture: bytes) -> bytes:
    """The picture small, as a JPEG on white without what else its file held; empty for what is no picture,
    too large to decode, or no cover's shape.
    """
    damaged = contextlib.suppress(OSError, ValueError, SyntaxError, Image.DecompressionBombError)
    with damaged, Image.open(io.BytesIO(picture), formats=_FORMATS) as image:
        wide, high = image.size
        if wide * high <= _MOST_PIXELS and min(wide, high) >= max(_LEAST_SIDE, max(wide, high) / _SLIM):
            image.draft("RGB", (2 * SIZE[0], 2 * SIZE[1]))  # a JPEG is decoded no larger than needed
            return _jpeg(image)
    return b""


def _jpeg(image: Image.Image) -> bytes:
    seen = image.convert("RGBA")
    seen.thumbnail(SIZE)
    flat = Image.new("RGB", seen.size, "white")
    flat.paste(seen, mask=seen)
    if all(high - low < _LEAST_CONTRAST for low, high in flat.getextrema()):
        return b""  # an empty page
    out = io.BytesIO()
    flat.save(out, "JPEG", quality=_QUALITY, optimize=True)
    return out.getvalue()


def _first_page(data: bytes, password: str | None) -> bytes:
    try:
        pdf = pypdfium2.PdfDocument(data, password=password or None)
        page = pdf[0]
        wide, high = page.get_size()
        scale = min(SIZE[0] / max(wide, 1), SIZE[1] / max(high, 1))
        return _jpeg(page.render(scale=scale).to_pil())
    except (pypdfium2.PdfiumError, ValueError, IndexError):
        return b""


def _of_fb2(data: bytes, name: str) -> Iterator[bytes]:
    named = _FB2_PICTURE.search(data)
    binary = re.search(_FB2_BINARY % re.escape(named.group(1)), data) if named else None
    if binary:
        with contextlib.suppress(ValueError):
            yield base64.b64decode(binary.group(1))


def _of_epub(data: bytes, name: str) -> Iterator[bytes]:
    """The pictures that the package calls its cover, the likeliest first."""
    archive = SafeArchive(data, name)
    package = next((name for name in archive.names if name.lower().endswith(".opf")), "")
    for path in _cover_paths(archive, package) if package else ():
        with contextlib.suppress(KeyError):
            yield archive.read(path)


def _cover_paths(archive: SafeArchive, package: str) -> Iterator[str]:
    """The item with the property "cover-image" (EPUB 3), the one that the metadata name (EPUB 2), else the
    picture on the page that the guide calls the cover, or on the first page.
    """
    root, folder = _markup(archive, package), posixpath.dirname(package)
    items = {item.get("id"): item for item in root.iter("{*}item", "item")}
    named = [one.get("content") for one in root.iter("{*}meta", "meta") if one.get("name") == "cover"]
    pictures = [one for one in items.values() if "cover-image" in (one.get("properties") or "").split()]
    for item in [*pictures, *(items[key] for key in named if key in items)]:
        yield _path(folder, item.get("href"))
    pages = [one.get("href") for one in root.iter("{*}reference", "reference") if one.get("type") == "cover"]
    spine = [
        items[one.get("idref")] for one in root.iter("{*}itemref", "itemref") if one.get("idref") in items
    ]
    for page in [*pages, *(item.get("href") for item in spine[:1])]:
        path = _path(folder, page)
        shown = _markup(archive, path).xpath("//*[local-name()='img']/@src | //*[local-name()='image']/@*")
        yield from (_path(posixpath.dirname(path), href) for href in shown[:8])


def _markup(archive: SafeArchive, path: str) -> etree._Element:
    try:
        return parse(decode_markup(archive.read(path))[0])
    except KeyError:
        return etree.Element("none")


def _path(folder: str, href: str | None) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote((href or "").partition("#")[0])))
