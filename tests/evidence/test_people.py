"""Whom a text names, how often and where, and what introduces whoever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.documents import read_document
from core.evidence.people import introducing, introduction, people

TALE = """
Mr. Ansell came to Saltby in March. “Good day,” said Mr. Ansell, who was an engineer. Hannah Rudd laughed.

The keeper of the light was Isaac Rudd. “It is late,” said Isaac. Nobody in Saltby saw Hannah.

“Oil!” cried the Inspector. The Inspector had walked from Saltby. “No oil,” replied the Inspector.

Mrs. Rudd had gone to London on Thursday. Rudd looked at the Holm; the Holm was dark. Isaac Rudd lit the lamp.
"""


CAST = (
    "THE PERSONS OF THE PLAY\n\nNED RUDD, keeper of the light\nMRS. TULL, owner of the boats\nA CONSTABLE\n\n"
)
PLAY = (
    "SCENE I. A quay.\n\nEnter NED RUDD with a can, and MRS. TULL.\n\n"
    "TULL.{gap}Is it late, Rudd? Is it dark?\n\n"
    "RUDD.{gap}It is late.\n\nTULL.{gap}Then light it.\n\nRUDD. [Aside.] I will NOT.\n\n"
    "SCENE II. A room.\n\n[Exeunt TULL and CONSTABLE.\n\nRUDD.{gap}She owns the boats.\n\n"
    "TULL.{gap}And the oil.\n\nSCENE III. The quay.\n\nRUDD.{gap}She sells it.\n\n"
)


def named(text: str) -> dict[str, int]:
    return {one.name: len(one.mentions) for one in people(text)}


def test_people_are_found_and_places_are_not():
    found = named(TALE)
    assert set(found) == {"Isaac Rudd", "the Inspector", "Hannah Rudd", "Mr. Ansell", "Mrs. Rudd"}
    assert not {"Saltby", "London", "Holm", "Thursday"} & set(found)


@pytest.mark.parametrize("gap", [" ", "\n"], ids=["one line", "two lines"])
def test_who_speaks_in_a_play_is_counted_and_introduced_by_the_list_of_its_persons(gap: str):
    """Names in capitals were not counted: of four persons one was known, by five of his 22 mentions."""
    text = CAST + PLAY.format(gap=gap)
    found = people(text)
    assert {one.name: len(one.mentions) for one in found} == {"Ned Rudd": 7, "Mrs. Tull": 6}
    said = [text[slice(*introduction(text, one.mentions))] for one in found]
    assert said == ["NED RUDD, keeper of the light", "MRS. TULL, owner of the boats"]
    assert {text[start:end] for start, end in found[1].mentions} == {"TULL"}


def test_capitals_are_no_names_where_nobody_speaks_by_turns():
    notes = "".join(f"NOTE. The lamp has {number} wicks.\n\n" for number in (3, 4, 5))
    prose = "The keeper lit the lamp and went to bed, and nobody came.\n\n" * 20
    assert named(notes + prose) == {}


def test_forms_of_a_name_are_one_persons_where_no_title_tells_them_apart():
    found = named(TALE)
    assert found["Isaac Rudd"] == 3, "Isaac Rudd, Isaac, Isaac Rudd; Rudd is Hannah's name, too"
    assert found["Mrs. Rudd"] == 1 and found["Hannah Rudd"] == 2


def test_somebody_has_the_name_that_the_text_gives_in_full_however_seldom():
    """Lucy Westenra was "Miss Lucy", whose full name is five of 292 mentions; one form used once is none."""
    often = "“Yes,” said Hannah. Hannah went. Miss Hannah sat. “No,” said Hannah. " * 20
    twice = often + "Hannah Rudd wept. “Well,” said Hannah Rudd. "
    assert named(twice) == {"Miss Hannah": 82}
    assert named(twice + "Hannah Rudd ate.") == {"Hannah Rudd": 83}


def test_a_title_and_a_surname_are_his_whom_the_text_names_far_oftener():
    """ "Mr. Rask" was somebody beside Edmund Rask, as there was a child of that name, too."""
    often = "“Yes,” said Edmund Rask. He saw Edmund Rask. " * 2
    child = "“No,” said Emil Rask. “Well,” said Mr. Rask. "
    assert named(often + child) == {"Edmund Rask": 5, "Emil Rask": 1}
    assert named(often + child + "“Oh,” said Emil Rask.")["Mr. Rask"] == 1


def test_a_title_and_a_surname_are_hers_who_mostly_goes_by_her_first_name():
    """“Miss Thorne” was the aunt, who was named in full oftener, and dead."""
    text = "Ilsabet Thorne came to the island. Her aunt Wenna Thorne had died. Wenna Thorne left her a box. "
    text += "Aunt Wenna Thorne had kept the light. " + "Ilsabet climbed the stair, and she saw the sea. " * 12
    text += "He said to Miss Thorne that she was late. Ilsabet laughed."
    by_name = {one.name: one.forms for one in people(text)}
    assert by_name["Ilsabet Thorne"] == ("Ilsabet", "Ilsabet Thorne", "Miss Thorne")


def test_whose_name_is_given_is_somebody_however_seldom():
    """“His name was Osric Vane”, and nobody of that name was among the people up to there."""
    text = "The merchant was blamed instead. His name was Osric Vane. He paid two hundred pounds.\n\n"
    text += "What is owed must be paid, and it is owed to Osric Vane. There will be three letters.\n\n"
    assert [(one.name, len(one.mentions)) for one in people(text)] == [("Osric Vane", 2)]


def test_who_is_named_after_somebody_introduces_him_not():
    """“The elder was named Osric” stood for who Osric Vane is."""
    text = "Osric Vane said that the oil was good. Osric Vane opened the door and said nothing. "
    text += "She was a widow with two boys, and the elder was named Osric. “Go,” said Osric Vane."
    (one,) = people(text)
    left, right = introduction(text, one.mentions)
    assert len(one.mentions) == 4 and text[left:right].startswith("Osric Vane")


def test_a_bare_surname_is_the_husbands():
    """Of a wife who is named more often with her title all was counted, and he vanished."""
    wife = "“Madame Rudd,” said he. Madame Rudd knitted. “No,” said Madame Rudd. "
    found = named(wife + "Monsieur Rudd laughed. “Yes,” said Rudd. Rudd went out. “Ah!” cried Rudd.")
    assert found == {"Monsieur Rudd": 4, "Madame Rudd": 3}


def test_who_gives_a_house_its_name_is_a_person_and_the_house_is_none():
    """Mrs. Pellow was counted three times of seven, as Pellow House stood there four times, too."""
    house = "They came to Pellow House. Pellow House was dark. In Pellow House a lamp burned. "
    found = named(house + "“Well,” said Mrs. Augusta Pellow. Mrs. Pellow slept. They told Mrs. Pellow so.")
    assert found == {"Mrs. Augusta Pellow": 3}
    assert not named("The lamp of Gull Cottage burned. Gull Cottage had a cellar. Gull Cottage was dark.")


def test_a_street_that_bears_a_persons_name_is_nobody_and_a_count_who_owns_much_is_somebody():
    """Baker Street was a main character of Sherlock Holmes, and the Count was missing in Dracula."""
    street = "He lived in Baker Street. Baker Street was dark; in Baker Street he slept, near Baker Street. "
    assert named(street + "“Yes,” said Mr. Henry Baker. Mr. Baker sat.") == {"Mr. Henry Baker": 2}
    count = "I felt the Count's hand. He saw the house. She knew the Count's voice. "
    assert named(count * 2) == {"the Count": 4}


def test_what_somebody_says_is_nobody_who_says_it():
    """ "Steady is named 5 times": a parrot's cry. "The Lord" was somebody as they said his prayer."""
    said = "He said, “Steady as she goes.” She cried, “Steady there, and up!” They replied, “Steady.” "
    assert not named(said + "They said the Lord's Prayer. They said the Lord's Prayer again.")


