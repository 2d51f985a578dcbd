"""Lookup in the conversation itself: what is found, what it costs, and that the past alone decides."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from core.decoding.drafters import NgramDrafter
from core.decoding.ngrams import NgramIndex
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.tiny import engine, oracle, ours


def by_definition(ids: list[int], longest: int, shortest: int) -> tuple[int, int] | None:
    """The index behind the most recent earlier occurrence of the longest ending, and that one's length; of
    one token behind the one that is followed by what follows most often.
    """
    for n in range(min(longest, len(ids)), shortest - 1, -1):
        ends = [end for end in range(n, len(ids)) if ids[end - n : end] == ids[-n:]]
        if ends and n == 1:
            times = Counter(ids[end] for end in ends)
            ends = [end for end in ends if times[ids[end]] == max(times.values())]
        if ends:
            return ends[-1], n
    return None


@pytest.mark.parametrize("vocabulary", [2, 5, 40])
def test_the_most_recent_occurrence_of_the_longest_ending(vocabulary: int):
    """Whatever was added, in whatever pieces, and taken back in between."""
    dice = random.Random(vocabulary)
    index, ids = NgramIndex(4), []
    for _ in range(300):
        ids += [dice.randrange(vocabulary) for _ in range(dice.randrange(6))]
        index.follow(ids)
        for shortest in (1, 2, 4):
            assert index.find(longest=4, shortest=shortest) == by_definition(ids, 4, shortest)
        if dice.random() < 0.3:
            kept = dice.randrange(len(ids) + 1)
            del ids[kept:]
            index.forget(kept)


def test_a_changed_past_is_noticed():
    """An index of another conversation would propose from it."""
    index = NgramIndex()
    index.follow([1, 2, 3])
    with pytest.raises(AssertionError, match="changed"):
        index.follow([1, 2, 4, 5])


def test_a_book_takes_half_a_megabyte():
    """Tables of n-grams took 59 MB, and 1.65 s for every answer."""
    index = NgramIndex(131_072)
    index.follow(list(range(131_072)))
    assert index.nbytes == 4 * 131_072


def test_an_index_made_while_reading_proposes_what_one_made_anew_does():
    """A proposal is a function of the tokens before it, whoever looked them up before."""
    ids = [1, 2, 3, 4, 1, 2, 3]
    kept = NgramIndex()
    kept.follow([1, 2, 3, 4, 1, 2, 3, 9, 9])
    kept.forget(5)
    assert NgramDrafter(kept).propose(ids, 4) == NgramDrafter().propose(ids, 4)
    assert NgramDrafter(kept).propose(ids, 4).tokens == (4, 1, 2)


@pytest.mark.parametrize(
    ("ids", "proposed"),
    [
        ([7, 8, 1, 2, 3, 9, 7], (8,)),  # one token found: one proposed
        ([7, 8, 1, 2, 3, 9, 7, 8], (1, 2)),
        ([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4], (5, 6, 7, 8, 1)),  # all four: as many as may be
        ([7, 8, 7, 8, 7, 9, 7], (8,)),  # what follows most often, not what followed last
        ([1, 2, 3], ()),
    ],
)
def test_as_many_tokens_as_were_found(ids: list[int], proposed: tuple[int, ...]):
    """Three tokens were proposed behind two: a fourth row of a pass costs a third of one on a CPU."""
    assert NgramDrafter().propose(ids, 5).tokens == proposed


@pytest.mark.parametrize("mode", ["ngram", "triforce", "autoregressive"])
def test_the_index_lives_with_the_context(mode: str):
    """It knows the prompt before the first proposal, drops what another prompt does not share, and keeps no
    token that was rejected.
    """
    tiny, params = engine(ours(oracle())), replace(GREEDY, mode=mode)
    context = tiny.new_context(400)
    answer, _ = run(tiny, context, PROMPT, params)
    index = context.index
    for ids in ([*PROMPT, *answer, 9, 8], PROMPT[:70] + PROMPT[:40]):
        said, _ = run(tiny, context, ids, params)
        assert context.index is index and len(context.ids) <= len(index) <= len(ids) + len(said)
        index.follow([*ids, *said])
