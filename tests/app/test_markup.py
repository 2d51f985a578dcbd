"""Model output and book text cannot become tags; nothing of an answer is lost on its way to the page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.render.markdown import LEVELS, Citation, blocks
from app.store.turns import StoredTurn
from app.web.regions import answer_html, turn_html

TAG = re.compile(
    r"</?(?:blockquote|div|p|ul|ol|li|h3|br|strong|em|sup|span|a|button|svg|path|details|summary|small)"
    r"(?:\s+[a-zA-Z-]+=\"[^\"<>]*\")*/?>"
)
PAIRED = ("div", "p", "ul", "ol", "li", "span", "strong", "em", "a", "button", "details", "summary")
TEXTS = st.text(alphabet=st.sampled_from("ab <>&\"'*#-1.\n/=`${}é"), max_size=60)


@given(
    st.lists(st.tuples(TEXTS, st.sampled_from([*LEVELS, ""])), max_size=6),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_no_text_becomes_a_tag(pieces, start, length):
    """A book may hold <script>, and a model may repeat it."""
    cited = (Citation(start, start + length, 3, 4, 'Chapter "<1>"'),)
    asked = StoredTurn(1, "user", "".join(text for text, _ in pieces), "finished", {})
    for html in (answer_html(tuple(pieces), cited), turn_html(asked)):
        rest = TAG.sub("", html)
        assert "<" not in rest and ">" not in rest
        for tag in PAIRED:
            assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>")


@given(
    st.lists(
        st.tuples(st.text(alphabet="abc ,.", min_size=1, max_size=9), st.sampled_from(LEVELS)),
        min_size=1,
        max_size=8,
    )
)
def test_levels_do_not_change_the_words(pieces):
    shown = re.sub(r"<[^>]+>", "", answer_html(tuple(pieces)))
    assert shown == "".join(text for text, _ in pieces).rstrip()


def test_levels_paragraphs_lists_and_emphasis_across_pieces():
    html = answer_html(
        (("One **bo", "draft"), ("ld** word.\n\n- fi", "retrieval"), ("rst\n- second", "target"))
    )
    assert html.startswith(
        '<p dir="auto"><span class="lv lv-draft">One </span>'
        '<strong><span class="lv lv-draft">bo</span></strong>'
    )
    assert "**" not in html
    assert html.count("<li>") == 2 and html.count('<ul dir="auto">') == 1


def numbers_shown(text: str) -> list[tuple[int, str]]:
    """(number, words) of every numbered item, as a browser counts them."""
    found = []
    for start, items in re.findall(r'<ol start="(\d+)" dir="auto">(.*?)</ol>', answer_html(((text, ""),))):
        found += enumerate(re.findall(r"<li>(.*?)</li>", items), start=int(start))
    return found


def test_numbered_lists_keep_their_numbers():
    """Every list was shown with bullets: "the second point" had nothing to refer to."""
    assert numbers_shown("1. one\n2. two\n\n3) three") == [(1, "one"), (2, "two"), (3, "three")]
    after = "1. one\n\nBetween them.\n\n2. two\n3. three"
    assert numbers_shown(after) == [(1, "one"), (2, "two"), (3, "three")]
    assert numbers_shown("3. three\n7. seven\n8. eight") == [(3, "three"), (7, "seven"), (8, "eight")]
    assert numbers_shown("1. one\n- a bullet\n2. two") == [(1, "one"), (2, "two")]


def test_a_list_that_repeats_one_number_is_counted():
    """Markdown allows 1. 1. 1. for one, two, three."""
    assert numbers_shown("1. a\n1. b\n1. c") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_found_quotation_is_one_link_and_a_missing_one_says_so():
    text = "He said “the lamp went out” and “pigs fly”."
    first, second = text.index("the lamp"), text.index("pigs")
    html = answer_html(
        ((text[:15], "draft"), (text[15:], "target")),
        (Citation(first, first + 17, 120, 17, "Chapter 2, page 9"), Citation(second, second + 8, None)),
    )
    assert html.count("<a ") == 1 and 'data-offset="120"' in html and "Chapter 2, page 9" in html
    (said,) = re.findall(r"cite-missing.*?<sup>(.*?)</sup>", html, re.DOTALL)
    assert said and not re.search(r"[<\d]", said), "no place, and words of its own"


def test_quotations_in_a_row_stand_in_one_pair_of_marks_with_what_lies_between_left_out():
    """Two marks back to back behind every sentence are hard to read; each keeps its own place."""
    text = "“It rose.” “It fell.” So he said. “Nobody.” “I know.”"
    found = (Citation(1, 9, 0, 8), Citation(12, 20, 90, 8), Citation(35, 42, None), Citation(45, 52, 200, 7))
    shown = re.sub(r"<sup>.*?</sup>|<[^>]+>", "", answer_html(((text, ""),), found))
    assert shown == "“It rose. … It fell.” So he said. “Nobody.” “I know.”"
    assert answer_html(((text, ""),), found).count('data-offset="90"') == 1


@pytest.mark.parametrize(("second", "between"), [(9, " "), (10, " "), (11, " … "), (0, "” “")])
def test_what_follows_in_the_book_is_quoted_without_a_mark_of_omission(second: int, between: str):
    """ "…" stood between two sentences of a paragraph as between pages, and before what stands earlier."""
    text = "“It rose.” “It fell.”"
    found = (Citation(1, 9, 0, 8), Citation(12, 20, second, 8))
    shown = re.sub(r"<sup>.*?</sup>|<[^>]+>", "", answer_html(((text, ""),), found))
    assert shown == f"“It rose.{between}It fell.”"


def test_a_number_alone_is_no_item():
    """ "How many ships?" "41.": the answer was not there."""
    assert "41." in answer_html((("41.\n\nChapter 2:\n> He owned 41 ships.", ""),))
    assert [block.tag for block in blocks((("41.", ""),))] == ["p"]


def test_items_that_count_on_are_one_list():
    """A third item must not begin a list of its own; a number out of order must."""
    written = blocks((("1. One\n2. Two\n3. Three\n7. Seven", ""),))
    assert [(block.tag, block.start, len(block.items)) for block in written] == [("ol", 1, 3), ("ol", 7, 1)]
