"""Damaged files of every kind: whatever happens, the reader answers with a Document or with one sentence."""

from __future__ import annotations

import io
import os
import quopri
import random
import textwrap
import time
import zipfile
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path

import pytest

from core.documents import Document, read_document, read_safely
from core.documents.safely import _refusal
from core.errors import DocumentError, PasswordNeeded
from core.sandbox.process import Limits
from tests.support.minimal_pdf import pdf_of, text_pdf
from tests.support.printed_pages import booklet, column, ocr_layer, printed_pdf
from tests.support.said import worded_by
from tests.support.saved_pages import news, paragraphs_of
from tests.support.word_processing import rich_text, word_document, word_paragraph, word_style, word_table
from tests.tiers import first

SAMPLES = Path(__file__).resolve().parents[2] / "assets" / "samples"
SHARED = {
    "txt": "books/the-time-machine.txt",
    "epub": "hostile/epub-malformed-xhtml.epub",
    "epub3": "hostile/epub-path-traversal.epub",
    "xxe": "hostile/epub-xxe.epub",
    "pdf": "hostile/pdf-two-columns.pdf",
    "locked": "hostile/pdf-open-password.pdf",
    "scan": "hostile/pdf-empty-user-password-rc4.pdf",
    "docx": "hostile/docx-renamed.pdf",
    "utf16": "hostile/txt-utf16le-bom.txt",
}
OWN = {
    "own markdown": ".md",
    "own text": ".txt",
    "own html": ".html",
    "own docx": ".docx",
    "own epub": ".epub",
    "own pdf": ".pdf",
    "own fb2": ".fb2",
    "own odt": ".odt",
    "own rtf": ".rtf",
    "own mhtml": ".mhtml",
    "own web page": ".html",
    "own zip": ".zip",
    "own styled docx": ".docx",
    "own noted rtf": ".rtf",
    "own booklet": ".pdf",
    "own ocr layer": ".pdf",
    "own leftward pdf": ".pdf",
}
KINDS = (*OWN, *SHARED)
LONG_S = float(os.environ.get("TRIFORCE_FUZZ_S", "60"))  # of the long run, for each kind


@cache
def own_file(kind: str) -> bytes:
    """The project's own book in every format: one parser each, none of them needing other data."""
    book = (SAMPLES / "the-light-on-the-holm.md").read_text(encoding="utf-8")[:30_000]
    if kind == "own html":
        paragraphs = "".join(
            f"<h2>{part[2:]}</h2>" if part.startswith("# ") else f"<p>{part}</p>"
            for part in book.split("\n\n")
        )
        head = "<head><meta charset=utf-8><title>The Light</title></head>"
        return f"<!doctype html><html lang=en>{head}<body>{paragraphs}</body>".encode()
    if kind == "own docx":
        return docx_of(book)
    if kind in _MADE:
        return _MADE[kind](book)
    if kind in ("own epub", "own pdf"):
        return (SAMPLES / f"the-light-on-the-holm{OWN[kind]}").read_bytes()
    return book.replace("#", "").encode("cp1252", "replace") if kind == "own text" else book.encode()


def fb2_of(book: str) -> bytes:
    """A FictionBook with a section for every "# "."""
    chapters = [part.split("\n\n") for part in escape(book).split("\n# ")]
    sections = "".join(
        f"<section><title><p>{title}</p></title>{''.join(f'<p>{part}</p>' for part in parts)}</section>"
        for title, *parts in chapters
    )
    info = "<description><title-info><book-title>The Light</book-title></title-info></description>"
    return f"<FictionBook>{info}<body>{sections}</body></FictionBook>".encode()


