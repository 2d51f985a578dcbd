"""Small things that a reader would notice: titles of nothing, matter in other languages, two books."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from core.documents.pdf.page import NOTE_CLOSE, NOTE_OPEN, LinePiece, merged_pieces
from core.documents.structure.headings import read_heading
from core.documents.structure.matter import kind_by_title
from core.errors import DocumentError
from tests.support.documents_made import read, titles, zipped
from tests.support.word_processing import word_document, word_table

PROSE = "The rain went on and nobody came to the door of the house by the lake that day, or the day after. "
LONG = PROSE * 20  # 420 words


# ---- files that are called what they are ----


def test_encrypted_word_document_is_called_that(tmp_path: Path):
    """It was "an old Microsoft Office document": a container of the old kind holds what is encrypted."""
    data = (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
        + bytes(1016)
        + "EncryptedPackage".encode("utf-16-le")
        + bytes(500)
    )
    with pytest.raises(DocumentError, match=r"encrypted with a password.*Open it with its password"):
        read(tmp_path, "book.docx", data)


@pytest.mark.parametrize(("encryption", "said"), [(0, "Calibre can"), (2, "DRM-protected Kindle book")])
def test_kindle_book_says_whether_it_is_protected(encryption: int, said: str, tmp_path: Path):
    """Nobody can convert a protected one, as every one was told to."""
    record = 96
    head = bytes(60) + b"BOOKMOBI" + bytes(8) + struct.pack(">HI", 1, record) + bytes(14)
    with pytest.raises(DocumentError, match=said):
        read(tmp_path, "book.azw3", head + bytes(12) + struct.pack(">H", encryption) + bytes(300))


def test_comic_with_a_readme_is_a_comic(tmp_path: Path):
    """The readme was opened as the book."""
    pages = {f"{n}.jpg": b"\xff\xd8\xff" for n in range(9)}
    with pytest.raises(DocumentError, match="archive of pictures"):
        read(tmp_path, "comic.cbz", zipped({**pages, "readme.txt": "Scanned by A."}))


def test_readme_with_few_pictures_is_read(tmp_path: Path):
    data = zipped({"readme.txt": PROSE, "cover.jpg": b"\xff\xd8\xff"})
    assert read(tmp_path, "notes.zip", data).text == PROSE.strip()


# ---- chapters ----


def test_markdown_with_two_first_level_headings_has_the_chapters_below(tmp_path: Path):
    """A book and its appendix were two chapters."""
    names = ["The Boy", "The Wolf", "The Sea", "The House", "The End"]
    body = "\n\n".join(f"## {name}\n\n{LONG}" for name in names)
    text = f"# The Lake\n\n{PROSE}\n\n{body}\n\n# Appendix\n\n{PROSE}"
    assert titles(read(tmp_path, "book.md", text)) == [*names, "Appendix"]


def test_markdown_is_read_without_the_marks_of_quotations_and_emphasis(tmp_path: Path):
    """A letter stood in the book with ">" before its lines, and its title was that of its first chapter."""
    letter = "> Trieste, the 14th\n>\n> > I take *tea*, **very *black* tea**,\n> and `*none*` at 2*3*4."
    body = "\n\n".join(f"# {name}\n\n{LONG}\n\n{letter}" for name in ("The Boy", "The Wolf", "The Sea"))
    book = read(tmp_path, "lake.md", f"{body}\n\n*a note\n\nof two*")
    assert book.title == "lake" and len(titles(book)) == 3
    assert "Trieste, the 14th\n\nI take tea, very black tea,\nand `*none*` at 2*3*4." in book.text
    assert "*a note\n\nof two*" in book.text
    for text, title in ((f"# The Lake\n\n{body}", "The Lake"), (f"# Lake\n\n{LONG}", "Lake")):
        assert read(tmp_path, "book.md", text).title == title


def test_rows_of_a_table_are_no_chapters(tmp_path: Path):
    """A document of a table had 199 of them, one for each number."""
    rows = [[str(number), 2 * PROSE, f"{number} men"] for number in range(1, 200)]
    assert len(read(tmp_path, "boats.docx", word_document(word_table(*rows))).chapters) == 1
    lines = "\n\n".join(f"{number}. A boat" for number in range(1, 200))
    assert len(read(tmp_path, "boats.txt", lines).chapters) == 1


@pytest.mark.parametrize(
    ("line", "word", "number"),
    [
        ("Rozdział pierwszy", "rozdział", 1),
        ("Rozdział V", "rozdział", 5),
        ("Kapitola druhá", "kapitola", 2),
        ("Capitolo terzo", "capitolo", 3),
        ("CAPÍTULO QUARTO", "capítulo", 4),
        ("Capítulo primeiro", "capítulo", 1),
        ("Eerste hoofdstuk", "hoofdstuk", 1),
        ("Hoofdstuk twaalf", "hoofdstuk", 12),
        ("Sjätte kapitlet", "kapitlet", 6),
        ("Kapitel tre", "kapitel", 3),
        ("Siebtes Kapitel", "kapitel", 7),
        ("Chapitre premier", "chapitre", 1),
        ("CHAPTER 1000", "chapter", 1000),
        ("Chapter 1235: The Last", "chapter", 1235),
    ],
)
def test_chapters_are_called_so_in_other_languages(line: str, word: str, number: int):
    """Of a serial's 1,235 chapters 236 were within the one numbered 999."""
    heading = read_heading(line)
    assert heading and (heading.word, heading.number) == (word, number)


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("Uncopyright", "back"),
        ("GNU Free Documentation License", "back"),
        ("Anmerkungen", "back"),
        ("Über den Autor", "back"),
        ("Literaturhinweise", "back"),
        ("Widmung", "front"),
        ("Abkürzungsverzeichnis", "front"),
        ("Du même auteur", "front"),
        ("Remerciements", "front"),
        ("À propos de l’auteur", "back"),
        ("Notes de fin", "back"),
        ("Anmerkungen zur Liebe", None),
        ("Crédits", "back"),
    ],
)
def test_matter_is_known_in_other_words_and_languages(title: str, kind: str | None):
    assert kind_by_title(title) == kind


