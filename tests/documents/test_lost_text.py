"""Text that looks like something else is read, and what nobody was meant to read is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.documents import Document, read_document
from core.errors import DocumentError
from tests.support.documents_made import epub, word_file

RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n"
CHINESE = "话说天下大势，分久必合，合久必分。周末七国分争，并入于秦。\n"
GREEK = "Η Ιθάκη σ' έδωσε τ' ωραίο ταξίδι. Χωρίς αυτήν δεν θα βγαινες στον δρόμο.\n"
HEBREW = "בראשית ברא אלהים את השמים ואת הארץ והארץ היתה תהו ובהו וחשך על פני תהום\n"


def read(folder: Path, name: str, data: str | bytes) -> Document:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_document(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [RUSSIAN, CHINESE, GREEK, HEBREW], ids=["ru", "zh", "el", "he"])
def test_utf16_without_a_mark_in_any_script(text: str, encoding: str, tmp_path: Path):
    assert read(tmp_path, "book.txt", (text * 20).encode(encoding)).text.startswith(text[:10])


def test_bytes_without_meaning_are_no_utf16(tmp_path: Path):
    with pytest.raises(DocumentError, match="binary"):
        read(tmp_path, "book.txt", bytes((index * 7919 >> 3) % 256 for index in range(8000)))


PAGE = """<!DOCTYPE html><html><head><title>The Long Read</title></head><body><h1>The Long Read</h1>
<p>It was the best of times =E2=80=94 it was the wo=
rst of times.</p></body></html>"""


@pytest.mark.parametrize("suffix", [".mhtml", ".mht", ".html"])
def test_saved_web_page_is_read_without_its_envelope(suffix: str, tmp_path: Path):
    head = (
        "From: <Saved by Blink>\nSnapshot-Content-Location: https://example.org/\nMIME-Version: 1.0\n"
        'Content-Type: multipart/related;\n\ttype="text/html";\n\tboundary="--x--"\n\n\n----x--\n'
        "Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n"
    )
    picture = "\n----x--\nContent-Type: image/png\nContent-Transfer-Encoding: base64\n\nAAAA\n----x----\n"
    document = read(tmp_path, f"page{suffix}", head + PAGE + picture)
    assert document.title == "The Long Read" and "times — it was the worst of times." in document.text
    assert "quoted" not in document.text and "AAAA" not in document.text


def test_text_that_no_reader_shows_is_not_read(tmp_path: Path):
    page = (
        "<html><style>.ghost, p.shy {display : none} @media print {.screen {display:none}}</style>"
        f"<body><p>{'Seen. ' * 40}</p><p class='a ghost'>Gone one.</p><p style='display:none'>Gone two.</p>"
        "<p hidden>Gone three.</p><div style='visibility: hidden'><p>Gone four.</p></div>"
        "<p class='screen'>Kept.</p></body></html>"
    )
    text = read(tmp_path, "page.html", page).text
    assert "Gone" not in text and "Seen." in text and "Kept." in text


def test_a_page_that_a_script_would_show_is_read(tmp_path: Path):
    """Hidden until clicked: most of the text must not be taken for a secret."""
    page = f"<html><style>.x{{display:none}}</style><body><p class=x>{'Read me. ' * 40}</p></body></html>"
    assert "Read me." in read(tmp_path, "page.html", page).text


def test_text_that_a_books_own_style_sheet_hides_is_not_read(tmp_path: Path):
    """Linked, as books do; a sheet for other devices, or one that is missing, hides nothing."""
    head = (
        "<link rel='stylesheet' href='../css/book%20style.css'/><link rel='stylesheet' href='gone.css'/>"
        "<link rel='stylesheet' media='amzn-mobi' href='../css/mobi.css'/>"
    )
    page = (
        f"<html xmlns='http://www.w3.org/1999/xhtml'><head>{head}</head><body><p>{'Seen. ' * 40}</p>"
        "<p class='ghost'>Gone.</p><p class='kindle'>Kept.</p></body></html>"
    )
    sheets = {"O/css/book style.css": ".ghost { display: none }", "O/css/mobi.css": ".kindle {display:none}"}
    book = epub({"text/a.xhtml": ""}, extra={"O/text/a.xhtml": page, **sheets})
    document = read(tmp_path, "book.epub", book)
    assert "Gone" not in document.text and "Seen." in document.text and "Kept." in document.text
    assert not [note for note in document.warnings if "css" in note]


@pytest.mark.parametrize("name", ["python-docx", "(anonymous)", "Microsoft Office User", " "])
def test_programs_are_no_authors(name: str, tmp_path: Path):
    data = word_file([("", "Some text.")], author=name)
    assert read(tmp_path, "book.docx", data).author == ""


@pytest.mark.parametrize(
    ("mark", "feed"), [("- {} -", "\f"), ("- {} -", ""), ("Page {}", "\f\n"), ("{}", "\f"), ("[{}]", "\f")]
)
def test_page_ends_of_a_text_leave_its_sentences_whole(mark: str, feed: str, tmp_path: Path):
    """Page numbers stood in the text as lines of their own, and each page began a new paragraph."""
    page = "THE LAKE\n\n" if feed else ""
    page += (
        "and the boat lay at anchor while the wind came from the east and\nall the sails were wet and heavy"
    )
    pages = [f"{page}\n\n{mark.format(number)}\n{feed}" for number in range(1, 9)]
    text = read(tmp_path, "book.txt", "\n".join(pages)).text
    assert "wet and heavy and the boat" in " ".join(text.split("\n")) and mark.format(3) not in text
    assert text.count("THE LAKE") <= 1
