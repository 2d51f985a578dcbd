"""Which cases of a grid run when. A test function with several independent parameters is a grid: the first
tier meets each value of each parameter once, `--all` each pair of values, and the full product runs where its
file is named or with `--slow`. A list of cases written by hand is one parameter: every case is met.

What the first tier leaves out carries the marker `wide` (also set by hand, on what is not worth its time in
every run, and on what needs books that are not in the repository), and what pairs leave out `whole` besides.
`installer/start.py` chooses by these two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Sequence
from heapq import heapify, heapreplace
from itertools import combinations

import pytest

Case = tuple[Hashable, ...]  # what stands for its value on each axis of the grid


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that a tier leaves out, before pytest looks at the markers."""
    grids: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("wide")
        if hasattr(item, "callspec") and not any(item.iter_markers("slow")):
            grids[item.nodeid.partition("[")[0]].append(item)

    for items_of_one in grids.values():
        cases = [place(item) for item in items_of_one]
        left_out = {number for number, item in enumerate(items_of_one) if any(item.iter_markers("wide"))}
        singles = covering(cases, strength=1, without=left_out)
        pairs = covering(cases, strength=2, begun=singles)
        for number, item in enumerate(items_of_one):
            if number not in singles:
                item.add_marker("wide")
            if number not in pairs:
                item.add_marker("whole")


def place(item: pytest.Function) -> Case:
    """One axis for each `parametrize`, whatever it names, and one for each fixture's `params`."""
    values = dict(item.callspec.params)
    axes = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if isinstance(mark.args[0], str) else ",".join(mark.args[0])
        axes.append(tuple(id(values.pop(name.strip())) for name in names.split(",")))
    return (*axes, *map(id, values.values()))


def first(cases: Sequence[object], n: int = 1) -> list[pytest.ParameterSet]:
    """For `parametrize`: all cases, of which the first tier meets the first `n`."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*one, marks=[pytest.mark.wide] * (number >= n)) for number, one in enumerate(values)]


def covering(
    cases: Sequence[Case], *, strength: int, begun: Sequence[int] = (), without: Collection[int] = ()
) -> list[int]:
    """Numbers of few cases, `begun` first, that show every combination of `strength` values that any shows
    but for those `without`.

    Greedy, and the same in every process; of cases that show as much, the one whose values were seen least.
    """
    size = min(strength, len(cases[0]))
    shown = [set(combinations(enumerate(case), size)) for case in cases]
    numbers = [number for number in range(len(cases)) if number not in without]
    missing = set().union(*(shown[number] for number in numbers))
    seen: Counter[Hashable] = Counter()
    chosen: list[int] = []

    def worth(number: int) -> tuple[int, int, int]:
        """What is least is taken first. It only ever grows, with what is taken."""
        return (-len(shown[number] & missing), sum(seen[value] for value in enumerate(cases[number])), number)

    def take(number: int) -> None:
        chosen.append(number)
        missing.difference_update(shown[number])
        seen.update(enumerate(cases[number]))

    for number in begun:
        take(number)
    heap = [worth(number) for number in numbers] if missing else []
    heapify(heap)
    while missing:
        now = worth(heap[0][2])
        if now == heapreplace(heap, now):
            take(now[2])
    return chosen
