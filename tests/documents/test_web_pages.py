"""Saved web pages: the article is read, what a site puts around it is left out and named, and a person may
have all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.documents import Document, read_document, read_safely
from tests.support.saved_pages import (
    Saved,
    blog,
    book_parts,
    chinese,
    documentation,
    encyclopedia,
    forum,
    links_of,
    news,
    page_of,
    paragraphs_of,
    prose,
    share_and_recall,
    whole_book,
)


def read(folder: Path, page: str) -> Document:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    return read_document(path)


@pytest.mark.parametrize(
    ("made", "title"),
    [
        (news, "The Light on the Holm"),
        (blog, "The Thursday Clock"),
        (forum, "Which lamp is this?"),
        (documentation, "Winding a clock"),
        (encyclopedia, "Holm Lighthouse"),
        (chinese, "岛上的灯"),
    ],
)
def test_a_saved_page_is_its_article(made: Callable[[], Saved], title: str, tmp_path: Path):
    """Half of what was read of a newspaper's page were menus, teasers and comments."""
    page, text = made()
    document = read(tmp_path, page)
    found, recall = share_and_recall(document.text, text)
    assert document.article and document.title == title
    assert recall == 1 and found > 0.97, (found, recall)


def test_what_was_left_out_is_named_and_there_for_the_asking(tmp_path: Path):
    page, text = news()
    document = read(tmp_path, page)
    (said,) = document.warnings
    assert "words" in said and "“Most read”" in said and "“More on this subject”" in said
    whole = document.read_otherwise()
    assert not whole.article and "Great read." in whole.text and "Politics" in whole.text
    again = whole.read_otherwise()
    assert whole.sha256 == document.sha256 and again.article
    assert (again.text, again.sections) == (document.text, document.sections)
    assert share_and_recall(whole.text, text)[0] < 0.7  # as it was read before


def test_the_parts_of_a_page_are_its_chapters(tmp_path: Path):
    """Nothing of a site is a chapter, and the page's marks beside headings are no words of them."""
    titles = [section.title for section in read(tmp_path, encyclopedia()[0]).sections]
    assert [title for title in titles if title in ("History", "Construction", "Keepers", "Legacy")] == [
        "History",
        "Construction",
        "Keepers",
        "Legacy",
    ]
    assert not {"Navigation", "Most read"}.intersection(titles)


def test_notes_of_an_article_stand_behind_their_paragraph(tmp_path: Path):
    page, (first, *_text) = news()
    assert page.count(f"{first}</p>") == 1 and page.count("</article>") == 1
    kept = "The lamp that burned until 1863 is kept in the school of Saltby."
    note = f'<li id="n1">{kept} <a href="#r1">↑</a></li>'
    raised = f'{first}<sup id="r1"><a href="#n1">1</a></sup></p>'
    page = page.replace(f"{first}</p>", raised).replace("</article>", f"<ol>{note}</ol></article>")
    document = read(tmp_path, page)
    assert document.article
    for text in (document.text, document.read_otherwise().text):
        assert f"{first}[1]\n\n[1] {kept}\n\n" in text


def test_a_book_in_one_page_stays_whole(tmp_path: Path):
    page, text = whole_book()
    document = read(tmp_path, page)
    assert not document.article and not document.other_reading and not document.warnings
    assert share_and_recall(document.text, text)[1] == 1 and "the sea is wide" in document.text
    titles = [part[2:] for part in book_parts() if part.startswith("# ")]
    assert [section.title for section in document.chapters] == titles


def test_a_page_of_which_the_library_finds_too_little_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Text must not be lost with the menus: here only a twelfth of it is called the article."""
    import trafilatura

    text = prose(0, 12)
    page = page_of("Lights", f"<nav>{links_of([*'abcdefghij'])}</nav>{paragraphs_of(text)}")
    monkeypatch.setattr(trafilatura, "extract", lambda *_given, **_options: text[0])
    document = read(tmp_path, page)
    assert not document.article and share_and_recall(document.text, text)[1] == 1


def test_text_that_the_library_passes_over_in_the_midst_of_the_article_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import trafilatura

    page, text = news()
    monkeypatch.setattr(trafilatura, "extract", lambda *_given, **_options: f"{text[0]}\n{text[-1]}")
    document = read(tmp_path, page)
    found, recall = share_and_recall(document.text, text)
    assert recall == 1 and found > 0.95 and "Ferry company" not in document.text


@pytest.mark.parametrize(
    "more", ["<i>x</i>" * 30_000, "<p>" + "word " * 400_001], ids=["many elements", "much text"]
)
def test_a_page_too_large_for_an_article_is_not_searched_for_one(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The library takes half a minute for a page built to be slow; then the book would not open at all."""
    import trafilatura

    monkeypatch.setattr(trafilatura, "extract", lambda *_given, **_options: pytest.fail("searched"))
    assert not read(tmp_path, news()[0].replace("</main>", f"{more}</main>")).article


def test_the_reading_process_may_use_the_library(tmp_path: Path):
    """It can write no file and reach no network, whatever an import tries."""
    path = tmp_path / "page.html"
    path.write_text(news()[0], encoding="utf-8")
    document = read_safely(path)
    assert document == read_document(path) and document.article


def test_a_cut_book_carries_nothing_of_what_was_left_out(tmp_path: Path):
    """Nothing from behind a spoiler limit may travel with the text before it."""
    document = read(tmp_path, encyclopedia()[0])
    assert document.other_reading
    assert not document.up_to(1).other_reading and not document.only([1]).other_reading
