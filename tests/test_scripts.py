"""Books in Chinese, Japanese, Russian and Hebrew, from the file to the page."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from app.desk.values import ShownPassage
from app.web.reader import found_html, reader_html
from core.conversation.part_summaries import says_little, tidied
from core.documents import read_document
from core.documents.finding import Finder
from core.documents.quotes import find_quotes
from core.documents.word_count import count_words
from core.evidence.passages import sentence_spans
from core.text.language_detection import foreign, script
from core.text.levelled import LevelledText
from core.text.ranking import PartIndex, terms
from tests.support.scripts import BOOKS, Small, as_text

EACH = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.code)


def opened(book: Small, tmp_path):
    file = tmp_path / f"{book.title}.txt"
    file.write_text(as_text(book), encoding="utf-8")
    return read_document(file)


@EACH
def test_file_becomes_a_book_of_its_chapters(book: Small, tmp_path):
    """Headings of these scripts, under a name in its own letters."""
    document = opened(book, tmp_path)
    assert [section.title for section in document.chapters] == [title for title, _text in book.chapters]
    assert all(text in document.text for _title, text in book.chapters)
    assert script(document.text) == book.code and foreign(document.text)


@EACH
def test_words_and_sentences_are_counted_as_readers_do(book: Small):
    """By spaces, a Chinese chapter is one word, and one sentence."""
    told = "\n\n".join(text for _title, text in book.chapters)
    assert count_words(told) == book.words
    first = book.chapters[0][1]
    assert len(sentence_spans(first, 0, len(first))) == book.sentences


@EACH
def test_question_finds_its_chapter(book: Small):
    """A run of characters without spaces was one word, which no question has."""
    index = PartIndex([text for _title, text in book.chapters])
    first, second = index.scores(book.question)
    assert second > first


@EACH
def test_words_are_found_whatever_their_points_and_width(book: Small):
    text = as_text(book)
    (place,) = Finder(text).find(book.sought).places
    assert text[slice(*place)] == book.stands


@EACH
def test_quotation_is_found_in_the_book(book: Small, tmp_path):
    """Their own quotation marks, and no spaces to count words by."""
    document = opened(book, tmp_path)
    quoted = book.chapters[1][1].rstrip("。.")
    (quote,) = find_quotes(f"“{quoted}”", document)
    assert quote.found == document.text.index(quoted)


@EACH
def test_summary_of_a_few_sentences_is_no_empty_one(book: Small):
    """Counted by spaces, every Chinese summary said too little and was made again; its end was cut off."""
    told = book.chapters[0][1]
    assert not says_little(told, range(40), looping=False)
    assert tidied(LevelledText.plain(told + "而且" if book.code == "zh" else told), "Summarise").text == told


@EACH
def test_page_says_direction_and_script(book: Small, tmp_path):
    """Right to left by each paragraph's own letters; the language, for fonts that have them."""
    document = opened(book, tmp_path)
    page = reader_html(document, ShownPassage(0, 0))
    assert f'lang="{book.code}"' in page
    assert re.search(r'<p dir="auto" data-offset', page)


def test_neighbours_of_a_find_are_cut_where_there_is_no_space(tmp_path):
    """A line of Chinese has no spaces: the whole paragraph stood before the words, and nothing behind."""
    line = "很" * 300 + "旧地图" + "远" * 300
    file = tmp_path / "a.txt"
    file.write_text(line, encoding="utf-8")
    document = read_document(file)
    found = Finder(document.text).find("旧地图")
    reading = SimpleNamespace(wanted="旧地图", found=found, unfolded=None)
    shown = found_html(document, reading)
    assert "很" * 60 + "<mark>旧地图</mark>" + "远" * 60 in shown
    assert "很" * 61 not in shown and "远" * 61 not in shown


def test_terms_of_chinese_are_pairs_and_of_hebrew_without_points():
    assert terms("旧地图") == ["旧地", "地图"]
    assert terms("灯") == ["灯"]
    assert terms("a map 地图 of 2") == ["map", "地图"]
    assert terms("מַפָּה") == terms("מפה")
    assert terms("The levers") == terms("lever")
