"""Runs beside a noisy neighbour are done again; the calmest counts."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.lib.noise_guard import calmest


class Machine:
    """A clock that the fixed work moves by as much as the script says, in the order of the calls."""

    def __init__(self, *paces: float) -> None:
        self._paces, self.now = list(paces), 0.0

    def work(self) -> None:
        self.now += self._paces.pop(0)

    def clock(self) -> float:
        return self.now


def counted() -> tuple[list[str], Callable[[str], Callable[[], str]]]:
    done: list[str] = []

    def make(name: str) -> Callable[[], str]:
        def run() -> str:
            done.append(name)
            return f"{name}{done.count(name)}"

        return run

    return done, make


def test_what_was_disturbed_is_done_again():
    """The second run had a neighbour at its end; its repetition had none, and that is what counts."""
    machine, (done, make) = Machine(1, 1, 1, 1, 3, 1, 1, 1, 1), counted()
    found = calmest([make("a"), make("b"), make("c")], work=machine.work, clock=machine.clock)
    assert [one.result for one in found] == ["a1", "b2", "c1"] and done == ["a", "b", "c", "b"]
    assert [one.slowdown for one in found] == [1, 1, 1]


def test_a_neighbour_that_stays_is_told():
    """After three tries the calmest of them is taken, with how slow the machine was."""
    machine, (done, make) = Machine(1, 1, 1, 4, 4, 2, 2, 3, 3), counted()
    found = calmest([make("a"), make("b")], work=machine.work, clock=machine.clock)
    assert [one.result for one in found] == ["a1", "b2"] and done == ["a", "b", "b", "b"]
    assert [one.slowdown for one in found] == [1, 2]


def test_the_first_runs_may_have_been_the_slow_ones():
    """What is calm is known only when all were seen."""
    machine, (_, make) = Machine(9, 2, 2, 1, 1, 1, 1), counted()
    found = calmest([make("a"), make("b")], work=machine.work, clock=machine.clock)
    assert [one.result for one in found] == ["a2", "b1"] and [one.slowdown for one in found] == [1, 1]