def odt_of(book: str) -> bytes:
    """An OpenDocument text with a heading for every "# "."""
    body = "".join(
        f"<text:h>{part[2:]}</text:h>" if part.startswith("# ") else f"<text:p>{part}</text:p>"
        for part in escape(book).split("\n\n")
    )
    content = f'<d xmlns:text="urn:t">{body}</d>'
    return zip_of({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def rtf_of(book: str) -> bytes:
    """Rich text with the signs beyond ASCII written as numbers."""
    signs = "".join(char if char < "\x7f" else f"\\u{ord(char)}?" for char in book)
    return ("{\\rtf1\\ansi{\\info{\\title The Light}}" + signs.replace("\n\n", "\\par ") + "}").encode()


def styled_docx_of(book: str) -> bytes:
    """A Word document with styles of its own, outline levels, footnotes and a table."""
    level = '<w:outlineLvl w:val="0"/>'
    body = "".join(
        word_paragraph(escape(part), style="B" if number % 9 == 0 else "", note=1 + number % 5)
        + (word_paragraph(escape(part[:20]), properties=level) if number % 7 == 0 else "")
        for number, part in enumerate(book.split("\n\n"))
    )
    styles = word_style("A", "heading 1", level=0) + word_style("B", "Mine", based_on="A")
    notes = {number: f"Note {number}." for number in range(1, 6)}
    return word_document(body + word_table(["Year", "Men"], ["1863", "31"]), styles=styles, notes=notes)


def noted_rtf_of(book: str) -> bytes:
    """Rich text with a style sheet, outline levels, notes and a table."""
    signs = "".join(char if char < "\x7f" else f"\\u{ord(char)}?" for char in book)
    note = r"{\super\chftn}{\footnote\pard {\super\chftn} It is said.\par So it is.}"
    parts = [
        rf"\pard\s{number % 6} {part}{note}\par " if number % 5 else rf"{{\pard\outlinelevel1 {part}\par}}"
        for number, part in enumerate(signs.split("\n\n"))
    ]
    rows = r"\trowd Year\cell Men\cell \row \trowd 1863\cell 31\cell \row "
    return rich_text(*parts, rows, styles=r"{\s4\outlinelevel0 Mine;}{\s5\sbasedon4 Other;}")


def wrapped(book: str) -> list[str]:
    """The book's words in lines of a column."""
    return textwrap.wrap(book.encode("ascii", "replace").decode(), 58)


def booklet_of(book: str) -> bytes:
    """A PDF of sheets with two pages each, cut by a crop box."""
    lines = wrapped(book)
    pages = [lines[20 * number : 20 * number + 20] for number in range(16)]
    return printed_pdf(
        booklet(pages, leaves=2), outline={1: "The Light"}, crop=(5, 5, 830, 590), size=(842, 595)
    )


def ocr_layer_of(book: str) -> bytes:
    """A PDF as OCR programs write them."""
    lines = wrapped(book)
    return ocr_layer([column(lines[30 * number : 30 * number + 30]) for number in range(6)], right=360)


def leftward_of(_book: str) -> bytes:
    """A PDF in Hebrew with numbers, brackets and Latin words."""
    line = "(.3.11 nohtyP) תחא האמ 1948 תנשב ותיבב בשי שיאה"
    return text_pdf([[(20, 560 - 14 * row, line) for row in range(38)]] * 4)


def mhtml_of(book: str) -> bytes:
    """A saved web page."""
    head = (
        'MIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"\n\n--b\nContent-Type: text/html\n'
    )
    page = "".join(f"<p>{part}</p>" for part in escape(book).split("\n\n"))
    coded = quopri.encodestring(f"<html><body>{page}</body></html>".encode()).decode()
    return f"{head}Content-Transfer-Encoding: quoted-printable\n\n{coded}\n--b--\n".encode()


def web_page_of(book: str) -> bytes:
    """A page with a site around its article."""
    page, text = news()
    return page.replace(paragraphs_of(text[:6]), paragraphs_of(book.split("\n\n"))).encode()


def zip_of(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def docx_of(book: str) -> bytes:
    """A Word document with a heading for every "# "."""
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    heading = '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>'
    body = "".join(
        f"<w:p>{style}<w:r><w:t>{escape(part.lstrip('# '))}</w:t></w:r></w:p>"
        for part in book.split("\n\n")
        for style in [heading if part.startswith("# ") else ""]
    )
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        f'ContentType="{relations}"/>'
        f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f"<w:document {space}><w:body>{body}</w:body></w:document>",
    }
    return zip_of(files)


_MADE: dict[str, Callable[[str], bytes]] = {
    "own fb2": fb2_of,
    "own odt": odt_of,
    "own rtf": rtf_of,
    "own mhtml": mhtml_of,
    "own web page": web_page_of,
    "own zip": lambda book: zip_of({"book.txt": book}),
    "own styled docx": styled_docx_of,
    "own noted rtf": noted_rtf_of,
    "own booklet": booklet_of,
    "own ocr layer": ocr_layer_of,
    "own leftward pdf": leftward_of,
}


@pytest.fixture(params=first(KINDS, 9))  # the others in the second tier
def healthy(request: pytest.FixtureRequest) -> tuple[str, bytes, str]:
    """(kind, an undamaged file's bytes, its suffix). The shared ones are skipped where they are not."""
    kind = request.param
    if kind in OWN:
        return kind, own_file(kind), OWN[kind]
    shared = request.getfixturevalue("shared_data") / SHARED[kind]
    return kind, shared.read_bytes(), ".docx" if kind == "docx" else shared.suffix


Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 10, 200))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def lose(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 2000) :]


def repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 400)]
    return data[:start] + piece * rng.randrange(2, 200) + data[start:]


def numbers(data: bytes, rng: random.Random) -> bytes:
    """Digits into other digits: lengths, offsets and counts that lie."""
    changed = bytearray(data)
    places = [index for index, byte in enumerate(data) if 48 <= byte <= 57]
    for index in rng.sample(places, min(len(places), rng.choice((1, 5, 50)))):
        changed[index] = 48 + rng.randrange(10)
    return bytes(changed)


