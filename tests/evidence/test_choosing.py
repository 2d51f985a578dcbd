"""The book's own sentences: what is told, in order, about as long as asked."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import permutations, product
from pathlib import Path

import pytest

from benchmarks.quality.summaries import name_counts, own_sentences, random_sentences, rouge_f1
from core.evidence.choosing import best_sentences, choose_sentences
from core.text.ranking import is_alike, terms
from tests.support.told_books import long_book

PLAIN = [
    f"The keeper {verb} barrel{number} and rope{number} of the lighthouse before storm{number} came home."
    for number, verb in enumerate(["lit", "cleaned", "mended", "carried", "painted", "watched"] * 6)
]
MARA = "Mara came home before the storm."
STORY = "\n\n".join(" ".join(PLAIN[at : at + 3]) for at in range(0, len(PLAIN), 3))


def texts(text: str, words: int, ranges: list[tuple[int, int]] | None = None) -> list[str]:
    return [text[low:high] for low, high in best_sentences(text, ranges or [(0, len(text))], words)]


@pytest.mark.parametrize("words", [60, 120, 250])
def test_sentences_follow_the_book_and_are_as_many_as_asked(words: int):
    told = texts(STORY, words)
    assert [STORY.index(one) for one in told] == sorted(STORY.index(one) for one in told)
    assert len(set(told)) == len(told)
    assert abs(sum(len(one.split()) for one in told) - words) <= 25


def test_every_stretch_of_the_book_is_told_of():
    """The best sentences of all alone may all stand in one chapter."""
    loud = " ".join(
        f"Captain Ahab of the Pequod hunted the white whale with {men} of his crew." for men in range(3, 33)
    )
    text = loud + "\n\n" + STORY
    told = texts(text, 300)
    assert any(one in STORY for one in told) and any(one in loud for one in told)


def test_a_paragraph_tells_of_every_sixth():
    """Of *The War of the Worlds* it had nothing of the first third, of three stretches of 40 words."""
    told = best_sentences(STORY, [(0, len(STORY))], 120)
    parts = [(start * len(STORY) // 7, (start + 2) * len(STORY) // 7) for start in range(6)]
    assert all(any(low <= start < high for start, _end in told) for low, high in parts)


def test_the_end_is_told_of():
    """A page of The War of the Worlds ended before the Martians died: of its last quarter the best sentences
    stood in the beginning.
    """
    loud = [f"Captain Ahab of the Pequod hunted whale{at} with boat{at} all that day." for at in range(200)]
    quiet = [f"The keeper went to the door and sat beside lamp{at} for an hour." for at in range(10)]
    told = texts(" ".join(loud + quiet), 450)
    assert told[0] in loud and told[-1] in quiet


TOPICS = (
    ("mutineers", "schooner", "harbour", "burned", "anchor"),
    ("lawyer", "testament", "vineyard", "signed", "heirs"),
    ("flood", "weir", "orchard", "drowned", "miller"),
    ("forger", "trial", "prison", "swore", "judge"),
)


def novel() -> str:
    """Chapters of what every chapter has; every fifth tells of something that no other has."""
    verbs, things = ("looked", "turned", "glanced", "stared"), ("door", "table", "window", "lamp", "fire")
    parts, manners = ("hand", "face", "eyes", "arm", "head", "hair", "brow"), ("slowly", "gently", "again")
    usual = [
        f"She {verb} at the {thing} and raised her {part} {manner} towards the man in the room."
        for verb, thing, part, manner in product(verbs, things, parts, manners)
    ]
    chapters = [usual[at % 8 :: 8] for at in range(5 * len(TOPICS))]
    for chapter, words in zip(chapters[::5], TOPICS, strict=True):
        for at, (one, two, three) in enumerate(permutations(words, 3)):
            chapter.insert(
                2 * at, f"There was the {one} of which the {two} told the {three} near stone {at}."
            )
    return "\n\n".join(" ".join(one) for one in chapters)


def test_what_every_chapter_has_tells_none_of_them():
    """Those sentences were chosen that had the commonest pairs of words: "looked at", "raised her"."""
    told = texts(novel(), 240)
    telling = [one for one in told if "of which" in one]
    assert len(telling) > 0.8 * len(told)
    assert all(any(words[0] in one for one in telling) for words in TOPICS)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (
            "A keeper may lose barrel90 and rope90 in one storm.",
            "You, keeper, lose barrel90 and rope90 in one storm.",
        ),
        (
            "The keeper named all of rope91 by barrel91 this.",
            "The keeper “named” all of rope91 by barrel91 this.",
        ),
        (
            "Ein Wärter verliert barrel92 und rope92 mit dem Sturm.",
            "Euch, Wärter, verliert barrel92 und rope92 mit dem Sturm.",
        ),
    ],
)
def test_of_two_the_one_is_chosen_that_tells(better: str, worse: str):
    numbers = choose_sentences([*PLAIN[:18], worse, better, *PLAIN[18:]], 12, among=[18, 19])
    assert numbers == [19]


def test_main_characters_are_told_of_before_things():
    """Of two sentences of like words, with one as common in the book, that with a name."""
    crowd = [f"Then Mara went along the quay to boat{n} that day." for n in range(30)]
    somebody, something = (
        "At dusk Mara mended net90 beside hut90.",
        "At dusk a quay mended net90 beside hut90.",
    )
    assert choose_sentences([*crowd, something, somebody], 8, among=[30, 31]) == [31]


def test_what_was_told_is_not_told_again():
    again = "The keeper lit the great lamp of the tower before the storm came up."
    other = "A merchant had sold nine barrels of oil to the village in the autumn."
    text = " ".join([again, again, again, other, again, again])
    assert other in texts(text, 26)


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


def test_what_stands_in_every_chapter_is_not_told():
    """Four of six sentences on a guide were of the paragraph that closed each of its chapters."""
    stock = "Whatever is found on the line is reported to the dock at Orrin before the last car."
    chapters = "\n\n".join(
        f"{one}\n\n{stock.replace(' to ', chr(10) + 'to ', at % 2)}" for at, one in enumerate(PLAIN)
    )
    assert not any("dock at Orrin" in one for one in texts(chapters, 60))
    assert len(texts(chapters, 60)) >= 4
    assert set(texts(f"{stock}\n\n" * 3, 60)) == {stock}  # where nothing else is told


def test_only_the_ranges_given_are_told_of():
    """A summary up to a chapter must know nothing of the chapters after it."""
    middle = len(STORY) // 2
    told = best_sentences(STORY, [(0, middle)], 400)
    assert told and max(high for _low, high in told) <= middle


def test_a_text_without_narration_still_has_a_summary():
    speech = " ".join(f"“We saw ship number {number} leave the port,” he said." for number in range(20))
    assert texts(speech, 30)
    assert texts("A heading", 30) == ["A heading"]
    assert best_sentences("\n\n", [(0, 2)], 30) == []


def test_a_short_text_is_kept_whole():
    assert choose_sentences(["One sentence.", "Another one."], 100) == [0, 1]
    assert choose_sentences([], 100) == []


def test_rouge_is_lins_formula():
    """Clipped counts: a word said five times for one in the reference counts once."""
    assert rouge_f1("the cat sat", ["the cat sat"], 2) == 1.0
    assert rouge_f1("the the the the the", ["the cat"], 1) == pytest.approx(2 * 1 / 7)
    assert rouge_f1("a b c d", ["a b x y", "c d"], 2) == pytest.approx((2 / 6 + 2 / 4) / 2)
    assert rouge_f1("", ["a"], 1) == 0.0


def test_names_that_the_text_does_not_know_are_counted():
    assert name_counts("Then Ogilvy met Gatsby. Alone he went, and Ogilvy came.", "Ogilvy went.") == (1, 3)


def test_chosen_sentences_beat_chance_on_stories():
    """On stories that nothing was chosen by; the figures are in benchmarks/results/summaries.json."""
    folder = Path(os.environ.get("TRIFORCE_TEST_DATA", "/none")) / "reading"
    if not (folder / "squality-val.jsonl").is_file():
        pytest.skip("no TRIFORCE_TEST_DATA with reading/squality-val.jsonl")
    with (folder / "squality-val.jsonl").open(encoding="utf-8") as lines:
        stories = [json.loads(line) for line, _ in zip(lines, range(6), strict=False)]
    scores = [
        statistics.fmean(rouge_f1(way(one), one["questions"][0]["summaries"], 2) for one in stories)
        for way in (own_sentences, random_sentences)
    ]
    assert scores[0] > 0.06 > 0.055 > scores[1]


_CHOSEN = """
import sys
from core.evidence.choosing import best_sentences
text = sys.stdin.read()
print(best_sentences(text, [(0, len(text))], 240))
"""


def test_every_process_chooses_alike():
    """Words are hashed with another seed in each: sums in the order of a set told a book otherwise after a
    restart.
    """
    found = {
        subprocess.run(
            [sys.executable, "-c", _CHOSEN],
            input=long_book().text,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "012"
    }
    assert len(found) == 1 and "," in found.pop()


LAKES = ["Orrin", "Vann", "Tarn", "Hollow", "Brack", "Selm", "Quay", "Marl", "Esker", "Dunmere"]
OF_ONE_LAKE = (
    "A ferry of iron sank there with nineteen passengers in a storm of March.",
    "Monks dug a canal to the mill, which grinds rye to this day.",
    "A volcano warmed the springs until the earthquake closed them.",
    "Smugglers hid barrels of brandy below the chapel.",
    "The islands were sold to a painter who never saw them.",
    "The dam broke twice and drowned the village of Pell.",
    "Pearl mussels made the fishermen rich for one generation.",
    "A meteor dug the basin and left green glass along the beach.",
    "Soldiers drove a train across the ice in the last winter of the war.",
    "Nobody has found the bottom, though three divers tried.",
)


@pytest.mark.parametrize(("words", "alone"), [(120, 4), (450, 7)])
def test_of_chapters_that_say_nearly_the_same_what_each_says_alone_is_told(words: int, alone: int):
    """Ten chapters on ten lakes gave ten like sentences."""
    chapters = [
        f"The surface of Lake {lake} covers {31 + 7 * at} square kilometres in the northern district. "
        f"The water of Lake {lake} is clear to a depth of {5 + at} metres in late summer. "
        f"Perch and pike were counted in Lake {lake} by the survey team in {1931 + at} with nets. "
        f"{OF_ONE_LAKE[at]} "
        f"The shore of Lake {lake} is stony on the northern side and marshy on the southern.\n\n"
        for at, lake in enumerate(LAKES)
    ]
    text = "".join(chapters)
    said = texts(text, words)
    assert len(set(OF_ONE_LAKE).intersection(said)) >= alone
    content = [set(terms(one)) for one in said]
    assert not any(is_alike(one, other) for one in content for other in content if one is not other)
