"""Which sentences may be told by themselves: no speech, letter, note, caption or motto, nor any whose "he"
stands in the sentence before.
"""

from __future__ import annotations

import pytest

from core.evidence.choosing import choose_sentences
from tests.support.own_sentences import PLAIN, STORY, texts

MARA = "Mara came home before the storm."


def test_speech_is_left_out_and_a_long_tale_is_not():
    said = "“You will never find the gold of the island in the dark cave,” the old pirate told everyone."
    tale = "“I came to the island in the winter of that year with nine men of the crew. " + " ".join(
        f"We dug for the gold of the island near tree number {n} of the wood." for n in range(12)
    )
    told = texts(f"{said} {STORY}\n\n{said}", 80)
    assert not [one for one in told if "pirate" in one]
    assert [one for one in texts(f"{STORY}\n\n{tale}", 500) if "We dug" in one]
    assert texts(tale, 20)[0][0] != "“"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("“We dug all day for the gold.", "We dug all day for the gold."),
        ('"We dug all day for the gold.', "We dug all day for the gold."),
        ("And then we all went home to bed.”", "And then we all went home to bed."),
        ("“Is it so odd ?”\n“ No more have I . ”\nMr. Bennet was odd .", "Mr. Bennet was odd ."),
        ("The “Nautilus” sailed.", "The “Nautilus” sailed."),
    ],
)
def test_a_mark_of_a_longer_speech_does_not_hang_on_its_sentence(text: str, kept: str):
    assert texts(text, 50) == [kept]


@pytest.mark.parametrize(
    "heading",
    [
        "VII. Two Gloves",
        "VII.",
        "THE END.",
        "time of their masters, was one whom nobody had seen.",
        "I. THE FOLIO WHALE; II. the OCTAVO WHALE.",
    ],
)
def test_what_is_no_whole_sentence_is_not_told(heading: str):
    """The end of a story had “VII.” as a sentence of the book, with a mark; another began behind a page."""
    assert texts(f"{heading}\n\nHe wore a brown glove.", 50) == ["He wore a brown glove."]


@pytest.mark.parametrize(
    "sentence",
    [
        "He sat on top of the great scales of the salt house.",
        "But it was the right way up for once, for it was a fine night.",
        "The second was in a hand that I knew better.",
        "Most of them were staring at the table.",
        "That was the key of the cottage.",
        "In three strides he was at the door.",
        "On Sundays, at three in the afternoon, she grew restless.",
        "In New Bedford, on the wharf near Fairhaven, he saw it.",
        "I have not asked him about it.",
        "Where did they go?",
        "The second letter was in a hand that I knew better.",
        "That evening Mara came home, and she slept.",
        "In those four years three ships were lost.",
        "The keeper in those years was Donald, who kept bees.",
        "Of her four children only Adam lived past the age of ten.",
        "Mara went down and met a number of such people.",
        "A bend in the road hid the three men from Mara.",
        "The steam hid the third boat and the coast.",
        "Mara sent the second one home.",
        "Even at the harbour of Carrow that was the case.",
        "The sailor steered by that tiller in a storm.",
        "Mara gave it to him in the old house.",
        "Mr. Rudd had never seen them before the storm.",
        "Sie wohnte in dem alten Haus am Hafen.",
        "Deshalb brachte der Wärter den Schlüssel in das alte Haus.",
        "Davon wusste der Wärter des Hauses am Hafen nichts.",
        "Dieser trug den Brief in das Haus am Hafen.",
        "Als er das Haus am Hafen betrat, war es dunkel.",
        "Am Abend ging sie in das Haus am Hafen.",
        "Ich sagte ihm nichts von dem Brief.",
        "Der zweite war in dem Haus am Hafen.",
        "Das war der Schlüssel zu dem Haus.",
        "他走进了老房子。",
        "但是她走进了老房子。",
        "于是走进了老房子。",
        "第二天，她走进了老房子。",
        "我告诉他老房子的事。",
        "这是老房子的钥匙。",
    ],
)
def test_who_is_named_in_the_sentence_before_is_not_told_of_behind_another(sentence: str):
    """“He married my cousin” stood behind what a parrot did; in the book, behind a curate's proposal."""
    before = "The keeper lit barrel90 and rope90 in one storm."
    assert choose_sentences([*PLAIN[:18], sentence, before, *PLAIN[18:]], 12, among=[18, 19]) == [19]
    assert texts(f"Mara came home before the storm.\n\n{sentence}", 50) == [
        "Mara came home before the storm."
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "The letter was in a second hand that I knew better.",
        "This evening Mara came home, and she slept.",
        "In the house I saw that she slept.",
        "On Sunday Mara slept, for she was ill.",
        "In London Mara slept, for she was ill.",
        "Dieser alte Wärter trug den Brief in das Haus.",
        "Diese Stadt war klein und lag am Hafen.",
        "Am Abend ging Mara in das Haus am Hafen.",
        "Der zweite Brief lag in dem Haus am Hafen.",
        "Die alte Frau wohnte in dem Haus am Hafen.",
        "In dem Haus, das Mara gehörte, brannte Licht.",
        "宝玉看见她走进了老房子。",
        "第二天，宝玉走进了老房子。",
        "这个老房子的主人是宝玉。",
        "I told the keeper that she slept.",
        "On the wharf of Fairhaven Mara slept, as if she were ill.",
        "One ring cannot be in two places.",
        "Mara loved those boats that came home.",
        "The light was kept by the three mates—Starbuck, Stubb, and Flask.",
        "The storm killed the second assistant, William Tate.",
        "Mara told the keeper of that, and that the lamp was out.",
        "Mara came home on the second of May, on the other side of the harbour.",
        "Mara liked such men as went to sea.",
        "Mara thought it best to go home before the storm.",
        "Mara took the lamp and gave it to Tom.",
        "These letters were found by Mara in a box.",
        "A sign with “those boats” in red paint hung on the old house by the harbour of Carrow.",
    ],
)
def test_what_names_somebody_itself_is_told(sentence: str):
    assert texts(f"{MARA}\n\n{sentence}", 50) == [MARA, sentence]


