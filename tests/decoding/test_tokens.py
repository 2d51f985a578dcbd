"""Tokens with a draft behind them are read in place: what a round costs does not grow with the book."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.decoding.randomness import SeededRandomness
from core.decoding.tokens import Tokens
from tests.support.loop import Loop
from tests.support.toys import ToyModel

IDS = st.lists(st.integers(0, 9), max_size=6)
AT = st.one_of(st.none(), st.integers(-15, 15))


@given(base=IDS, tail=IDS, more=IDS, start=AT, stop=AT)
def test_reads_as_the_joined_list(
    base: list[int], tail: list[int], more: list[int], start: int | None, stop: int | None
):
    """Every index and slice, on both sides of the border, also after the draft has grown."""
    view = Tokens(Tokens(base, tail), grown := [])
    grown.extend(more)
    joined = [*base, *tail, *more]
    assert list(view) == joined and len(view) == len(joined)
    assert view[start:stop] == joined[start:stop]
    for index in range(-len(joined), len(joined)):
        assert view[index] == joined[index]
    for index in (len(joined), -len(joined) - 1):
        with pytest.raises(IndexError):
            view[index]


class Counted(list):
    """Counts the tokens that are read."""

    reads = 0

    def __getitem__(self, index):
        got = super().__getitem__(index)
        self.reads += len(got) if isinstance(index, slice) else 1
        return got

    def __iter__(self):
        self.reads += len(self)
        return super().__iter__()


@pytest.mark.parametrize("drafter", ["model", "ngram"])
@pytest.mark.parametrize("middle", ["none", "retrieval"])
def test_a_round_does_not_reread_the_book(drafter: str, middle: str):
    """Copying or comparing all tokens in every inner round takes milliseconds at 128K."""
    loop = Loop(
        drafter=drafter, middle=middle, gamma=4, middle_gamma=3, penalty=1.2, prompt=(0, 1, 2, 1, 0) * 400
    )
    decoder = loop.build(SeededRandomness(0), ToyModel(11))
    committed = Counted(loop.prompt)
    for round_number in range(12):
        committed.reads = 0
        committed.extend(decoder.round(committed, most=1_000).tokens)
        assert round_number < 2 or committed.reads < 500  # the first two feed the caches and the index
