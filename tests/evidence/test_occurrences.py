"""Who and what occurs up to a place: all mentions, what introduces them, nothing from behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.documents import read_document
from core.evidence.occurrences import introduced, named_within, occurrences

TALE = """
Mr. Ansell came to Saltby in March. “Good day,” said Mr. Ansell, who was an engineer. Hannah Rudd laughed.

The keeper of the light was Isaac Rudd. “It is late,” said Isaac. Nobody in Saltby saw Hannah.

“Oil!” cried the Inspector. The Inspector had walked from Saltby. “No oil,” replied the Inspector.

Mrs. Rudd had gone to London on Thursday. Rudd looked at the Holm; the Holm was dark. Isaac Rudd lit the lamp.
"""
AFTER = (
    "\n\nZebulon Quint came to Wexmoor in May. “I am Zebulon,” said Zebulon Quint, who was Hannah’s son. "
    "Hannah Rudd, who was the murderer, fled from Saltby to Wexmoor. Everybody in Wexmoor wept.\n"
)


def by_name(text: str, end: int | None = None) -> dict[str, object]:
    return {one.name: one for one in occurrences(text, len(text) if end is None else end)}


def test_people_and_places_are_told_apart():
    found = by_name(TALE)
    assert {name: one.kind for name, one in found.items() if name in ("Hannah Rudd", "Saltby", "London")} == {
        "Hannah Rudd": "person",
        "Saltby": "place",
        "London": "place",
    }
    assert "Thursday" not in found and "March" not in found


def test_what_is_where_something_is_names_a_place_though_it_stands_where_people_are_called():
    """At the beginning of a book, where a town is spoken of before anybody is in it."""
    begun = "“Wexmoor,” said Mr. Ansell. He went down to Wexmoor. Wexmoor is where the line stops."
    assert by_name(begun)["Wexmoor"].kind == "place"


def test_every_mention_of_a_place_is_found_and_its_first_sentence_introduces_it():
    saltby = by_name(TALE)["Saltby"]
    assert list(saltby.mentions) == [one.span() for one in re.finditer("Saltby", TALE)]
    start, end = introduced(TALE, len(TALE), saltby)
    assert TALE[start:end] == "Mr. Ansell came to Saltby in March."


def test_no_name_that_the_text_does_not_have():
    for one in occurrences(TALE, len(TALE)):
        for start, end in one.mentions:
            assert TALE[start:end].split()[-1] in " ".join(one.forms)
        left, right = introduced(TALE, len(TALE), one)
        assert left <= one.mentions[-1][0] and TALE[left:right].strip()


@pytest.mark.parametrize("end", [len(TALE), TALE.index("“Oil!”"), TALE.index("The keeper")])
def test_what_stands_behind_the_place_changes_nothing_before_it(end: int):
    """A marker behind the place must not come through: no name, form, mention, sentence or order."""
    known = occurrences(TALE, end)
    assert occurrences(TALE[:end] + AFTER, end) == known
    assert "Zebulon" not in repr(known) and "Wexmoor" not in repr(known)
    for one in known:
        sentence = introduced(TALE[:end] + AFTER, end, one)
        assert sentence == introduced(TALE, end, one)
        assert all(right <= end for _left, right in (*one.mentions, sentence))
    assert "Zebulon Quint" in by_name(TALE + AFTER), "it would be found"


def test_reading_on_adds_mentions_and_takes_none_away():
    before, after = by_name(TALE), by_name(TALE + AFTER)
    for name, one in before.items():
        assert set(one.mentions) <= {span for other in after.values() for span in other.mentions}, name


def test_what_is_named_often_and_is_nobody_and_no_place_is_a_term():
    """Neither a day nor a people is one, and no word that the text writes small."""
    tale = TALE + (
        "They spoke of the Lamplight. He feared the Lamplight, and the Lamplight was old. An Oil lamp, "
        "an Oil can and the Oil. On Thursday, last Thursday and every Thursday the oil, an oil, some oil was "
        "Danish, not Danish, never Danish.\n"
    )
    found = [one for one in occurrences(tale, len(tale)) if one.kind == "term"]
    assert [(one.name, len(one.mentions)) for one in found] == [("Lamplight", 3)]


def test_a_text_in_another_language_has_none():
    german = "Der Graf ging mit der Frau nach Wien, und sie sah den Mann nicht, der aus dem Haus kam. " * 20
    assert occurrences(german, len(german)) == () == occurrences("", 0)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("books/moby-dick.epub", {"New Bedford": "place", "Captain Ahab": "person"}),
        ("hard/dracula.txt", {"London": "place", "Whitby": "place", "Jonathan Harker": "person"}),
        ("hard/sherlock.txt", {"Baker Street": "place", "Sherlock Holmes": "person"}),
    ],
)
def test_the_places_of_real_books(shared_data: Path, file: str, expected: dict[str, str]):
    path = shared_data / file
    if not path.exists():
        pytest.skip(f"no {file}")
    text = read_document(path).text
    found = {name: one.kind for name, one in by_name(text).items()}
    assert {name: found.get(name) for name in expected} == expected


def test_what_a_stretch_names_is_counted_in_it_alone():
    start, end = TALE.index("“Oil!”"), TALE.index("Mrs. Rudd")
    named = named_within(TALE + AFTER, start, end)
    assert ("Saltby", 1) in named["place"] and "Hannah Rudd" not in dict(named["person"])
    assert "Zebulon" not in repr(named)


def test_a_town_whose_name_ends_as_a_peoples_does_is_a_place():
    """Bremen was none: it ends as "Norsemen" does."""
    text = "The Constance of Bremen was lost. The owners in Bremen paid, and the merchants of Bremen did. "
    assert by_name(text)["Bremen"].kind == "place"