def nest(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return (
        data[:start]
        + rng.choice((b"<div>", b"<<", b"[", b"(", b"<b><i>", b"&#x", b"<!--")) * 5000
        + data[start:]
    )


def splice(data: bytes, rng: random.Random) -> bytes:
    """A piece moved to another place."""
    start, target = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 4000)]
    rest = data[:start] + data[start + len(piece) :]
    return rest[:target] + piece + rest[target:]


DAMAGES: tuple[Damage, ...] = (cut, flip, lose, repeat, numbers, nest, splice)


def zip_repacked(data: bytes, rng: random.Random, damage: Damage) -> bytes:
    """Damage inside the archive: the container stays whole, so that the parsers behind it meet the damage."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        names = [name for name in source.namelist() if source.getinfo(name).file_size > 8]
        victim = rng.choice(names)
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, damage(content, rng) if name == victim else content)
    return buffer.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    damage = rng.choice(DAMAGES)
    if data[:2] == b"PK" and rng.random() < 0.8:
        return zip_repacked(data, rng, damage)
    return damage(data, rng)


def test_the_undamaged_files_are_read(healthy: tuple[str, bytes, str], tmp_path: Path):
    """Else the damage would be done to something that is refused at the door."""
    kind, data, suffix = healthy
    path = tmp_path / f"book{suffix}"
    path.write_bytes(data)
    if kind == "locked":
        with pytest.raises(PasswordNeeded):
            read_document(path)
    else:
        assert kind not in OWN or read_document(path).words > 1000
        check(read_document(path))


def test_damaged_files_end_in_a_document_or_a_sentence(healthy: tuple[str, bytes, str], tmp_path: Path):
    """In this process, so that a crash or an exception of another kind shows itself."""
    kind, data, suffix = healthy
    for seed in range(25):
        path = tmp_path / f"{kind}-{seed}{suffix}"
        path.write_bytes(damaged(data[:200_000], random.Random(f"{kind}{seed}")))
        started = time.process_time()  # the machine may be busy with other things
        try:
            check(read_document(path))
        except DocumentError as error:
            assert str(error) and "\n" not in str(error)
        assert time.process_time() - started < 10, seed
        path.unlink()


@pytest.mark.slow
@pytest.mark.timeout(LONG_S + 240)
def test_long_fuzz_through_the_child(healthy: tuple[str, bytes, str], tmp_path: Path):
    """On demand: what a user would meet, a crash of a parser and a hang included."""
    kind, data, suffix = healthy
    limits = Limits(memory_bytes=1 << 30, time_s=30)
    path = tmp_path / f"{kind}{suffix}"
    until, seed = time.monotonic() + LONG_S, 0
    while time.monotonic() < until:
        seed += 1
        path.write_bytes(damaged(data, random.Random(f"long{kind}{seed}")))
        started = time.monotonic()
        try:
            check(read_safely(path, limits=limits))
        except DocumentError as error:
            assert "\n" not in str(error) and not worded_by(_refusal, str(error)), seed
        assert time.monotonic() - started < limits.time_s + 30, seed


def check(document: Document) -> None:
    """Sections cover the text in order, pages are ordered and named."""
    assert (
        document.sections
        and document.sections[0].start == 0
        and document.sections[-1].end == len(document.text)
    )
    for left, right in zip(document.sections, document.sections[1:], strict=False):
        assert left.end == right.start and left.start < left.end
    assert list(document.page_starts) == sorted(document.page_starts)
    assert len(document.page_labels) in (0, len(document.page_starts))
    assert not any(char in document.text for char in "\x00\ufffe\ud800")
    document.text.encode("utf-8")


@pytest.mark.parametrize(
    "objects",
    [
        ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 3/Kids[2 0 R 2 0 R]>>"],
        ["<</Type/Catalog/Pages 2 0 R>>", "<</Type/Pages/Count 2000000000/Kids[]>>"],
        [
            "<</Type/Catalog/Pages 2 0 R/Outlines 3 0 R>>",
            "<</Type/Pages/Count 0/Kids[]>>",
            "<</First 4 0 R/Last 4 0 R>>",
            "<</Title(a)/Next 4 0 R/First 4 0 R/Parent 3 0 R>>",
        ],
        ["<</Type/Catalog/Pages 1 0 R>>"],
        [
            "<</Type/Catalog/Pages 2 0 R>>",
            "<</Type/Pages/Count 1/Kids[3 0 R]>>",
            "<</Type/Page/Parent 2 0 R/MediaBox[0 0 1e30 1e30]/Contents 4 0 R>>",
            "<</Length 99999999>>stream\nBT ET\nendstream",
        ],
    ],
    ids=["circular pages", "giant page count", "circular outline", "catalogue as pages", "absurd sizes"],
)
def test_absurd_page_trees_end_in_a_sentence(objects: list[str], tmp_path: Path):
    path = tmp_path / "absurd.pdf"
    path.write_bytes(pdf_of(objects))
    with pytest.raises(DocumentError) as caught:
        read_safely(path, limits=Limits(time_s=60, memory_bytes=1 << 30))
    assert not worded_by(_refusal, str(caught.value))