def test_a_surname_that_two_bear_counts_for_one_only_where_the_text_means_one():
    """“There were two men named Tregarrick” was a mention of the captain; he keeps it in a book about him."""
    cousins = "“Yes,” said Lemuel Tregarrick. Lemuel Tregarrick ate. “No,” said Ambrose Tregarrick. "
    two = "Lemuel Tregarrick slept. Ambrose Tregarrick rose. There were two men named Tregarrick. "
    assert named(cousins + two) == {"Lemuel Tregarrick": 3, "Ambrose Tregarrick": 2}
    assert named(cousins + "“Come,” said Tregarrick. Tregarrick sat. Tregarrick ate.") == {
        "Lemuel Tregarrick": 5,
        "Ambrose Tregarrick": 1,
    }


def test_a_bare_name_that_the_text_introduces_far_from_the_full_one_is_somebody_elses():
    """Owen, the anatomist, was counted for Owen Chace, the mate of the Essex."""
    mate = "I have seen Owen Chace, who was mate. “Yes,” said Owen Chace. Owen went. “No,” said Owen. "
    sea = "The sea was grey and the wind blew from the land. " * 120
    bones = "“They are old,” said Owen, the English anatomist. Owen wrote a paper. "
    assert named(mate + bones) == {"Owen Chace": 6}, "near him it is he"
    assert named(mate + sea + mate) == {"Owen Chace": 8}
    apart = mate.replace("Owen went. “No,” said Owen. ", "Mr. Chace went. “No,” said Mr. Chace. ")
    assert named(apart + sea + bones) == {"Owen Chace": 4, "Owen": 2}
    assert named(apart + sea + bones.replace(", the English anatomist", "")) == {"Owen Chace": 6}


