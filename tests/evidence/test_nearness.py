"""Which sentence of a book says what was told of it, in nearly its words."""

from __future__ import annotations

import pytest

from core.documents.document import Document, Section
from core.evidence.nearness import NearSentences
from core.evidence.support import Evidence

TEXT = (
    "The old keeper had lit the lamp before dark. Isaac Rudd was the assistant. "
    "Mr. Tull took off his cap, hung it on the window and picked up a baton. "
    "They used no lantern to find the boats. He had waited thirty minutes for the evening train. "
    "A lantern hung beside the window."
)


def near(said: str, least: float = 0.8, within: tuple[int, int] | None = None) -> str | None:
    book = Document("B", "", "txt", TEXT, (Section("One", 0, len(TEXT)),), sha256="B")
    place = NearSentences(TEXT, within or (0, len(TEXT)), Evidence(book)).place(said, least)
    return place and TEXT[slice(*place)]


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        ("The keeper lights the old lamp before dark.", None),  # in another order
        ("The old keeper had lit the lamp.", "The old keeper"),
        ("Mr. Tull takes off his cap, hung it on the window and picked up a baton.", "Mr. Tull"),
        ("Isaac Rudd took off his cap, hung it on the window and picked up a baton.", None),  # another's deed
        ("A lantern was used to find the boats.", None),  # the book denies it
        ("A lantern never hung beside the window.", None),
        ("No lantern was used to find the boats.", None),  # in another order
        ("They used no lantern to find the boat.", "They used no lantern"),
        ("He had waited forty minutes for the evening train.", None),  # another number
        ("He had waited for the evening train.", "He had waited"),
        ("He waited.", None),  # too few words to agree by
        ("The keeper wept.", None),
    ],
)
def test_it_says_so_in_its_order_with_its_names_and_numbers(said: str, begins: str | None):
    found = near(said)
    assert found is None if begins is None else found and found.startswith(begins)


def test_the_bar_is_the_share_of_what_was_told():
    """Of "keeper, lit, lamp, brass, dark" four stand there in this order."""
    said = "The keeper lit the lamp of brass before dark."
    assert near(said, 0.8) and near(said, 0.85) is None


def test_only_the_stretch_is_looked_at():
    said = "The old keeper had lit the lamp."
    assert near(said) and near(said, within=(TEXT.index("Isaac"), len(TEXT))) is None
