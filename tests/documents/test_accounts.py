"""Which account of a book's chapters is believed: the file's own, a printed list, lines of the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.document_expectations import expectations, wrong
from tests.support.documents_made import epub, read, titles
from tests.tiers import first

SHARED = (
    "made-custom-outline-style.docx",
    "made-style-based-on-heading.docx",
    "made-word-book.rtf",
    "made-word-footnotes-24.docx",
    "robin-hood.pdf",
    "totc-pf.pdf",
    "2city12.txt",
    "wotw.txt",
    "idpf-childrens-literature.epub",
)
PROSE = "The rain went on and nobody came to the door of the house by the lake that day, or the day after. "
LONG = PROSE * 20  # 420 words
NAMES = ["The Boy", "The Wolf", "The Sea", "The House"]


@pytest.mark.parametrize("name", first(SHARED, 4))  # two of the others take seconds
def test_shared_file_opens_with_its_own_chapters(name: str, shared_data: Path):
    wanted = expectations(shared_data / "hard2")
    assert set(wanted) == set(SHARED)
    assert wrong(shared_data / "hard2" / name, wanted[name]) == []


def listed(names: list[str]) -> str:
    """Entries of a navigation document for files of these names."""
    return "".join(f'<li><a href="{name}.xhtml">{name}</a></li>' for name in names)


def test_notes_and_index_set_apart_do_not_cost_the_contents_the_book(tmp_path: Path):
    """Formulas "3) (x. x) y" became the chapters, because they alone "covered" the index."""
    formulas = iter(range(1, 99))
    pages = {f"{name}.xhtml": f"<p>{name}</p>" + f"<p>{LONG}</p><p>{{}}) (x. x) y</p>" * 4 for name in NAMES}
    pages = {name: page.format(*(next(formulas) for _ in range(4))) for name, page in pages.items()}
    pages |= {f"{name}.xhtml": f"<p>{LONG * 4}</p>" for name in ("Notes", "Index")}
    document = read(tmp_path, "lambda.epub", epub(pages, nav=listed([*NAMES, "Notes", "Index"])))
    assert titles(document) == NAMES and titles(document, "back") == ["Notes", "Index"]


def test_sections_of_a_licence_do_not_cost_the_contents_the_book(tmp_path: Path):
    """A navigation that covers a book lost to three "Chapter" lines and five sections of the licence."""
    labels = {"The Boy": "<p>Chapter I</p>", "The Wolf": "<p>Chapter II</p>", "The Sea": "<p>Chapter III</p>"}
    pages = {f"{name}.xhtml": f"{labels.get(name, '')}<p>{name}</p><p>{LONG * 3}</p>" for name in NAMES}
    pages["Licence.xhtml"] = "".join(
        f"<p>Section {n}. Terms of Use</p><p>{PROSE * 15}</p>" for n in range(1, 6)
    )
    document = read(tmp_path, "robin.epub", epub(pages, nav=listed([*NAMES, "Licence"])))
    assert [title.rpartition(". ")[2] for title in titles(document)] == NAMES
    assert titles(document, "back") == ["Licence"]


def test_entry_over_the_whole_book_is_no_chapter(tmp_path: Path):
    """A single "Section IV" above all stories made one chapter of the book, and no contents of the file."""
    pages = {
        "a.xhtml": "<h1>Section IV</h1>"
        + "".join(
            f'<h3 id="s{n}">{n}</h3><h4>{name}</h4><p>{LONG * 3}</p>' for n, name in enumerate(NAMES, 190)
        )
    }
    inside = "".join(f'<li><a href="a.xhtml#s{n}">{n} {name}</a></li>' for n, name in enumerate(NAMES, 190))
    nav = f'<li><a href="a.xhtml">Section IV</a><ol>{inside}</ol></li>'
    wanted = [f"{n} {name}" for n, name in enumerate(NAMES, 190)]
    assert titles(read(tmp_path, "children.epub", epub(pages, nav=nav))) == wanted


@pytest.mark.parametrize("picture", ["The Castle, after a Drawing", "Part One"])
def test_picture_page_gives_its_name_to_no_chapter(picture: str, tmp_path: Path):
    """The first chapter was called as the plate before it, or "Part One. The Boy"."""
    pages = {"plate.xhtml": '<img src="p.jpg" alt=""/>'}
    pages |= {f"{name}.xhtml": f"<h2>{name}</h2><p>{LONG}</p>" for name in NAMES}
    nav = f'<li><a href="plate.xhtml">{picture}</a></li>' + listed(NAMES)
    assert titles(read(tmp_path, "plates.epub", epub(pages, nav=nav))) == NAMES


def test_title_page_that_is_a_picture_names_the_text_behind_it(tmp_path: Path):
    """Chapters may open with a drawn title: no other entry points at their text."""
    pages = {}
    for name in NAMES:
        pages |= {f"{name}.xhtml": '<img src="p.jpg" alt=""/>', f"{name} text.xhtml": f"<p>{LONG}</p>"}
    assert titles(read(tmp_path, "drawn.epub", epub(pages, nav=listed(NAMES)))) == NAMES


BOOKS = {
    "Book the First--Rain": ["The Boy", "The Wolf", "The Inn"],
    "Book the Second--Sun": ["The Sea", "The End"],
}


def test_contents_list_in_the_text_is_believed_and_is_no_chapter(tmp_path: Path):
    """It lists "Chapter I The Boy", the body says "I" and "The Boy": the books were read as the chapters, and
    the list's first lines as two more.
    """
    roman = ["I", "II", "III"]
    lines = ["A TALE", "Contents"]
    for book, names in BOOKS.items():
        lines += [book, "\n".join(f"Chapter {roman[n]} {name}" for n, name in enumerate(names))]
    for book, names in BOOKS.items():
        lines.append(book)
        for number, name in enumerate(names):
            lines += [roman[number], name, LONG * 2]
    document = read(tmp_path, "tale.txt", "\n\n\n".join(lines))
    wanted = [name for names in BOOKS.values() for name in names]
    assert [title.split(" ", 2)[-1] for title in titles(document)] == wanted
    assert titles(document, "part") == list(BOOKS)
