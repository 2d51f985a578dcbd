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
    "A lantern hung beside the window. Then 3 boats came back to the harbour.\n\n"
    "PIP. The king wears a gown without lace."
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
        ("Mr. Tull took off its cap, hung it on the window and picked up a baton.", None),  # whose
        ("A lantern did not hang beside the window.", None),
        ("Then 4 boats came back to the harbour.", None),  # another number
        ("3 boats came back to the harbour.", "Then 3 boats"),
        ("No lantern was used to find the boats.", None),  # in another order
        ("They used no lantern to find the boats.", "They used no lantern"),
        ("They used no lantern to find the boat.", None),  # one of them
        ("He had waited forty minutes for the evening train.", None),  # another number
        ("He had waited for the evening train.", "He had waited"),
        ("The porter had waited thirty minutes for the evening train.", None),  # of whom nobody said it
        ("Mr. Tull had waited thirty minutes for the evening train.", None),  # nor of him
        ("Mr. Tull picked up a baton and a cap.", None),
        ("The old keeper had lit the lamp before dawn.", None),  # one word is another
        ("He waited.", None),  # too few words to agree by
        ("The keeper wept.", None),
        ("PIP is the king, and he wears a gown without lace.", None),  # of whom the speaker says it
        ("The king is wearing a gown without lace.", "The king"),
    ],
)
def test_it_says_so_in_its_order_with_its_names_and_numbers(said: str, begins: str | None):
    found = near(said)
    assert found is None if begins is None else found and found.startswith(begins)


TALK = (
    "Mr. Tull came to the window and looked out at the boats. "
    "He gave them his signal with the red lamp from the high wall of the old harbour. "
    "It was for Mr. Tull that Isaac Rudd had rowed. He held his hand out, and Rudd gently pressed it. "
    "“You mean, Mr. Tull,” said Isaac Rudd, “that the porter is a mincing fool?” "
    "The fire burned before Isaac. A shade passed from the face as swiftly as a change of weather. "
    "Isaac came in. The lamp was lit on the wall of the old harbour."
)


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        (
            "Mr. Tull gave them his signal with the red lamp from the high wall of the old harbour.",
            True,
        ),  # whom alone the sentence before names
        (
            "Mr. Tull gave from the high wall of the old harbour his signal with the red lamp.",
            False,
        ),  # its order
        ("Isaac's lamp was lit on the wall of the old harbour.", False),  # it may be another's
        ("Mr. Tull gave them his signal with the red lamp of an old foe.", False),  # too little of it
        ("Isaac gave them his signal with the red lamp from the high wall of the old harbour.", False),
        ("Rudd held his hand out, and Rudd gently pressed it.", False),  # the other did
        ("Mr. Tull held his hand out, and Rudd gently pressed it.", False),  # two are named before
        ("Mr. Tull said that Isaac Rudd is a mincing fool.", False),  # he is spoken to
        ("Isaac Rudd said that the porter is a mincing fool.", True),
        ("The fire passed from the face as swiftly as a change of weather.", False),  # of another thing
        ("A shade passed from the face as swiftly as a change.", True),
    ],
)
def test_it_is_said_of_the_same_person_or_thing(said: str, stands: bool):
    """“Carton gave him his hand” stood beside “He gave him his hand, and Carton gently pressed it”."""
    book = Document("B", "", "txt", TALK, (Section("One", 0, len(TALK)),), sha256="T")
    assert (NearSentences(TALK, (0, len(TALK)), Evidence(book)).place(said, 0.8) is not None) is stands


SAID = (
    "I wrote in my first letter that Isaac Rudd was drowned on the ninth of May and buried on the tenth. "
    "I told the curate that the parrot had a prior claim. The women believed the lamp was moved by a ghost. "
    "If the wind turned before dawn the ferry would reach the harbour of Hythe. "
    "A green lamp burned in the upper window of the old cottage. The crowd that had gathered fled to boats."
)


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ("Isaac Rudd was drowned on the ninth of May and buried on the tenth.", False),  # it was written so
        ("The parrot had a prior claim.", False),
        ("The lamp was moved by a ghost.", False),
        ("The women believed the lamp was moved by a ghost.", True),
        ("The wind turned before dawn.", False),  # it may
        ("The story is about a green lamp that burned in the upper window of the old cottage.", False),
        ("A green lamp might have burned in the upper window of the old cottage.", False),
        ("A green lamp burned in the upper window of the cottage.", True),
        ("The crowd had gathered and fled to boats.", True),
    ],
)
def test_what_somebody_says_or_supposes_is_not_told_as_what_happened(said: str, stands: bool):
    """“Captain Tregarrick was drowned” stood beside “I wrote that ... was drowned ...; but it was false”."""
    book = Document("B", "", "txt", SAID, (Section("One", 0, len(SAID)),), sha256="S")
    assert (NearSentences(SAID, (0, len(SAID)), Evidence(book)).place(said, 0.8) is not None) is stands