def gutenberg(title: str, names: list[str]) -> str:
    chapters = "\n\n\n".join(f"{name}\n\n\n{LONG}" for name in names)
    notice = f"The Project Gutenberg eBook of {title}\n\nTitle: {title}\n\n"
    start = f"*** START OF THE PROJECT GUTENBERG EBOOK {title.upper()} ***\n\n\n"
    end = f"\n\n\n*** END OF THE PROJECT GUTENBERG EBOOK {title.upper()} ***\n\n{PROSE}\n\n"
    return notice + start + chapters + end


@pytest.mark.parametrize(
    "line",
    [
        "The Project Gutenberg Etext of The Grey Ferry, by Vane",
        "**The Project Gutenberg Etext of The Grey Ferry, by Vane**",
        "Project Gutenberg's The Grey Ferry, by Edith Vane",
    ],
)
def test_an_early_edition_is_named_by_its_first_line(line: str, tmp_path: Path):
    """It was called 2city12 on the shelf, by nobody."""
    notice = f"{line}\n\nPlease take a look.\n\n\nThe Grey Ferry, by Edith Vane\n\nMay, 1994\n\n"
    chapters = "\n\n\n".join(f"CHAPTER {number}\n\n\n{LONG}" for number in ("I", "II", "III"))
    end = "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*\n\n\n"
    document = read(tmp_path, "ferry12.txt", notice + end + chapters)
    assert (document.title, document.author) == ("The Grey Ferry", "Edith Vane")


@pytest.mark.parametrize("longer", [0, 1])
def test_two_books_in_one_text_are_two_books(longer: int, tmp_path: Path):
    """The second was the licence of the first, or the first the front matter of the second."""
    names = [["CHAPTER I", "CHAPTER II", "CHAPTER III"], ["CHAPTER 1", "CHAPTER 2", "CHAPTER 3"]]
    names[longer] += (
        ["CHAPTER 4", "CHAPTER 5", "CHAPTER 6"] if longer else ["CHAPTER IV", "CHAPTER V", "CHAPTER VI"]
    )
    document = read(tmp_path, "two.txt", gutenberg("The Lake", names[0]) + gutenberg("The Sea", names[1]))
    assert titles(document) == [*names[0], *names[1]]
    assert "".join(titles(document, "back")).count("licence") == 2
    assert document.title == "The Lake"


# ---- titles and signs ----


def test_title_of_question_marks_is_none(tmp_path: Path):
    """Titles that lost their letters to an encoding: "???"."""
    page = f"<html><head><title>???</title></head><body><p>{PROSE}</p></body></html>"
    assert read(tmp_path, "lake.html", page).title == "lake"


@pytest.mark.parametrize(
    ("top", "title"),
    [
        ("THE GREY FERRY\nA Tale of the Lake", "THE GREY FERRY"),
        ("THE GREY FERRY\n\nCONTENTS\n\nCHAPTER I\nCHAPTER II\nCHAPTER III", "THE GREY FERRY"),
        ("EDITH VANE\n\nTHE GREY FERRY", "lake"),  # which of them?
        ("Edith Vane\n\nFor my mother", "lake"),
        ("The Grey Ferry", "The Grey Ferry"),
        (f"THE BOY\n\n{LONG}", "lake"),  # a first story's
        ("PREFACE", "lake"),
    ],
)
def test_a_line_in_capitals_or_alone_above_the_first_chapter_is_the_title(
    top: str, title: str, tmp_path: Path
):
    """A play was called by its file's name."""
    chapters = "\n\n\n".join(f"CHAPTER {number}\n\n\n{LONG}" for number in ("I", "II", "III"))
    book = read(tmp_path, "lake.txt", f"{top}\n\n\n{chapters}")
    assert book.title == title
    assert not (top == title and book.outside), "a title is nothing that was not read"


def test_powers_of_a_page_are_no_notes(tmp_path: Path):
    """E = mc[2]."""
    page = "<p>E = m·c<sup>2</sup>, 12 km<sup>2</sup> and x<sup>3</sup>; he said so.<sup>4</sup></p>"
    text = read(tmp_path, "powers.html", f"<html><body>{page}<p>{PROSE}</p></body></html>").text
    assert text.startswith("E = m·c^2, 12 km^2 and x^3; he said so.[4]")


def test_powers_in_print_are_no_notes():
    pieces = []
    for place, (before, raised) in enumerate([("12 km", "2"), ("so m·c", "2"), ("he said", "4")]):
        pieces.append(LinePiece(before, 60, 90, 500 - 14 * place, 10, 0))
        pieces.append(LinePiece(raised, 90.5, 94, 503 - 14 * place, 6, 0))
    assert [line.text for line in merged_pieces(pieces)] == [
        "12 km^2",
        "so m·c^2",
        f"he said{NOTE_OPEN}4{NOTE_CLOSE}",
    ]
