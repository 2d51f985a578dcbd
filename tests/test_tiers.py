"""Which cases of a grid run when, and what a run says of its time."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace

import pytest

from tests.closing import Timekeeper
from tests.tiers import covering, first

GRID = list(product("abcd", "xyz", "01", "+-"))


def shown(numbers: list[int], strength: int) -> set[object]:
    return {part for number in numbers for part in combinations(enumerate(GRID[number]), strength)}


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 14), (4, len(GRID))])
def test_every_combination_is_shown_by_few_cases(strength: int, most: int):
    """A pair that no case shows is a bug that no run finds; a full product is what is to be saved."""
    chosen = covering(GRID, strength=strength)
    assert shown(chosen, strength) == shown(range(len(GRID)), strength)
    assert len(chosen) == len(set(chosen)) <= most


def test_a_tier_holds_the_one_before():
    """What the first tier ran is not run in other cases again."""
    singles = covering(GRID, strength=1)
    assert covering(GRID, strength=2, begun=singles)[: len(singles)] == singles


def test_what_is_left_out_is_not_counted_on():
    """A value that only a case marked wide shows is met by that one alone; the others are met without it."""
    chosen = covering(GRID, strength=1, without={0, 1, 2})
    assert not {0, 1, 2} & set(chosen) and shown(chosen, 1) == shown(range(len(GRID)), 1)


def test_cases_of_one_list_are_all_met():
    """Each was written for a reason: they are one axis, however many names they have."""
    assert covering([((1, 2),), ((1, 3),), ((4, 3),)], strength=1) == [0, 1, 2]


def test_the_first_of_a_list():
    assert [[mark.name for mark in one.marks] for one in first(["a", "b", ("c",)], 2)] == [[], [], ["wide"]]


def test_a_run_ends_with_its_slowest_tests_and_a_measure():
    """Its time alone says nothing of another machine; a test's set-up counts, too."""
    keeper, said = Timekeeper(), []
    keeper.pytest_sessionstart()
    for name, seconds in (("a", 0.5), ("b", 2.0), ("a", 0.25), *((f"c{n}", 0.1) for n in range(30))):
        keeper.pytest_runtest_logreport(SimpleNamespace(nodeid=name, duration=seconds))
    keeper.pytest_terminal_summary(SimpleNamespace(section=said.append, write_line=said.append))
    assert [line.split() for line in said[1:3]] == [["2.00", "s", "b"], ["0.75", "s", "a"]]
    assert len(said) == 22 and "times a fixed piece of arithmetic" in said[-1]