def test_a_niece_is_not_her_uncle():
    """“Mr. Färber” was the heroine's name, and the sentence that introduced him was about her."""
    niece = (
        "Judith Färber opened her bag. Judith smiled as she read. “No,” said Judith. Judith took her hat. "
    )
    found = named(niece + "“Mr. Färber is dead,” said Emil. Emil knew Mr. Färber, who was her uncle.")
    assert found["Judith Färber"] == 4 and found["Mr. Färber"] == 2
    young = "Emma Woodhouse saw her aunt. Emma knew what she wanted. Emma lost her way. Emma hid her face. "
    assert named(young + "“Well,” said Mr. Woodhouse. Mr. Woodhouse was ill.")["Mr. Woodhouse"] == 2


def test_a_title_before_a_first_name_and_one_that_only_one_of_a_family_can_have():
    """Miss Manette was somebody else than Lucie Manette, since a Doctor Manette was there, too."""
    text = (
        "“Yes,” said Lucie Manette. Lucie dropped her glove. Lucie saw that she was late. Lucie shut her eye."
        " “Come,” said Doctor Manette. Doctor Manette rose. “So,” said Alexandre Manette. Alexandre Manette"
        " sat. “No,” said Miss Manette. Miss Manette went. “Oh,” said Miss Lucie."
    )
    found = named(text)
    assert found["Lucie Manette"] == 7 and found["Alexandre Manette"] == 2


def test_every_mention_stands_in_the_text_and_the_sentence_that_introduces_has_one():
    for person in people(TALE):
        start, end = introduction(TALE, person.mentions)
        inside = [(left, right) for left, right in person.mentions if start <= left and right <= end]
        assert inside and all(TALE[left:right].split()[-1] in person.name for left, right in person.mentions)
    ansell = next(one for one in people(TALE) if one.name == "Mr. Ansell")
    start, end = introduction(TALE, ansell.mentions)
    assert TALE[start:end] == "“Good day,” said Mr. Ansell, who was an engineer."


@pytest.mark.parametrize("marks", ["“”", '""'])
def test_the_book_introduces_somebody_before_those_do_who_speak_in_it(marks: str):
    """Who lay in a cave, alive, was introduced by what somebody believed: "who is drowned"."""
    first = "At eight the harbour master, Tobias Quill, came in with wet boots and a lamp."
    supposed = "{0}Two keys are here. The third one belonged to Tobias Quill, who is drowned. Ask him.{1}"
    text = f"{first}\n\n{supposed.format(*marks)}\n\nThe town liked Tobias Quill from the first day.\n\n"
    text += "Tobias Quill was not born in Vienna at all. “No,” said Tobias Quill."
    mentions = people(text)[0].mentions
    assert text[slice(*introduction(text, mentions))] == first
    assert text[slice(*introduction(text, mentions[2:]))].startswith("The town"), "what he is not tells less"


