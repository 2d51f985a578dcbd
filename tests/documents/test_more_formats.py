"""FictionBook, OpenDocument, rich text and zips of one book; and what is no file at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.documents import Document, read_document, read_safely
from core.documents.structure.blocks import CUT_OFF
from core.errors import DocumentError
from core.sandbox.process import Limits
from tests.support.documents_made import BODY, epub, titles, zipped

FB2 = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE FictionBook [<!ENTITY secret SYSTEM "file:///etc/passwd">]>
<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0" xmlns:l="http://www.w3.org/1999/xlink">
<description><title-info><author><first-name>Лев</first-name><last-name>Толстой</last-name></author>
<book-title>Озеро</book-title></title-info></description>
<body><title><p>Озеро</p></title>
<section><title><p>Часть первая</p></title>
<section><title><p>Глава 1</p><p>Утро</p></title>
<p>Лодки стояли у берега.<a l:href="#n1" type="note">[1]</a> Было
тихо.&secret;</p><poem><stanza><v>Белеет парус</v><v>одинокий</v></stanza></poem></section>
<section><title><p>Глава 2</p></title><p>{prose}</p></section></section></body>
<body name="notes"><title><p>Примечания</p></title><section id="n1"><title><p>1</p></title><p>Лодки
рыбаков.</p></section></body>
<binary id="c.jpg" content-type="image/jpeg">{picture}</binary></FictionBook>"""
PROSE = "Потом пришёл ветер, и все они запели. " * 40


def fictionbook(encoding: str = "utf-8", picture: str = "AAAA") -> bytes:
    return FB2.format(encoding=encoding, prose=PROSE, picture=picture).encode(encoding)


def read(folder: Path, name: str, data: bytes) -> Document:
    path = folder / name
    path.write_bytes(data)
    return read_document(path)


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1251", "utf-16"])
def test_fictionbook(encoding: str, tmp_path: Path):
    document = read(tmp_path, "book.fb2", fictionbook(encoding))
    assert (document.format, document.title, document.author) == ("fb2", "Озеро", "Лев Толстой")
    assert [section.title for section in document.chapters][-1] == "Глава 2"
    assert (
        "Лодки стояли у берега.[1] Было тихо." in document.text and "Белеет парус\nодинокий" in document.text
    )
    assert "тихо.\n\n[1] Лодки рыбаков.\n\nБелеет" in document.text and "root:" not in document.text
    assert titles(document, "back") == [] and "Примечания" not in document.text


def test_pictures_of_a_fictionbook_cost_nothing(tmp_path: Path):
    """A base64 text node over ten million characters is more than the XML parser takes."""
    document = read(tmp_path, "book.fb2", fictionbook(picture="QUFB" * 3_000_000))
    assert "запели" in document.text and "QUFB" not in document.text


def test_a_zip_with_one_book_opens_as_the_book(tmp_path: Path):
    assert read(tmp_path, "book.fb2.zip", zipped({"lake.fb2": fictionbook()})).title == "Озеро"
    files = {"The Lake.epub": epub({"a.xhtml": BODY}), "readme.txt": "Thanks.", "cover.jpg": b"x"}
    document = read(tmp_path, "book.zip", zipped(files | {"__MACOSX/._The Lake.epub": b"x"}))
    assert (document.format, document.title) == ("epub", "The Lake")
    assert read(tmp_path, "plain.zip", zipped({"in/The Sea.txt": "Some words."})).title == "The Sea"


ODT = """<office:document-content xmlns:office="urn:o" xmlns:text="urn:t"><office:body><office:text>
<text:tracked-changes><text:p>Deleted words.</text:p></text:tracked-changes>
<text:h text:outline-level="1">One</text:h>
<text:p>The boats<text:s/>lay <text:span>at anchor</text:span>.<text:note>
<text:note-citation>1</text:note-citation>
<text:note-body><text:p>All of them.</text:p></text:note-body></text:note>
Nobody spoke.</text:p>
<text:h text:outline-level="1">Two</text:h><text:p>Then<text:tab/>the wind<text:line-break/>came.</text:p>
</office:text></office:body></office:document-content>"""
META = "<m xmlns:dc='urn:d'><dc:title>The Lake</dc:title><dc:creator>A. Writer</dc:creator></m>"


