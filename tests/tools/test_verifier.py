"""The verifier is learned from its table, and from nothing else."""

from __future__ import annotations

import json
import math

import pytest

from core.paths import ROOT
from tools.embedded_reader.verifier import (
    AskedQuestion,
    JudgedAnswer,
    is_right,
    judged_by_folds,
    learned,
    load_table,
    mark_weights,
    save_table,
    thresholds,
    verifier,
)

TABLE = ROOT / "tools" / "embedded_reader" / "verifier-table.json.gz"
SHORT = TABLE.with_name("verifier-short-table.json.gz")
SHIPPED = ROOT / "assets" / "models" / "smollm2-135m-reader" / "verifier.json"


def test_learning_it_anew_gives_what_is_shipped():
    """Float64 and Newton's method: another machine's last bits do not reach the sixth place."""
    held = json.loads(SHIPPED.read_text(encoding="utf-8"))
    found = verifier(load_table(TABLE), load_table(SHORT))
    assert list(found["weights"]) == list(held["weights"])
    assert list(found["weights"].values()) == pytest.approx(list(held["weights"].values()), abs=2e-6)
    others = ("bias", "given", "marked", "given_short", "expected", "refusals")
    assert [found[name] for name in others] == pytest.approx([held[name] for name in others], abs=2e-3)


def test_questions_that_were_left_out_are_judged_as_the_log_says():
    """A verifier that is worse than the one that was measured must not be shipped by accident."""
    asked = load_table(TABLE)
    found = judged_by_folds(asked, asked)
    weights = mark_weights(found)
    given, marked = thresholds(found, weights)
    answered = [one for one in found if one.score >= given]
    right, wrong = ([one for one in answered if one.hit is hit] for hit in (True, False))
    assert len(asked) == 207
    assert len(wrong) <= 0.15 * len(found) and len(right) / len(answered) >= 0.6

    def sure(given: list[JudgedAnswer]) -> float:
        return sum(one.surety(weights) >= marked for one in given) / len(given)

    assert sure(wrong) <= 0.05 and sure(right) >= 0.4


def test_what_all_answers_together_promise_marks_half_as_many_again():
    """By its own odds alone a third of the right answers bore a mark; of the wrong ones a twentieth does."""
    asked = load_table(TABLE)
    found = judged_by_folds(asked, asked)
    marks = []
    for weights in ((0.0, 0.0), mark_weights(found)):
        given, marked = thresholds(found, weights)
        marks.append(sum(one.hit for one in found if one.score >= given and one.surety(weights) >= marked))
    assert marks[1] >= 1.4 * marks[0]


def test_of_short_texts_more_is_given_than_with_a_books_threshold():
    """Few passages could agree: with a book's threshold 9 of 15 right answers were refused."""
    asked, short = load_table(TABLE), load_table(SHORT)
    found, held = judged_by_folds(asked, short), json.loads(SHIPPED.read_text(encoding="utf-8"))
    assert len(short) == 39 and len(found) % 39 == 0, "each question is one of those about the books"
    given = [one.hit for one in found if one.score >= held["given_short"]]
    strict = [one.hit for one in found if one.score >= held["given"]]
    assert given.count(False) <= 0.2 * len(found) + 1
    assert sum(given) >= 1.3 * sum(strict)


def test_what_tells_right_from_wrong_is_learned_and_every_question_weighs_the_same():
    """One question with many wrong candidates must not drown the others."""
    plain = [AskedQuestion("b", str(at), (((1.0, 0.5), True), ((0.0, 0.5), False))) for at in range(20)]
    _bias, weights = learned(plain)
    assert weights[0] > 1 and abs(weights[1]) < 1e-6
    crowded = AskedQuestion("b", "x", tuple(((1.0, 0.5), False) for _ in range(200)))
    assert learned([*plain, crowded])[1][0] > 0.5


def test_thresholds_let_as_many_wrong_ones_through_as_they_may():
    found = [JudgedAnswer(10.0 - at, 0.0, 0.0, at % 5 != 4) for at in range(20)]  # wrong: number 4, 9, 14, 19
    given, marked = thresholds(found, (0.0, 0.0))
    assert sum(not one.hit for one in found if one.score >= given) == 3  # .15 of 20
    assert not any(not one.hit for one in found if one.score >= marked)
    assert thresholds([JudgedAnswer(1.0, 0.0, 0.0, False)], (0.0, 0.0)) == (float("inf"), float("inf"))


def test_a_mark_counts_what_is_expected_among_all_answers_that_are_given():
    """Of two with one score the one is marked whose question has more that is likely right."""
    scores = [at % 2 for at in range(10)]
    hits = [(score, hit) for at, score in enumerate(scores) for hit in (score > 0, at > 7)]
    lone = [JudgedAnswer(score, 0.5, 0.5, hit) for score, hit in hits]
    many = [JudgedAnswer(score, 3.0, 0.5, True) for score in scores]
    expected, refused = weights = mark_weights([*lone, *many])
    assert expected > 0.1 and abs(refused) < 1e-6
    doubted, sure = JudgedAnswer(1.0, 0.5, 0.5, False), JudgedAnswer(1.0, 3.0, 0.5, True)
    unlikely = [JudgedAnswer(-9.0, 9.0, 0.5, False)] * 5  # much is expected, and nothing given
    assert thresholds([*[doubted] * 3, *[sure] * 17, *unlikely], weights) == (1.0, sure.surety(weights))
    quiet = [one._replace(expected=0.5, refusals=0.9) for one in many]
    assert mark_weights([*lone, *quiet])[1] > 0.1
    nothing = JudgedAnswer(float("-inf"), 0.0, 1.0, False)
    assert mark_weights([nothing, *lone, *many]) == pytest.approx(weights)
    assert mark_weights([nothing]) == mark_weights(many) == (0.0, 0.0)


def test_a_question_is_judged_once_in_each_order_by_what_was_not_taught_on_it():
    """A verifier that had seen a question would know its answer; one order of folds is a throw of dice."""
    blank = (0.0,) * 5
    plain = [AskedQuestion("b", str(at), (((*blank, float(at % 2)), at % 2 == 0),)) for at in range(20)]
    odd = AskedQuestion("b", "odd", (((*blank, 0.0), False),))
    found = judged_by_folds([*plain, odd], [odd])
    assert len(found) > 1 and not any(one.hit for one in found)
    seen = learned([*plain, odd])[0]
    assert all(one.score > seen for one in found), "what is wrong at 0 was left out"
    assert len({round(one.score, 6) for one in found}) > 1
    assert all(one.expected == pytest.approx(1 / (1 + math.exp(-one.score))) for one in found)


def test_a_table_is_what_was_saved(tmp_path):
    asked = [AskedQuestion("b", "q", (((1.0, -0.25), True),)), AskedQuestion("b", "none", ())]
    save_table(tmp_path / "t.gz", asked)
    assert load_table(tmp_path / "t.gz") == asked


@pytest.mark.parametrize(
    ("said", "keywords", "hit"),
    [
        ("The Eloi.", ["eloi"], True),
        ("Red weed", ["blue|red", "weed"], True),
        ("Red", ["red", "weed"], False),
    ],
)
def test_right_is_what_has_all_keywords(said, keywords, hit):
    assert is_right(said, keywords) is hit
    assert not is_right(said, None)
