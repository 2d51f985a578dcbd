"""Chapters are the chapters a reader would count, whichever of a book's accounts of them is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.documents import Document, read_document
from tests.support.documents_made import BODY, epub, word_file

PROSE = "The rain went on and nobody came to the door of the house by the lake that day, or the day after. "
LONG = PROSE * 20  # 420 words


def read(folder: Path, name: str, data: str | bytes) -> Document:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_document(path)


def titles(document: Document) -> list[str]:
    return [section.title for section in document.chapters]


def text(*lines: str) -> str:
    return "\n\n\n".join(lines)


ROMAN = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"]

# ---- a contents list of the file ----


def test_entry_of_a_picture_page_takes_no_chapters_name(tmp_path: Path):
    """ "Cover" fell on the first chapter, renamed it and left it out as front matter."""
    pages = {"cover.xhtml": '<img src="c.jpg" alt=""/>'} | {
        f"{n}.xhtml": f"<h2>{n}</h2><p>{LONG}</p>" for n in ("The Boy", "The Wolf", "The Sea")
    }
    nav = "".join(
        f'<li><a href="{page}">{"Cover" if page == "cover.xhtml" else page[:-6]}</a></li>' for page in pages
    )
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == ["The Boy", "The Wolf", "The Sea"]


@pytest.mark.parametrize("part_page", ['<img src="p.jpg" alt=""/>', "<h1>Part {}</h1>"])
def test_first_chapter_of_a_part_stays_one(part_page: str, tmp_path: Path):
    pages, nav = {}, ""
    for part in (1, 2):
        pages[f"p{part}.xhtml"] = part_page.format(part)
        inside = ""
        for number in (2 * part - 1, 2 * part):
            pages[f"c{number}.xhtml"] = f"<h2>Name {number}</h2><p>{LONG}</p>"
            inside += f'<li><a href="c{number}.xhtml">Name {number}</a></li>'
        nav += f'<li><a href="p{part}.xhtml">Part {part}</a><ol>{inside}</ol></li>'
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == [f"Name {n}" for n in (1, 2, 3, 4)]


def test_part_that_begins_where_its_first_chapter_does_gives_way(tmp_path: Path):
    pages = {f"c{n}.xhtml": f"<h2>Name {n}</h2><p>{LONG}</p>" for n in (1, 2, 3, 4)}
    nav = "".join(
        f'<li><a href="c{first}.xhtml">Part {part}</a><ol>'
        f'<li><a href="c{first}.xhtml">Name {first}</a></li>'
        f'<li><a href="c{first + 1}.xhtml">Name {first + 1}</a></li></ol></li>'
        for part, first in ((1, 1), (2, 3))
    )
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == [f"Name {n}" for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("name", ["Chapter {}: Water", "{}. Water", "Water {}"])
@pytest.mark.parametrize("introduction", ["", f"<p>{PROSE * 5}</p>"])
def test_chapters_between_parts_and_sections_are_the_chapters(name: str, introduction: str, tmp_path: Path):
    """Today three parts, one of 202,714 words: chapters have introductions, so they did not look divided."""
    pages, nav, wanted = {}, "", []
    for part in (1, 2, 3):
        pages[f"p{part}.xhtml"] = f"<h1>Part {part}</h1>"
        inside = ""
        for number in range(4 * part - 3, 4 * part + 1):
            title = name.format(number)
            wanted.append(title)
            sections = "".join(f'<h3 id="s{s}">On {s} of {number}</h3><p>{LONG}</p>' for s in "ab")
            pages[f"c{number}.xhtml"] = f'<h2 id="c">{title}</h2>{introduction}{sections}'
            below = "".join(f'<li><a href="c{number}.xhtml#s{s}">On {s} of {number}</a></li>' for s in "ab")
            inside += f'<li><a href="c{number}.xhtml#c">{title}</a><ol>{below}</ol></li>'
        nav += f'<li><a href="p{part}.xhtml">Part {part}</a><ol>{inside}</ol></li>'
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == wanted


def test_chapters_with_sections_stay_chapters(tmp_path: Path):
    pages, nav = {}, ""
    for number in range(1, 6):
        sections = "".join(f'<h3 id="s{s}">{number}.{s} On it</h3><p>{LONG}</p>' for s in (1, 2, 3))
        pages[f"c{number}.xhtml"] = f"<h2>{number} Water</h2>{sections}"
        below = "".join(f'<li><a href="c{number}.xhtml#s{s}">{number}.{s} On it</a></li>' for s in (1, 2, 3))
        nav += f'<li><a href="c{number}.xhtml">{number} Water</a><ol>{below}</ol></li>'
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == [f"{n} Water" for n in range(1, 6)]


def test_contents_of_two_entries_lose_against_twelve_chapters(tmp_path: Path):
    """As converters leave behind: one entry holds the whole book."""
    chapters = "".join(f"<p>CHAPTER {number}</p><p>{LONG}</p>" for number in ROMAN)
    pages = {"a.xhtml": f"<p>Title page</p>{BODY}", "b.xhtml": chapters}
    nav = '<li><a href="a.xhtml">Start</a></li><li><a href="b.xhtml">Book</a></li>'
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == [f"CHAPTER {n}" for n in ROMAN]


# ---- printed contents and headings in plain text ----


def test_printed_contents_do_not_hide_chapters_that_begin_again_in_every_book(tmp_path: Path):
    """War and Peace had 4 chapters of 365: the list's CHAPTER I was found once."""
    books = [("BOOK ONE: 1805", 5), ("BOOK TWO: 1806", 4), ("FIRST EPILOGUE: 1813", 3)]
    chapters = [[f"CHAPTER {number}" for number in ROMAN[:count]] for _book, count in books]
    listed = [line for (book, _c), own in zip(books, chapters, strict=True) for line in (book, *own)]
    body = [
        line
        for (book, _c), own in zip(books, chapters, strict=True)
        for line in (book, *(part for title in own for part in (title, LONG)))
    ]
    document = read(tmp_path, "war.txt", text("WAR", "CONTENTS", *listed, *body))
    assert titles(document) == [title for own in chapters for title in own]
    parts = [section.title for section in document.sections if section.kind == "part"]
    assert parts == [book for book, _count in books]


