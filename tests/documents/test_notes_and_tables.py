"""Notes stand behind the paragraph that refers to them, and rows of tables are lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents_made import BODY, epub, read, titles

ENDNOTES = (
    '<h2>Notes</h2><p id="n1">1. In 1863.</p>'
    '<p id="n2">2. It is in the school. <a href="a.xhtml#r2">↩</a></p>'
)
LISTED = (
    '<section epub:type="endnotes"><h2>Notes</h2><ol><li id="n1"><p>In 1863.</p></li>'
    '<li id="n2"><p>It is in the school.</p></li></ol></section>'
)
CLASSED = (
    '<h2>Notes</h2><div class="footnote"><p><a id="n1"></a><a href="a.xhtml#r1">[1]</a> In 1863.</p></div>'
    '<div class="footnote"><p><a id="n2"></a><a href="a.xhtml#r2">[2]</a> It is in the school.</p></div>'
)
BY_CHAPTER = (
    '<h2>Notes</h2><h3>One</h3><p id="n1">1. In 1863.</p><h3>Two</h3><p id="n2">2. It is in the school.</p>'
)
NAMED = '<a epub:type="noteref" id="r{0}" href="notes.xhtml#n{0}"><sup>{0}</sup></a>'
PLAIN = '<a epub:type="noteref" href="notes.xhtml#n{0}">{0}</a>'
RAISED = '<sup><a id="r{0}" href="notes.xhtml#n{0}">{0}</a></sup>'


def with_notes(reference: str, notes: str) -> bytes:
    first, second = (reference.format(number) for number in (1, 2))
    pages = {
        "a.xhtml": f"<h2>One</h2><p>He came back.{first} Then it rained.</p>{BODY}",
        "b.xhtml": f"<h2>Two</h2>{BODY}<p>They had a piano.{second}</p><p>Nobody played.</p>",
        "notes.xhtml": notes,
    }
    nav = "".join(
        f'<li><a href="{page}">{title}</a></li>'
        for page, title in zip(pages, ("One", "Two", "Notes"), strict=True)
    )
    return epub(pages, nav=nav)


@pytest.mark.parametrize(
    ("reference", "notes"),
    [
        (NAMED, ENDNOTES),
        (NAMED, LISTED),
        (NAMED, BY_CHAPTER),
        (PLAIN, ENDNOTES),
        (RAISED, ENDNOTES),
        (RAISED, CLASSED),
    ],
)
def test_endnotes_of_an_epub_stand_behind_their_paragraph(reference: str, notes: str, tmp_path: Path):
    """No question reached them: they were a section behind the book."""
    document = read(tmp_path, "book.epub", with_notes(reference, notes))
    assert "He came back.[1] Then it rained.\n\n[1] In 1863.\n\nThe boats" in document.text
    assert "They had a piano.[2]\n\n[2] It is in the school.\n\nNobody played." in document.text
    assert [one.title for one in document.sections] == ["One", "Two"] and "Notes" not in document.text


def test_a_note_interrupts_no_sentence(tmp_path: Path):
    """Lines of a poem are paragraphs to the file."""
    pages = {
        "a.xhtml": f"<h2>One</h2><p>Son of man,{RAISED.format(1)}</p><p>You cannot say.</p>{BODY}",
        "notes.xhtml": '<h2>Notes</h2><p id="n1">1. In 1863.</p>',
    }
    text = read(tmp_path, "book.epub", epub(pages)).text
    assert "Son of man,[1]\n\nYou cannot say.\n\n[1] In 1863.\n\n" in text


def test_a_note_that_nothing_refers_to_stays_with_its_heading(tmp_path: Path):
    notes = f'{ENDNOTES}<p id="n3">3. By the lake.</p>'
    document = read(tmp_path, "book.epub", with_notes(NAMED, notes))
    assert titles(document, "back") == ["Notes"] and document.text.endswith("Notes\n\n3. By the lake.")


def test_numbers_of_an_index_fetch_nothing(tmp_path: Path):
    """They are links of numbers to paragraphs, too, of which some may begin with a number."""
    see = 'as in chapter <a href="c.xhtml#p3">3</a>'
    pages = {
        "a.xhtml": f'<h2>One</h2><p id="p1">1 boat lay there.</p>{BODY}',
        "b.xhtml": f'<h2>Two</h2><p id="p2">2 boats lay there, {see}.</p>{BODY}',
        "c.xhtml": f'<h2>Three</h2><p id="p3">3 boats lay there.</p>{BODY}',
        "i.xhtml": '<h2>Index</h2><p>Boats, <a href="a.xhtml#p1">1</a>, <a href="b.xhtml#p2">2</a></p>',
    }
    text = read(tmp_path, "book.epub", epub(pages)).text
    assert "[" not in text and text.index("1 boat") < text.index("2 boats") < text.index("3 boats")


def test_a_page_that_begins_in_a_note_begins_behind_it(tmp_path: Path):
    """The note stands earlier now, and its page must not."""
    at_seven, at_eight, at_nine = (f'<span epub:type="pagebreak" title="{page}"/>' for page in (7, 8, 9))
    pages = {
        "a.xhtml": f"<h2>One</h2><p>{at_seven}He came.{RAISED.format(1)}</p>{BODY}",
        "notes.xhtml": f'<h2>Notes</h2><p id="n1">{at_eight}1. In 1863.</p><p>{at_nine}End.</p>',
    }
    document = read(tmp_path, "book.epub", epub(pages))
    assert [document.page_at(document.text.index(word)) for word in ("In 1863", "boats")] == ["7", "7"]


HTML_NOTED = '<sup><a href="#n{0}">{0}</a></sup>'
LEADS_BACK = '<li id="n{0}">{1} <a href="#r{0}">↩</a></li>'


@pytest.mark.parametrize(
    ("reference", "notes"),
    [
        (HTML_NOTED, '<p id="n1">1. In 1863.</p><p id="n2">2. It is in the school.</p>'),
        (HTML_NOTED, '<p><a id="n1"></a>[1] In 1863.</p><p><a id="n2"></a>[2] It is in the school.</p>'),
        (
            '<sup id="r{0}"><a href="#n{0}">{0}</a></sup>',
            f"<ol>{LEADS_BACK.format(1, 'In 1863.')}{LEADS_BACK.format(2, 'It is in the school.')}</ol>",
        ),
        ("[{0}]", "<p>[1] In 1863.</p><p>[2] It is in the school.</p>"),
        ("<sup>{0}</sup>", "<p>1. In 1863.<br/>2. It is in the school.</p>"),
        ("[{0}]", "<h3>One</h3><p>1. In 1863.</p><h3>Two</h3><p>2. It is in the school.</p>"),
    ],
    ids=["numbered", "bracketed", "leading back", "no links", "no links, one paragraph", "by chapter"],
)
def test_endnotes_of_a_page_of_html_stand_behind_their_paragraph(reference: str, notes: str, tmp_path: Path):
    """They were a section behind the book, which no question reached."""
    first, second = (reference.format(number) for number in (1, 2))
    page = (
        f"<h2>One</h2><p>He came back.{first} Then it rained.</p>{BODY}"
        f"<h2>Two</h2>{BODY}<p>They had a piano.{second}</p><p>Nobody played.</p>"
    )
    document = read(tmp_path, "book.html", f"<html><body>{page}<h2>Notes</h2>{notes}</body></html>")
    assert "He came back.[1] Then it rained.\n\n[1] In 1863.\n\nThe boats" in document.text
    assert "They had a piano.[2]\n\n[2] It is in the school.\n\nNobody played." in document.text
    assert [one.title for one in document.sections] == ["One", "Two"] and "Notes" not in document.text


def test_a_sign_that_links_to_its_note_brings_it_along(tmp_path: Path):
    page = f'<h2>One</h2><p>He came.<a href="#n">*</a></p>{BODY}<h2>Notes</h2><p id="n">* In 1863.</p>'
    text = read(tmp_path, "book.html", f"<html><body>{page}</body></html>").text
    assert "He came.*\n\n[*] In 1863.\n\nThe boats" in text


PROSE = "The boats lay at anchor and nobody spoke. " * 10
CHAPTERS = (
    f"CHAPTER I\n\nHe came back.[1] Then it rained.\n\n{PROSE}\n\n",
    f"CHAPTER II\n\n{PROSE}\n\nThey had a piano.[2]\n\nNobody played.\n\n",
)
ASIDE = "[1] In 1863.\n\n[2] It is in the school."


@pytest.mark.parametrize(
    "text",
    [
        "".join(CHAPTERS) + f"NOTES\n\n{ASIDE}\n",
        "".join(CHAPTERS) + "Endnotes:\n\n1. In 1863.\n2. It is in the school.\n",
        "".join(CHAPTERS) + f"Footnotes\n{ASIDE}\n\nINDEX\n\nBoats, 3\n\nPiano, 5\n",
        f"{CHAPTERS[0]}FOOTNOTES:\n\n[1] In 1863.\n\n{CHAPTERS[1]}FOOTNOTES:\n\n[2] It is in the school.\n",
    ],
    ids=["bracketed", "numbered", "before an index", "by chapter"],
)
def test_endnotes_of_a_plain_text_stand_behind_their_paragraph(text: str, tmp_path: Path):
    told = read(tmp_path, "book.txt", text)
    assert "He came back.[1] Then it rained.\n\n[1] In 1863.\n\nThe boats" in told.text
    assert "They had a piano.[2]\n\n[2] It is in the school.\n\nNobody played." in told.text
    assert "notes" not in told.text.lower() and titles(told) == ["CHAPTER I", "CHAPTER II"]


@pytest.mark.parametrize(
    "text",
    [
        "".join(CHAPTERS) + "Notes\n\n[1] In 1863.\n\n[3] It is in the school.\n",
        "".join(reversed(CHAPTERS)) + f"Notes\n\n{ASIDE}\n",
        "".join(CHAPTERS) + f"{ASIDE}\n",
        "".join(CHAPTERS).replace("[2]", "") + f"Notes\n\n{ASIDE}\n",
    ],
    ids=["no count", "no order", "no heading", "no reference"],
)
def test_a_list_that_may_be_no_notes_stays_where_it_is(text: str, tmp_path: Path):
    told = read(tmp_path, "book.txt", text).text
    assert told.index("It is in the school.") > told.index("Nobody played.")
    assert told.index("In 1863.") > told.index("Nobody played.")


MARKED = (
    f"# One\n\nHe came back.[^note-a] Then it rained.\n\n{PROSE}\n\n",
    f"# Two\n\n{PROSE}\n\nThey had a piano.[^1]\n\nNobody played.\n\n",
)


@pytest.mark.parametrize(
    "text",
    [
        "".join(MARKED) + "[^note-a]: In *1863*.\n[^1]: It is in\nthe school.\n",
        "".join(MARKED) + "## Notes\n\n[^1]:\n    It is\n    in the school.\n\n[^note-a]: In 1863.\n",
        f"{MARKED[0]}[^note-a]: In 1863.\n\n{MARKED[1]}[^1]: It is in the school.\n---\n",
        f"{MARKED[0]}[^note-a]: In 1863.\n\n{MARKED[1]}[^1]: It is in the school.".replace("note-a", "1"),
    ],
    ids=["at the end", "below a heading", "by chapter", "counted anew"],
)
def test_footnotes_of_markdown_stand_behind_their_paragraph(text: str, tmp_path: Path):
    """Their marks stood raw in the text, and the notes in its last chapter."""
    document = read(tmp_path, "book.md", text)
    assert "He came back.[1] Then it rained.\n\n[1] In 1863.\n\nThe boats" in document.text
    assert document.text.endswith("They had a piano.[2]\n\n[2] It is in the school.\n\nNobody played.")
    assert titles(document) == ["One", "Two"]


def test_of_a_markdown_footnote_nothing_is_lost(tmp_path: Path):
    """Several paragraphs, a note in a note, one that nothing refers to; what is code is no note."""
    notes = "[^a]: In 1863.[^b]\n\n    It rained.\n\n[^b]: Or later.\n\nThe end.\n\n[^c]: By the lake.\n"
    text = f"# One\n\nHe came.[^a] `[^a]` is [^none].\n\n{notes}\n```\n[^d]: code\n```\n"
    told = read(tmp_path, "book.md", text).text
    assert "He came.[1] `[^a]` is [^none].\n\n[1] In 1863.[2]\n\nIt rained.\n\n[2] Or later." in told
    assert told.endswith("The end.\n\n[3] By the lake.\n\n```\n[^d]: code\n```")


TABLE = (
    "<table><tr><th>Year</th><th>Oil</th><th>Gallons burned</th></tr>"
    "<tr><td><p>1848</p></td><td>colza</td><td>1,290<sup>3</sup></td></tr><tr><td></td><td></td><td></td></tr>"
    "<tr><td>1910</td><td>paraffin<br/>vapour</td><td>980</td></tr></table>"
)
ROWS = "Year | Oil | Gallons burned\n1848 | colza | 1,290[3]\n1910 | paraffin vapour | 980"


@pytest.mark.parametrize("kind", ["epub", "html"])
def test_rows_of_a_table_are_lines_with_their_cells_apart(kind: str, tmp_path: Path):
    """ "1848 colza 1,290 226" says of no number what it counts."""
    page = f"<h2>One</h2>{BODY}{TABLE}{BODY}"
    data = epub({"a.xhtml": page}) if kind == "epub" else f"<html><body>{page}</body></html>"
    assert f"\n\n{ROWS}\n\n" in read(tmp_path, f"book.{kind}", data).text


def test_rows_of_a_fictionbooks_table_are_lines(tmp_path: Path):
    table = TABLE.replace("<p>", "").replace("</p>", "").replace("<sup>3</sup>", "[3]").replace("<br/>", " ")
    section = f"<section><title><p>One</p></title>{BODY}{table}{BODY}</section>"
    book = f"<FictionBook><body>{section}</body></FictionBook>"
    assert f"\n\n{ROWS}\n\n" in read(tmp_path, "book.fb2", book).text


@pytest.mark.parametrize(
    "table",
    [
        f"<table><tr><td>I.</td><td>{'The rain went on. ' * 30}</td></tr></table>",
        "<table><tr><td><h2>Two</h2></td><td>The boats lay at anchor.</td></tr></table>",
        "<table><tr><td>The boats lay at anchor.</td></tr><tr><td>Nobody spoke.</td></tr></table>",
        '<table><tr><td><a href="#a">I.</a></td><td>The Boats</td></tr>'
        '<tr><td><a href="#b">II.</a></td><td>The Sea</td></tr></table>',
    ],
    ids=["long", "headed", "one column", "contents"],
)
def test_a_table_that_sets_a_page_or_lists_the_contents_is_no_table(table: str, tmp_path: Path):
    assert "|" not in read(tmp_path, "book.epub", epub({"a.xhtml": f"<h2>One</h2>{BODY}{table}"})).text