def test_what_is_known_up_to_a_place_stands_before_it():
    """A panel that moves with the reader must not spoil."""
    half = TALE[: TALE.index("“Oil!”")]
    assert "the Inspector" not in named(half)
    assert all(end <= len(half) for one in people(half) for _start, end in one.mentions)


def test_a_text_without_names_has_no_people():
    essay = "The wind is moved air. Air is warmed by the sun, and warm air rises. It is said to be light. "
    assert people(essay * 20) == () == people("") == people("风是流动的空气。" * 20)


def test_words_that_open_sentences_and_quotations_are_nobodys_names():
    """“Steady” was a main character, and “Whichever Rudd” and “Cousin Since” were people of the book."""
    opened = (
        "He said, “Steady as she goes!” She cried, “Steady there!” Either Hannah had it or Isaac. Whichever "
        "Rudd was chosen, he laughed. “Cousin, Since we are ruined, sit down,” wrote Isaac. Everybody knew."
    )
    assert set(named(TALE + opened)) == set(named(TALE)), "and nobody else"


def test_a_heading_names_nobody_whom_the_text_does_not_name():
    """“Mr. Rudd Counts”, a chapter, was a person beside Mr. Rudd."""
    told = "“Well,” said Mr. Rudd.\n\nMr. Rudd Counts\n\nMr. Rudd laughed.\n\nKing Harald Weds.\n\nHe slept."
    assert named(told) == {"Mr. Rudd": 2}
    assert named("Mr. Rudd\n\n“Well,” said Mr. Rudd.") == {"Mr. Rudd": 1}, "no mention"


def test_two_names_are_one_persons_where_the_text_says_so():
    """Pin and Isolde Farthing were two, and so were Evremonde and Darnay in A Tale of Two Cities."""
    apart = "“Yes,” said Isolde Farthing. Isolde rose. “No,” said Pin. Pin sat. “Ha,” said Odo. "
    assert named(apart) == {"Isolde Farthing": 2, "Pin": 2, "Odo": 1}
    assert named(apart + "“To Isolde Farthing, called Pin, a pound.”") == {"Isolde Farthing": 6, "Odo": 1}
    assert named(apart + "Isolde Farthing called Pin. – Come, Isolde, called Pin.")["Pin"] == 4


def test_a_middle_name_makes_no_other_person():
    """Quincey P. Morris stood beside Quincey Morris."""
    text = "“No,” said Quincey Morris. “I, Quincey P. Morris, swear it,” said Morris. Quincey Morris sat."
    assert named(text) == {"Quincey P. Morris": 4}


def test_an_animal_may_be_named_by_a_title():
    """A parrot “named Bishop” was listed nowhere, and a bishop still is one."""
    bird = "She kept a parrot named Bishop. “Ha,” cried Bishop. Bishop hated her. “No,” said the Bishop. "
    found = named(bird * 2 + "“Well,” said Bishop Hatto. Bishop Hatto slept.")
    assert found == {"Bishop": 6, "Bishop Hatto": 4}


@pytest.mark.parametrize(
    "told",
    [
        "Captain barked at the gate.",
        "The dog Captain ran to the gate.",
        "They kept a spaniel called Captain.",
        "Captain, an old spaniel, slept.",
        "Captain was a very good dog.",
    ],
)
def test_an_animal_may_be_called_by_a_title(told: str):
    """Of a dog that barked at every gate of the book nothing was listed: it was taken for a title."""
    dog = f"{told} Captain looked at Hannah, and Captain ran to her. “Come,” said she, and Captain came. "
    found = named(dog * 2 + "“Well,” said Captain Pellow. Captain Pellow slept.")
    assert found["Captain"] >= 6 and found["Captain Pellow"] == 2


