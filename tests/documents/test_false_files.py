"""Files that are not what they say are named for what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.documents import read_document
from core.errors import DocumentError
from tests.support.documents_made import BODY, epub, read, refused, zipped


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("book.mobi", b"\0" * 60 + b"BOOKMOBI" + b"\0" * 100, "Kindle"),
        ("book.azw3", b"Name" + b"\0" * 56 + b"BOOKMOBI" + b"\0" * 100, "Kindle"),
        ("book.pdf", b"\xff\xd8\xff\xe0" + b"\0" * 100, "JPEG"),
        ("book.epub", b"<!DOCTYPE html><html><body>404 not found</body></html>", "HTML"),
        ("book.epub", b"just some words", "plain text"),
        ("book.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "Office"),
        ("book.djvu", b"AT&TFORM" + b"\0" * 50, "DjVu"),
        ("book.rtf", b"{\\rtf1 }", "RTF"),
        ("book.lit", b"ITOLITLS" + b"\0" * 50, "Calibre"),
        ("book.chm", b"ITSF" + b"\0" * 50, "Calibre"),
        ("book.fb2", b"<FictionBook><body/></FictionBook>", "without text"),
        (
            "page.mhtml",
            b"MIME-Version: 1.0\nContent-Type: multipart/related\n\nnothing",
            "without a web page",
        ),
        ("book.txt", bytes(range(256)) * 50, "binary"),
        ("book.cbz", zipped({"1.jpg": b"x", "2.jpg": b"y"}), "pictures"),
        (
            "book.odt",
            zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": "<x/>"}),
            "OpenDocument",
        ),
        ("book.xlsx", zipped({"xl/workbook.xml": "<x/>"}), "spreadsheet"),
        ("book.zip", zipped({"a.txt": "hello", "b.txt": "hello"}), "2 books"),
        ("book.zip", zipped({"a.bin": "hello"}), "zip archive"),
        ("book.zip", zipped({"in/a.txt": "", "b.txt": b"\0\1\2" * 99}), "book.zip: a.txt"),
        ("book.zip", zipped({"in/a.txt": " \n"}), "book.zip: a.txt"),
        ("book.zip", zipped({"a.epub": zipped({"META-INF/container.xml": "<x/>"})}), "book.zip: a.epub"),
        ("book.zip", zipped({"inner.zip": zipped({"a.txt": "hello"})}), "another archive"),
        ("book.zip", zipped({"a.txt": zipped({"b.txt": "hello"})}), "another archive"),
        ("book.epub", epub({"a.xhtml": BODY})[:400], "cut-off"),
        ("book.pdf", b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n<<", "damaged"),
        ("book.txt", b" \n\n\t", "no readable text"),
        ("book.md", b"...!!!???", "no readable text"),
    ],
)
def test_other_files_are_named_for_what_they_are(name: str, data: bytes, said: str, tmp_path: Path):
    message = refused(tmp_path, name, data)
    assert said in message and name in message and "\n" not in message


@pytest.mark.parametrize(("content", "warned"), [(b"\xff\xfe\0\1broken", True), (b"It rained. " * 5, False)])
def test_a_file_with_hardly_a_word_is_warned_of(content: bytes, warned: bool, tmp_path: Path):
    """Signs without a meaning became a book of four words without a word about it."""
    assert bool(read(tmp_path, "weird.txt", content).warnings) is warned


@pytest.mark.parametrize("beside", [b"", b" \n", b"\0\1\2" * 99, zipped({"b.txt": "hello"})])
def test_what_is_no_book_beside_one_in_a_zip_is_passed_over(beside: bytes, tmp_path: Path):
    """ "a.txt is empty": neither was the zip named nor the good book taken."""
    archive = zipped({"a.txt": beside, "book.md": "# One\n\nIt rained.", "photo.jpg": b"\xff\xd8\xff"})
    assert "It rained." in read(tmp_path, "stuff.zip", archive).text


def test_book_under_a_wrong_name_opens_by_its_content(tmp_path: Path):
    assert read(tmp_path, "book.pdf", epub({"a.xhtml": BODY})).format == "epub"
    assert read(tmp_path, "book.epub.txt", epub({"a.xhtml": BODY})).format == "epub"


def test_missing_files_and_folders_are_said_to_be_that(tmp_path: Path):
    with pytest.raises(DocumentError, match="no file"):
        read_document(tmp_path / "none.epub")
    with pytest.raises(DocumentError, match="folder"):
        read_document(tmp_path)
