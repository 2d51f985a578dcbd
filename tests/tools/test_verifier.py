"""The verifier is learned from its table, and from nothing else."""

from __future__ import annotations

import json

import pytest

from core.paths import ROOT
from tools.embedded_reader.verifier import (
    AskedQuestion,
    is_right,
    judged_by_folds,
    learned,
    load_table,
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
    others = ("bias", "given", "marked", "given_short")
    assert [found[name] for name in others] == pytest.approx([held[name] for name in others], abs=2e-3)


def test_questions_that_were_left_out_are_judged_as_the_log_says():
    """A verifier that is worse than the one that was measured must not be shipped by accident."""
    asked = load_table(TABLE)
    found = judged_by_folds(asked, asked)
    given, marked = thresholds(found)
    answered = [hit for score, hit in found if score >= given]
    sure = [hit for score, hit in found if score >= marked]
    assert len(asked) == 207
    assert answered.count(False) <= 0.15 * len(found) and sum(answered) / len(answered) >= 0.6
    assert sure.count(False) <= 0.1 * answered.count(False) and sum(sure) / sum(answered) >= 0.3


def test_of_short_texts_more_is_given_than_with_a_books_threshold():
    """Few passages could agree: with a book's threshold 9 of 15 right answers were refused."""
    asked, short = load_table(TABLE), load_table(SHORT)
    found, held = judged_by_folds(asked, short), json.loads(SHIPPED.read_text(encoding="utf-8"))
    assert len(short) == 39 and len(found) % 39 == 0, "each question is one of those about the books"
    given = [hit for score, hit in found if score >= held["given_short"]]
    strict = [hit for score, hit in found if score >= held["given"]]
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
    scores = [(10.0 - at, at % 5 != 4) for at in range(20)]  # wrong: number 4, 9, 14, 19
    given, marked = thresholds(scores)
    assert sum(not hit for score, hit in scores if score >= given) == 3  # .15 of 20
    assert not any(not hit for score, hit in scores if score >= marked)
    assert thresholds([(1.0, False)]) == (float("inf"), float("inf"))


def test_a_question_is_judged_once_in_each_order_by_what_was_not_taught_on_it():
    """A verifier that had seen a question would know its answer; one order of folds is a throw of dice."""
    plain = [AskedQuestion("b", str(at), (((float(at % 2),), at % 2 == 0),)) for at in range(20)]
    odd = AskedQuestion("b", "odd", (((0.0,), False),))
    found = judged_by_folds([*plain, odd], [odd])
    assert len(found) > 1 and not any(hit for _score, hit in found)
    seen = learned([*plain, odd])[0]
    assert all(score > seen for score, _hit in found), "what is wrong at 0 was left out"
    assert len({round(score, 6) for score, _hit in found}) > 1


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