@pytest.mark.parametrize(
    "cut",
    [
        'Whenever a customer came in from the old harbour, Tom cried, "Short weight!',
        "Whenever a customer came in from the old harbour, Tom cried, “Short weight!",
        "To the Keeper of the Accounts at the Salt House, Quillhaven.",
        "Mara asked.",
    ],
)
def test_what_is_cut_from_a_speech_or_a_letter_is_not_told(cut: str):
    """A chapter was told by a letter's address, and of what a parrot cried a summary had one half."""
    assert texts(f"{MARA}\n\n{cut}", 50) == [MARA]


@pytest.mark.parametrize(
    ("salutation", "regards"),
    [
        ("Sir, - ", "Believe me, Sir, yours faithfully, Clara Hollis."),
        ("Dear M. Verbeke, - ", "Your servant, M. Verbeke."),
        ("My dear Mother, ", "I am, my dear Mother, your affectionate and obedient servant, Tom Rudd."),
        ("DEAR SIR,--", "And so I remain, Sir, yours truly, Tom Rudd."),
        ("Sehr geehrter Herr Färber, ", "Mit freundlichen Grüßen Clara Hollis."),
    ],
)
def test_of_a_letter_neither_salutation_nor_regards_are_told(salutation: str, regards: str):
    """A letter's summary ended in “Believe me, Sir, yours faithfully, Clara Hollis.”"""
    asked = "What have you in the hand, Tom? You will need a small screwdriver."
    assert texts(f"{salutation}{MARA} {PLAIN[0]} {asked} {regards}", 90) == [MARA, PLAIN[0]]


@pytest.mark.parametrize("said", ["Dear old Tom came home with yours.", "Sir Tom Rudd was dear to Mara."])
def test_what_speaks_of_somebody_dear_is_no_salutation(said: str):
    assert texts(f"{said} {PLAIN[0]}", 90) == [said, PLAIN[0]]


def test_a_note_is_no_sentence_of_the_story_and_a_day_is():
    """A summary quoted “1 A slip is the channel by which a boat is drawn out.”"""
    told = "Tom drowned in the slip[1] of the boathouse."
    assert texts(f"{told}\n\n1 A slip is a channel for boats.\n\n1 May was a day of rain.", 50) == [told]
    assert texts(f"{told}\n\n2 May was a day of rain.", 50) == [told, "2 May was a day of rain."]
    assert texts(f"{told}\n\n[3] See the note about boats. Tom built the last of them.", 50) == [told]


@pytest.mark.parametrize(
    "source",
    [
        "\n\n— Ines Moreau, Notebooks",
        "\n—_Ines Moreau_.",
        "\n\n--THE BOOK OF JONAH, II, 3",
        "\n\n— aus dem Buch Jona",
    ],
)
def test_the_motto_of_a_chapter_is_not_told(source: str):
    """ "The drowned made poor witnesses" was told as what happened in a book's last chapter."""
    motto = "The drowned of the old harbour make poor witnesses, the living worse."
    assert texts(f"THE HOUSE\n\n{motto}{source}\n\n{MARA}", 50) == [MARA]
    assert texts(f"{motto}\n\n—Yes, said Tom.\n\n{MARA}", 50)[:1] == [motto]


@pytest.mark.parametrize(
    "apart",
    [
        "Fig. 12. The blubber hook of the old whaler hangs from the mast. It weighs 100 pounds.",
        "Plate IV. The keeper lights the lamp of the old harbour.",
        "Figure 3 The keeper of the old harbour lights the lamp.",
        "Table 2: Barrels of oil that the old harbour sold.",
        "[Illustration: The keeper lights the lamp of the old harbour.]",
        "Abb. 7: Der alte Wärter zündet die Lampe am Hafen an.",
        "图 3：老人走进了房子。",
        "Oil of the old harbour | 1,200 barrels | sold in May.",
        "Oil 12 14 18 barrels in 1812.",
        "Ambergris, use of, 12, 45–47; Amber, found on coasts, 88; ports of Carrow, 9.",
    ],
)
def test_captions_rows_of_tables_and_index_entries_are_not_told(apart: str):
    """ "Fig. 12. The blubber hook" stood in a summary as a sentence of the book."""
    said = [
        "Figure 12 shows how the keeper lit the lamp.",
        "In 1812 and in 1813 the harbour sold oil, 1,200 barrels.",
    ]
    assert texts(f"{said[0]}\n\n{apart}\n\n{said[1]}", 60) == said
