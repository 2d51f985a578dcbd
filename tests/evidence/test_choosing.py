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
from tests.support.own_sentences import PLAIN, STORY, texts
from tests.support.told_books import long_book


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
