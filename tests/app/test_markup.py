"""Model output and book text cannot become tags; levels and quotations are marked without losing a
character.
"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from app.markup import LEVELS, Citation, answer_html, plain_html

TAG = re.compile(r"</?(?:p|ul|li|h4|br|strong|em|sup|span|button)(?: [a-z-]+=\"[^\"<>]*\")*>")
TEXTS = st.text(alphabet=st.sampled_from("ab <>&\"'*#-1.\n/=`${}é"), max_size=60)


@given(
    st.lists(st.tuples(TEXTS, st.sampled_from([*LEVELS, ""])), max_size=6),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_no_text_becomes_a_tag(pieces, start, length):
    """A book may hold <script>, and a model may repeat it."""
    cited = (Citation(start, start + length, 3, 4, 'Chapter "<1>"'),)
    for html in (answer_html(tuple(pieces), cited), plain_html("".join(text for text, _ in pieces))):
        rest = TAG.sub("", html)
        assert "<" not in rest and ">" not in rest
        for tag in ("p", "ul", "li", "span", "strong", "em", "button"):
            assert len(re.findall(rf"<{tag}[ >]", html)) == html.count(f"</{tag}>")


@given(
    st.lists(
        st.tuples(st.text(alphabet="abc ,.", min_size=1, max_size=9), st.sampled_from(list(LEVELS))),
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
        '<p><span class="lv lv-draft">One </span><strong><span class="lv lv-draft">bo</span></strong>'
    )
    assert "**" not in html
    assert html.count("<li>") == 2 and html.count("<ul>") == 1


def test_a_found_quotation_is_one_button_and_a_missing_one_says_so():
    text = "He said “the lamp went out” and “pigs fly”."
    first, second = text.index("the lamp"), text.index("pigs")
    html = answer_html(
        ((text[:15], "draft"), (text[15:], "target")),
        (Citation(first, first + 17, 120, 17, "Chapter 2, page 9"), Citation(second, second + 8, None)),
    )
    assert html.count("<button") == 1 and 'data-offset="120"' in html and "Chapter 2, page 9" in html
    assert html.count("not in the book") == 1
