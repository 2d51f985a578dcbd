"""All places of some words in a book, by their letters or by their sense."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.documents.finding import Finder

TEXT = "Der Fluß. Café — naïve “quote” ﬁn… Cafe\u0301, die\nStrasse. 가나 が O’Neil"


def words(wanted: str, *, exact: bool = False, text: str = TEXT) -> list[str]:
    found = Finder(text).find(wanted, exact=exact)
    assert found.count == len(found.places)
    return [text[start:end] for start, end in found.places]


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        ("FLUSS", ["Fluß"]),
        ("cafe", ["Café", "Cafe\u0301"]),
        ("CAFÉ - naive", ["Café — naïve"]),
        ('"quote"', ["“quote”"]),
        ("fin...", ["ﬁn…"]),
        ("die strasse", ["die\nStrasse"]),
        ("o'neil", ["O’Neil"]),
        ("가", ["가"]),
        ("か", []),
        ("  ", []),
        (".*", []),
    ],
)
def test_folded(wanted: str, there: list[str]):
    assert words(wanted) == there


def test_exact_is_to_the_letter_but_for_white_space():
    assert words("die  Strasse", exact=True) == ["die\nStrasse"]
    assert not words("die strasse", exact=True) and not words("fluss", exact=True)
    assert words("Cafe", exact=True) == ["Cafe"]


def test_one_letter_that_folds_to_two_is_one_place():
    assert words("s", text="ß") == ["ß"]


def test_every_place_is_found():
    found = Finder("no " * 3007).find("no")
    assert len(set(found.places)) == found.count == 3007


@given(st.text(st.sampled_from("aAäÄ\u0308\u0301ßsﬁ…. \n-—が"), max_size=40), st.data())
def test_whole_words_of_the_text_are_found_where_they_stand(text: str, data: st.DataObject):
    """Whatever folds to more letters, or to none, stands before them."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if not spans:
        return
    start, end = data.draw(st.sampled_from(spans))
    if unicodedata.combining(text[start]):
        return  # an accent without a letter has nothing to be found by
    assert (start, end) in Finder(text).find(text[start:end]).places
    assert (start, end) in Finder(text).find(text[start:end], exact=True).places
