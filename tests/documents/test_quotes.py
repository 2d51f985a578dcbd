"""A quotation that stands in the book is found where it stands; one that does not is said to be invented."""

from __future__ import annotations

from core.documents import Document, Section
from core.documents.locations import Locator
from core.documents.quotes import QuoteIndex, find_quotes

FRONT = "Contents\n\nThe sea was calm that night.\n\n"
ONE = (
    "Chapter 1\n\n“Call me\nIshmael,” he said—and the sea was calm that night. It wasn't cold; nobody "
    "_slept_ well-wrapped.\n\n"
)
TWO = (
    "Chapter 2\n\nA storm came. The captain sang, and the mate, who was old, wept for his ship. "
    "今天的天气很好我们去公园。"
)
TEXT = FRONT + ONE + TWO
BOOK = Document(
    title="Sea",
    author="A. Nobody",
    format="txt",
    text=TEXT,
    sections=(
        Section("Contents", 0, len(FRONT), kind="front"),
        Section("Chapter 1", len(FRONT), len(FRONT + ONE)),
        Section("Chapter 2", len(FRONT + ONE), len(TEXT)),
    ),
    page_starts=(0, len(FRONT), len(FRONT + ONE)),
    page_labels=("i", "1", "2"),
)


def only(answer: str):
    quotes = find_quotes(answer, BOOK)
    assert len(quotes) == 1, quotes
    assert answer[quotes[0].start : quotes[0].end] == quotes[0].text
    return quotes[0]


def test_quote_is_found_with_chapter_and_page():
    quote = only('He begins with "Call me Ishmael, he said" and more.')
    assert (quote.chapter, quote.page) == ("Chapter 1", "1")
    assert TEXT[quote.found : quote.found_end] == "Call me\nIshmael,” he said"


def test_dashes_quotes_spaces_case_and_emphasis_do_not_matter():
    for said in (
        "“HE SAID - and the sea”",
        "‘It wasn’t cold; nobody slept’",
        '"nobody slept well wrapped"',
        "«he said—and  the sea»",
    ):
        assert only(f"It says {said}.").found is not None, said


def test_what_the_book_does_not_say_is_not_found():
    quote = only("He cried “the whale is white as snow” there.")
    assert quote.found is None and quote.chapter is None


def test_words_must_be_whole_and_in_order():
    """A substring of a longer word, or the same words elsewhere, is not the passage."""
    assert only('"sea was calm that nigh"').found is None
    assert only('"Ishmael me call he"').found is None


def test_story_is_preferred_to_the_front_matter():
    assert only('"the sea was calm that night"').chapter == "Chapter 1"


def test_omissions_are_followed_in_order():
    quote = only("“The captain sang … wept for his ship”")
    assert (
        TEXT[quote.found : quote.found_end]
        == "The captain sang, and the mate, who was old, wept for his ship"
    )
    assert only("“wept for his ship ... The captain sang”").found is None


def test_short_words_in_quotes_are_names_not_quotations():
    assert find_quotes('The so-called "white whale" and the “Pequod”.', BOOK) == []


def test_block_quotation_and_apostrophes():
    assert (
        only("He writes:\n> It wasn't cold; nobody slept\nThat's the captain's view.").chapter == "Chapter 1"
    )


def test_chinese_is_matched_by_character():
    assert only("书中写道「天气很好我们去公园」。").chapter == "Chapter 2"


def test_index_serves_many_answers():
    index = QuoteIndex(BOOK)
    assert find_quotes('"a storm came"', index)[0].page == "2"
    assert find_quotes('"no storm came"', index)[0].found is None


def test_locator_names_chapter_and_page():
    locator = Locator(BOOK)
    assert str(locator.at(len(FRONT + ONE) + 3)) == "Chapter 2, p. 2"