def test_headings_that_change_their_form_midway(tmp_path: Path):
    """Sherlock Holmes: "ADVENTURE VI. ..." is followed by "VII. THE ADVENTURE OF ..."."""
    names = [f"ADVENTURE {n}. THE RED LEAGUE" for n in ROMAN[:6]]
    names += [f"{n}. THE ADVENTURE OF THE LAKE" for n in ROMAN[6:]]
    body = [part for name in names for part in (name, LONG)]
    assert titles(read(tmp_path, "holmes.txt", text("HOLMES", *body))) == names


def test_chapters_in_brackets_below_numbered_parts(tmp_path: Path):
    """Ulysses: "— I —" above "[ 1 ]" to "[ 3 ]"."""
    body = []
    for part, numbers in (("I", (1, 2, 3)), ("II", range(4, 12)), ("III", (12, 13, 14))):
        body += [f"— {part} —", *(line for n in numbers for line in (f"[ {n} ]", LONG))]
    document = read(tmp_path, "ulysses.txt", text("ULYSSES", *body))
    assert len(document.chapters) == 14
    assert sum(section.kind == "part" for section in document.sections) == 3


def test_entries_of_the_contents_are_no_chapters(tmp_path: Path):
    """Middlemarch: what stands between the list's last line and the book was a chapter of its own."""
    names = ["PRELUDE", *(f"CHAPTER {number}" for number in ROMAN), "FINALE"]
    body = [part for name in names for part in (name, LONG)]
    document = read(tmp_path, "m.txt", text("MIDDLEMARCH", "Contents", *names, "To a Friend", *body))
    assert titles(document) == names


def test_headings_without_blank_lines_around_them(tmp_path: Path):
    lines = [PROSE[:70].strip(), PROSE[:66].strip(), "and so it ended."]
    body = "\n".join(
        line for number in ROMAN for line in (f"CHAPTER {number}", *(f"    {lines[0]}", *lines[1:]) * 12)
    )
    assert titles(read(tmp_path, "dense.txt", body)) == [f"CHAPTER {number}" for number in ROMAN]


def test_labels_win_against_a_single_styled_heading(tmp_path: Path):
    """Pride and Prejudice in Word: the title is a heading, sixty chapters are plain paragraphs."""
    paragraphs = [("Heading1", "Pride"), ("Heading1", "Note")]
    for number in range(1, 13):
        paragraphs += [("", f"Chapter {number}"), ("", LONG)]
    document = read(tmp_path, "pride.docx", word_file(paragraphs))
    assert titles(document) == [f"Chapter {number}" for number in range(1, 13)]


def test_lines_set_in_bold_by_hand_are_headings(tmp_path: Path):
    """A book in Word whose author never used a heading style was cut into even sections."""
    names = ["The Long Winter", "A House by the Sea", "What the Doctor Knew", "Letters Home"]
    body = "".join(f"<p><b>{name}</b></p><p><b>Then</b> it began. {LONG}</p><p>{LONG}</p>" for name in names)
    assert titles(read(tmp_path, "page.html", f"<html><body>{body}</body></html>")) == names


