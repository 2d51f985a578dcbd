"""Judging reading: the scores by hand, the cases by what they may not contain, the figures by their rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.reading import cases, run, scores

TALES = [
    {
        "story": name,
        "first_section": 1,
        "sections": [f"{name} met {animal}s.\n\nIt was late." for animal in animals],
        "questions": [
            {"question": f"Whom did {name} meet ({n})?", "answers": [f"{animal}s"], "sections": [n]}
            for n, animal in enumerate(animals, 1)
        ],
    }
    for name, animals in (("Ann", ["lion", "tiger", "eagle", "whale"]), ("Bob", ["robin", "swan"]))
]


def test_f1_counts_shared_words_and_takes_the_best_answer():
    """Without articles, case and punctuation: 2 of 3 words said, 2 of 2 wanted."""
    assert scores.f1("The big red cow.", ["a horse", "Big cow"]) == pytest.approx(0.8)
    assert scores.f1("A horse", ["cow"]) == 0
    assert scores.contains("It was the big cow, she said.", ["a big cow"])
    assert not scores.contains("It was a bigger cow", ["big cow"])


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("The passage does not say.", True),
        ("the passage does not say who", True),
        ("", True),
        ("The passage says so.", False),
    ],
)
def test_a_refusal_is_known_by_its_words(said: str, refused: bool):
    """A model that says more behind it has refused all the same."""
    assert scores.refuses(said, "The passage does not say.") is refused


def test_rouge_counts_each_gram_as_often_as_both_have_it():
    """Bigrams of "the cat sat" and "the cat ran": one of two each way; a second writer may be nearer."""
    assert scores.rouge("The cat sat", ["the cat ran"], 2) == pytest.approx(0.5)
    assert scores.rouge("The cat sat", ["dogs", "the cat sat"], 1) == 1
    assert scores.rouge("the the the", ["the cat"], 1) == pytest.approx(0.4)


def test_unknown_names_are_counted_inside_sentences():
    """The first word of a sentence has its capital anyway."""
    assert scores.unknown_names("Then came Ann. Later Bob and Carl left.", "ann met Bob") == (1, 3)


def test_questions_about_another_place_have_no_answer_in_the_passage():
    """Neither a neighbour's question, whose answer may stand here too, nor one of the gold section."""
    found = cases.with_passage(TALES, None, 0)
    for one in found:
        answers = [
            a
            for tale in TALES
            for q in tale["questions"]
            for a in q["answers"]
            if q["question"] == one.question
        ]
        assert (answers[0] in one.text) is (one.kind == "own")
    kinds = [one.kind for one in found]
    assert kinds.count("own") == kinds.count("foreign") == 6
    assert kinds.count("elsewhere") == 4  # two sections of Ann's four have two that are far, two have one
    assert cases.with_passage(TALES, None, 0) == found != cases.with_passage(TALES, None, 1)


def test_the_gold_place_of_a_whole_story_is_where_its_section_stands():
    """Sections are put in paragraphs; the ranges must hold the section's words."""
    for one in cases.of_stories(TALES, None, 0):
        (start, end) = one.gold[0]
        assert one.answers[0] in one.text[start:end] and one.text[start:end].endswith("late.")


def test_a_sample_is_part_of_the_whole():
    """So many of the same questions."""
    few = {(q.story, q.question) for q in cases.of_stories(TALES, 3, 0)}
    assert len(few) == 3 and few < {(q.story, q.question) for q in cases.of_stories(TALES, None, 0)}


def test_questions_about_books_say_which_are_not_answered(tmp_path: Path):
    """Both files' questions, in one form."""
    fact = {"question": "Who?", "answer_keywords": ["ann"]}
    (tmp_path / "facts.json").write_text(json.dumps({"books": [{"file": "b.txt", "facts": [fact]}]}))
    line = {"book": "a.txt", "question": "When?", "answer": None, "keywords": []}
    (tmp_path / "books.jsonl").write_text(json.dumps(line))
    found = cases.book_questions(tmp_path, tmp_path)
    assert [(one["book"], one["keywords"]) for one in found] == [("a.txt", []), ("b.txt", ["ann"])]


def test_figures_name_what_was_not_run():
    """None, not nought: nothing was measured there."""
    rows = {
        "gold": [
            {"kind": "own", "f1": 0.5, "contains": True, "refused": False},
            {"kind": "own", "f1": 0.0, "contains": False, "refused": True},
            {"kind": "foreign", "refused": False},
            {"kind": "elsewhere", "refused": True},
        ]
    }
    found = run.figures(rows)
    assert (found["f1_gold"], found["refused_own"]) == (0.25, 0.5)
    assert (found["answered_foreign"], found["answered_elsewhere"]) == (1, 0)
    assert found["f1_story"] is None and found["rouge1"] is None
    (table,) = run.reading_tables(found)
    assert len(table.rows) == 5 and table.notes == ("4 questions with a passage.",)


@pytest.mark.parametrize(("found", "hit"), [((0, 100), True), ((80, 200), False), ((40, 60), True)])
def test_a_passage_is_right_when_it_holds_most_of_the_section(found: tuple[int, int], hit: bool):
    """Or lies in it; a passage that only touches the section is none."""
    assert run._overlap((10, 90), found) is hit
