"""Circling answers are noticed, prose and lists are not."""

from __future__ import annotations

import random

from core.text.circling import before_circling, circles, cycle_period, distinct_share


def test_a_passage_said_three_times_is_circling():
    passage = list(range(20))
    assert not circles([99, *passage, *passage])
    assert circles([99, *passage * 3])
    assert cycle_period([99, *passage * 3]) == 20


def test_one_token_for_ever_is_circling():
    assert circles([1, 2, 3] + [7] * 40)
    assert not circles([1, 2, 3] + [7] * 10)


def test_what_was_new_is_kept():
    """The part before the second round is the answer; the rounds after it are noise."""
    passage = list(range(100, 130))
    tokens = [*range(50), *passage * 3, *passage[:7]]
    assert before_circling(tokens) == 50 + len(passage)


def test_ordinary_text_is_left_alone():
    """Words of a language repeat, but not as 4-grams."""
    random.seed(1)
    tokens = random.choices(range(400), weights=[1 / (i + 1) for i in range(400)], k=2000)
    assert not any(circles(tokens[:end]) for end in range(1, 2000, 7))


def test_loose_circling_is_noticed_by_its_4_grams():
    """The same few sentences in changing order have no period."""
    random.seed(2)
    sentences = [[10 * i + j for j in range(12)] for i in range(3)]
    tokens = [token for _ in range(30) for token in random.choice(sentences)]
    assert distinct_share(tokens) < 0.5
    assert circles(tokens)
    assert before_circling(tokens) < 120


def test_short_texts_have_full_share():
    assert distinct_share([1, 2]) == 1.0
    assert distinct_share([1, 2, 1, 2, 1, 2, 1, 2]) == 0.4