@pytest.mark.parametrize(
    "told",
    [
        "The Captain barked an order.",
        "They fed the dog Captain Pellow had bought.",
        "Captain Pellow was a dog of a man.",
        "“Sir, the captain is out.” The horse was the Captain's.",
        "She led the pony Father gave her. “Father was at the gate with the dog, Father, my dog.”",
    ],
)
def test_a_title_stays_one_where_no_animal_is_called_so(told: str):
    ashore = (
        "The Captain went ashore. “Well, Captain,” said Hannah. Father went home. “No,” said Captain Pellow. "
    )
    found = named((told + " " + ashore) * 3)
    assert not {"Captain", "Father"} & set(found) and found["Captain Pellow"] >= 3


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("books/the-time-machine.txt", ["the Time Traveller", "the Psychologist", "Weena"]),
        ("books/the-war-of-the-worlds.epub", ["Ogilvy"]),
        (
            "books/moby-dick.epub",
            ["Captain Ahab", "Queequeg", "Captain Peleg", "Radney", "Steelkilt", "Captain Gardiner"],
        ),
        ("books/viking-tales.pdf", ["King Harald", "King Halfdan", "Leif Ericsson", "Tyrker"]),
        ("hard/sherlock.txt", ["Sherlock Holmes", "Dr. Watson", "Miss Irene Adler"]),
        ("hard/dracula.txt", ["the Count", "Dr. Van Helsing", "Jonathan Harker", "Lucy Westenra"]),
        ("hard2/robin-hood.pdf", ["Robin Hood", "Little John", "Prince John", "Maid Marian"]),
    ],
)
@pytest.mark.wide
def test_the_people_of_real_books(shared_data: Path, file: str, expected: list[str]):
    """Those that facts.json asks after, and whom anybody would name."""
    path = shared_data / file
    if not path.exists():
        pytest.skip(f"no {file}")
    found = [one.name for one in people(read_document(path).text)]
    assert [one for one in expected if one not in found] == []


LETTERS = (
    "First Letter: Clara Hollis to Mr. Verbeke, 4 May\n\n"
    "Dear Mr. Verbeke, my aunt has slept well since you wrote, and I have not played. Clara says so.\n\n"
    "Yours faithfully, Clara Hollis.\n\n"
    "Second Letter: Mr. Verbeke to Clara Hollis, 9 May\n\n"
    "Mademoiselle, one Clara Hollis, who played at sight, was a girl whom I knew, and that is long ago.\n\n"
    "Your servant, Mr. Verbeke.\n\n"
)


def test_headings_name_nobody_and_neither_they_nor_a_letters_address_introduce():
    """ "Clara Hollis is named 9 times": five were headings, by the first of which she was introduced."""
    found = {one.name: one.mentions for one in people(LETTERS)}
    assert {name: len(mentions) for name, mentions in found.items()} == {"Clara Hollis": 3, "Mr. Verbeke": 2}
    start, end = introduction(LETTERS, found["Clara Hollis"])
    assert LETTERS[start:end].startswith("Mademoiselle, one Clara Hollis, who")
    assert not introducing(LETTERS, found["Mr. Verbeke"]), "he is greeted, and signs"


def test_a_name_that_signs_a_letter_is_a_mention_and_one_above_a_chapter_is_none():
    prose = "“Yes,” said Ada Brown. Ada Brown went out. "
    signed = f"One\n\n{prose}\n\nAda Brown\n\nTwo\n\n{prose}"
    assert named(signed) == {"Ada Brown": 5}
    assert named(f"One\n\n{prose}\n\nAda Brown\n\n{prose}") == {"Ada Brown": 4}


def test_a_wifes_title_is_the_mothers_of_a_girl_who_goes_by_her_first_name():
    """Mrs. Thorne, who would not pay for a lesson, was counted for the girl of fourteen who missed it."""
    girl = "“Yes,” said Beatrice Thorne. Beatrice lost her glove. Beatrice knew that she was late. "
    found = named(girl + girl + "She missed two lessons, for which Mrs. Thorne will not pay.")
    assert found == {"Beatrice Thorne": 6, "Mrs. Thorne": 1}
    assert named(girl + "Mrs. Thorne sat down. “No,” said Mrs. Thorne.") == {"Beatrice Thorne": 5}


def test_neither_a_ship_nor_what_begins_a_sentence_behind_good_is_somebody():
    """ "Wind 2" was among the people of a log ("Light good. Wind as before."), and so was a barque."""
    log = "It says: “Light good. Wind as before.” It said: “Light good. Wind as before.” "
    ship = "The barque Eleanor Gray struck the rock. The brig Good Intent went ashore. "
    assert not named(log + ship + "They came by the packet Swallow, who leaves Hull at noon.")