@pytest.mark.parametrize("style", ["chapter-title", "calibre3 chaptertitle", "h2", "ChapterHead"])
def test_paragraphs_of_a_class_called_title_are_headings(style: str, tmp_path: Path):
    names = ["The Long Winter", "A House by the Sea", "What the Doctor Knew"]
    pages = {
        f"{n}.xhtml": f'<div class="chapter"><p class="{style}">{name}</p><p>He came.</p><p>{LONG}</p></div>'
        for n, name in enumerate(names)
    }
    assert titles(read(tmp_path, "book.epub", epub(pages))) == names


def test_bold_names_of_speakers_are_no_chapters(tmp_path: Path):
    talk = "".join(f"<p><b>{who}</b></p><p>{PROSE}</p>" for who in ("ANNA", "BERT") * 120)
    document = read(tmp_path, "page.html", f"<html><body>{talk}</body></html>")
    assert len(document.chapters) < 20


def test_front_matter_that_belongs_to_the_book_is_read(tmp_path: Path):
    names = ["COPYRIGHT", "DEDICATORY EPISTLE", "PRELUDE", *(f"CHAPTER {n}" for n in ROMAN), "EPILOGUE"]
    pages = {f"{n}.xhtml": f"<h2>{name}</h2><p>{LONG}</p>" for n, name in enumerate(names)}
    nav = "".join(f'<li><a href="{n}.xhtml">{name}</a></li>' for n, name in enumerate(names))
    assert titles(read(tmp_path, "book.epub", epub(pages, nav=nav))) == names[1:]


@pytest.mark.parametrize(
    "heading",
    ["Editor's Note", "EDITOR’S NOTE.", "A Note on the Text", "To the Reader", "A Word Before"]
    + [
        "Translator's Preface",
        "Vorbemerkung des Herausgebers",
        "An den Leser",
        "Note de l’auteur",
        "Al lettore",
    ],
)
def test_what_somebody_wrote_for_the_reader_is_read(heading: str, tmp_path: Path):
    """A note of 60 words by the letters' editor was taken for a publisher's, and no question reached it."""
    note = "These letters were found in a hatbox. " * 8
    letters = [f"<h2>{word} Letter</h2><p>{LONG}</p>" for word in ("First", "Second", "Third", "Fourth")]
    pages = {"n.xhtml": f"<h2>{heading}</h2><p>{note}</p>"}
    pages |= {f"{n}.xhtml": letter for n, letter in enumerate(letters)}
    document = read(tmp_path, "book.epub", epub(pages))
    assert titles(document)[0] == heading and len(titles(document)) == 5


@pytest.mark.parametrize("heading", ["Transcriber's Note", "By the Same Author", "Copyright", "The Lake"])
def test_what_a_publisher_put_before_a_book_is_set_apart(heading: str, tmp_path: Path):
    pages = {"n.xhtml": f"<h2>{heading}</h2><p>{PROSE}</p>"}
    pages |= {f"{n}.xhtml": f"<h2>{n}. Water</h2><p>{LONG}</p>" for n in range(1, 5)}
    assert titles(read(tmp_path, "book.epub", epub(pages))) == [f"{n}. Water" for n in range(1, 5)]


@pytest.mark.parametrize(
    "heading", ["DRAMATIS PERSONAE", "The Persons of the Play", "Personen.", "Characters"]
)
def test_the_persons_of_a_play_are_read(heading: str, tmp_path: Path):
    """Who owns the quay stood there alone, and was not found: it was front matter."""
    acts = [
        text(f"ACT {act}", *(f"SCENE {n}. A quay.\n\n\n{LONG}" for n in ("I", "II"))) for act in ROMAN[:3]
    ]
    cast = "NED RUDD, keeper of the light\nMRS. TULL, owner of the quay"
    document = read(tmp_path, "play.txt", text("THE LIGHT", heading, cast, *acts))
    assert titles(document) == [heading, *["SCENE I. A quay.", "SCENE II. A quay."] * 3]
    assert cast in document.only({1}).text


# ---- Chinese and Japanese ----

HAN = "此开卷第一回也。作者自云：因曾历过一番梦幻之后，故将真事隐去，而借通灵之说，撰此石头记一书也。" * 12


@pytest.mark.parametrize(
    "heading", ["第{}回　梦幻", "第{}章", "{}", "{}、梦幻", "卷{}　梦幻", "第{digit}话", "{digit}"]
)
def test_chinese_and_japanese_headings_of_both_kinds_of_numerals(heading: str, tmp_path: Path):
    names = [
        heading.format(numeral, digit=digit) for digit, numeral in enumerate("一二三四五六七八九十", start=1)
    ]
    document = read(tmp_path, "book.txt", text("红楼梦", *(part for name in names for part in (name, HAN))))
    assert [title.replace(" ", "") for title in titles(document)] == [n.replace("　", "") for n in names]


def test_chinese_words_are_counted_by_characters(tmp_path: Path):
    """A book of 50,000 characters was said to have 320 words."""
    assert read(tmp_path, "book.txt", "话说天下大势，分久必合 Python 三千。").words == 13