LEFT_OFF = (
    "There were ten ribs on a side of the great skeleton. "
    "By some the amber is taken from the coast of Greenland. "
    "The crowd pressed in, and the boat was crushed against the quay of the harbour. "
    "Tull was in the cabin when Rudd pulled the flimsy from the old printer. "
    "Never before had Skiru been on the surface of the planet. "
    "Perat was amused at her answer to his clerk. "
    "The rope of the longboat parted under the weight. "
    "The keeper lit the lamp and did not ring the bell for the pilot. "
    "The pilot tried to turn the ferry against the current. "
    "Some islands, legend says, were made from the teeth of giants. "
    "It was only thirteen flights to the attic. "
    "The women went ashore; the men rowed off and the pilot slept in the cabin. "
    "The water of Lake Hollis freezes in the first week of December. "
    "In the ledger the clerk found a line in her hand, which nobody had ever read.\n\n"
    "The living make poor witnesses.\n\n— Ines Moreau, Notebooks"
)


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ("There was ten rib on a side of the great skeleton.", False),  # one of them
        ("There were ten ribs on the side of the skeleton.", True),
        ("Amber is taken from the coast of Greenland.", False),  # some say so
        ("By some the amber is taken from the coast of Greenland.", True),
        ("The crowd was crushed against the quay of the harbour.", False),  # the boat was
        ("The boat was crushed against the quay of the harbour.", True),
        ("The crowd pressed in, and the boat was crushed against the quay.", True),
        ("Tull pulled the flimsy from the old printer.", False),  # Rudd did
        ("Rudd pulled the flimsy from the old printer.", True),
        ("Skiru had been on the surface of the planet.", False),  # never
        ("Perat was amused at his clerk.", False),  # at what she answered him
        ("Perat was amused at her answer.", True),
        ("The keeper did not light the lamp and rang the bell for the pilot.", False),  # of the other
        ("The keeper did not ring the bell for the pilot.", True),
        ("The longboat parted under the weight.", False),  # its rope did
        ("The pilot turned the ferry against the current.", False),  # he tried
        ("Some islands were made from the teeth of giants.", False),
        ("The printer was only thirteen flights to the attic.", False),  # it does not speak of him
        ("The women rowed off and the pilot slept in the cabin.", False),
        ("The men rowed off and the pilot slept in the cabin.", True),
        ("The line in her hand, which nobody had ever read.", False),  # what of it?
        ("Freezing in the first week of December.", False),  # who is?
        ("The clerk found a line in her hand, which nobody had ever read.", True),
        ("The living made poor witnesses.", False),  # a motto
        ("The water freezes in the first week of December.", False),  # of one lake of ten
        ("The water of Lake Hollis freezes in the first week.", True),
    ],
)
def test_what_is_left_off_makes_nothing_else_of_it(said: str, stands: bool):
    """ "By some" was dropped of what some believe, and what one subject did was told of another beside it."""
    book = Document("B", "", "txt", LEFT_OFF, (Section("One", 0, len(LEFT_OFF)),), sha256="L")
    place = NearSentences(LEFT_OFF, (0, len(LEFT_OFF)), Evidence(book)).place(said, 0.8)
    assert (place is not None) is stands


def test_the_bar_is_the_share_of_what_was_told():
    """Of "old, keeper, before, dark, lit, lamp" five stand there in this order."""
    said = "The old keeper before dark had lit the lamp."
    assert near(said, 0.6) and near(said, 0.85) is None


def test_only_the_stretch_is_looked_at():
    said = "The old keeper had lit the lamp."
    assert near(said) and near(said, within=(TEXT.index("Isaac"), len(TEXT))) is None


WHICH = (
    "A second petition, in 1799, was lost at sea on its way to the Commissioners. "
    "Of her four children only Adam lived past the age of ten. "
    "In 1823 Merrin rang the bell by hand for fifty-three hours. "
    "The last principal keeper of the light was Murdo Finlay. "
    "Some of the pilots rowed home before dawn. "
    "The thief lost the use of his right hand in the quarry. "
    "At last Rudd lit the lamp of the harbour. "
    "Both ferries of the harbour sank in the gale. "
    "The county court found for the village in 2011; the court of appeal found for the Board in 2013. "
    "In 2019 the locks passed 11,402 boats, of which 310 carried freight."
)


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ("The petition was lost at sea on its way to the Commissioners.", False),  # of two
        ("A second petition was lost at sea on its way to the Commissioners.", True),
        ("Adam lived past the age of ten.", False),  # of four
        ("Only Adam lived past the age of ten.", True),
        ("Merrin rang the bell by hand for three hours.", False),
        ("Merrin rang the bell by hand for hours.", False),
        ("Merrin rang the bell by hand.", True),
        ("The principal keeper of the light was Murdo Finlay.", False),
        ("The last keeper of the light was Murdo Finlay.", True),
        ("The pilots rowed home before dawn.", False),
        ("Some of the pilots rowed home.", True),
        ("All of the pilots rowed home before dawn.", False),
        ("The thief lost the use of his hand in the quarry.", False),
        ("Rudd lit the lamp of the harbour.", True),
        ("The ferries of the harbour sank in the gale.", False),
        ("The locks passed 11,402 boats, of which 310 carried freight.", False),  # in one year
        ("In 2019 the locks passed 11,402 boats.", True),
        ("The court found for the village in 2011.", False),  # the other one did not
        ("The county court found for the village in 2011.", True),
        ("The locks passed boats, of which 310 carried freight.", False),
    ],
)
def test_which_of_several_is_kept(said: str, stands: bool):
    """ "The petition was lost" stood for "A second petition was lost": the first one had been answered."""
    book = Document("B", "", "txt", WHICH, (Section("One", 0, len(WHICH)),), sha256="W")
    place = NearSentences(WHICH, (0, len(WHICH)), Evidence(book)).place(said, 0.8)
    assert (place is not None) is stands