def odt(content: str = ODT) -> bytes:
    kind = "application/vnd.oasis.opendocument.text"
    return zipped({"mimetype": kind, "content.xml": content, "meta.xml": META})


def test_opendocument(tmp_path: Path):
    document = read(tmp_path, "book.odt", odt())
    assert (document.format, document.title, document.author) == ("odt", "The Lake", "A. Writer")
    assert [section.title for section in document.chapters] == ["One", "Two"]
    assert "The boats lay at anchor.[1]" in document.text and "[1] All of them." in document.text
    assert "Deleted" not in document.text


def test_a_book_that_breaks_off_says_so(tmp_path):
    """The first chapter stood on the shelf as the book, and "How does it end?" was told its end."""
    book = fictionbook(picture="QUFB" * 99)
    text = rtf("Chapter 1", "It rained on the lake. " * 9, "Chapter 2", "And then it did not. " * 9)
    for name, whole, at in (("lake.fb2", book, book.rindex(b"</section")), ("lake.rtf", text, -30)):
        assert not read(tmp_path, name, whole).warnings
        told = read(tmp_path, f"cut-{name}", whole[:at])
        assert [*map(str, told.warnings)] == [CUT_OFF]


def rtf(*paragraphs: str) -> bytes:
    info = r"{\info{\title The Lake}{\author A. Writer}}"
    return (r"{\rtf1\ansi\ansicpg1252" + info + r"\pard " + r"\par ".join(paragraphs) + "}").encode()


def test_rich_text(tmp_path: Path):
    prose = r"The mate said \ldblquote no\rdblquote  \emdash  caf\'e9, \u1083?\u1091?\u1085?\u1072?. " * 8
    picture = r"{\pict\jpegblip " + "ffd8" * 4000 + "}"
    document = read(tmp_path, "book.rtf", rtf("Chapter 1", prose + picture, "Chapter 2", prose))
    assert (document.format, document.title, document.author) == ("rtf", "The Lake", "A. Writer")
    assert [section.title for section in document.chapters] == ["Chapter 1", "Chapter 2"]
    assert "“no” — café, луна." in document.text and "ffd8" not in document.text


# ---- no files ----


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("https://example.org/book.epub", "address"),
        ("", "No file was named"),
        ("  ", "No file was named"),
        ("none.epub", "no file"),
        ("a\0b", "cannot be read"),
    ],
)
@pytest.mark.parametrize("read_it", [read_document, read_safely])
def test_what_is_no_file_is_said_to_be_that(name: str, said: str, read_it, tmp_path: Path):
    with pytest.raises(DocumentError, match=said):
        read_it(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_and_a_device_are_refused_at_once(tmp_path: Path):
    """They were waited for until the limit of two minutes."""
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", Path("/dev/zero"), Path("/dev/stdin")):
        with pytest.raises(DocumentError, match=r"pipe or a device|no file|empty"):
            read_safely(path, limits=Limits(time_s=3600))


@pytest.mark.wide
def test_a_giant_text_is_refused_by_its_size(tmp_path: Path):
    """Reading one of 300 MB took 2 GB of memory before it was refused."""
    path = tmp_path / "giant.txt"
    with path.open("wb") as file:
        file.write(b"word " * 1000)
        file.seek(300_000_000)
        file.write(b"word")
    data = path.read_bytes().replace(b"\0", b" ")
    path.write_bytes(data)
    with pytest.raises(DocumentError, match="300 MB, over the limit of 120 MB"):
        read_safely(path, limits=Limits(memory_bytes=1 << 30))
