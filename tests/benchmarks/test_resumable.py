"""A benchmark that is stopped goes on, keeps to its time, and never mixes figures that do not belong
together.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.lib.resumable import Cases
from benchmarks.speed.forward_times import OutOfTime


def test_what_is_done_is_not_done_again(tmp_path: Path):
    """A rerun after a power cut must not cost the hours again, nor change what was measured."""
    path = tmp_path / "state.json"
    Cases(path, {"tokens": 8}, minutes=1).measure("one", lambda: {"ms": 1.5})
    again = Cases(path, {"tokens": 8}, minutes=1)
    again.measure("one", lambda: pytest.fail("measured twice"))
    again.measure("two", lambda: [2])
    assert again.done == {"one": {"ms": 1.5}, "two": [2]} == json.loads(path.read_text())["cases"]
    assert again.left(["one", "two", "three"]) == ["three"]


def test_other_conditions_are_refused(tmp_path: Path):
    """128 tokens an answer beside 16 in one table."""
    path = tmp_path / "state.json"
    Cases(path, {"tokens": 128}, minutes=1).measure("one", lambda: 1)
    with pytest.raises(SystemExit, match="tokens"):
        Cases(path, {"tokens": 16}, minutes=1)


def test_the_time_limit_holds(tmp_path: Path):
    """Nothing is begun after it, and what was broken off is not kept."""
    now = [0.0]
    state = Cases(tmp_path / "state.json", {}, minutes=1, clock=lambda: now[0])

    def broken_off() -> None:
        raise OutOfTime

    with pytest.raises(OutOfTime):
        state.measure("broken off", broken_off)
    now[0] = 61.0
    with pytest.raises(OutOfTime):
        state.measure("late", lambda: pytest.fail("begun"))
    assert state.done == {} and state.out_of_time()


def test_all_cases_are_measured_until_the_time_is_over(tmp_path: Path, capsys):
    """What is left is said, not lost: started again, the benchmark goes on there."""
    now = [0.0]
    state = Cases(tmp_path / "state.json", {}, minutes=1, clock=lambda: now[0])

    def long() -> dict[str, int]:
        now[0] = 61.0
        return {"ms": 2}

    every = {"one": lambda: {"ms": 1}, "two": long, "three": lambda: pytest.fail("begun")}
    assert state.measure_all(every, lambda found: found["ms"]) == ["three"]
    assert state.done == {"one": {"ms": 1}, "two": {"ms": 2}}
    assert capsys.readouterr().out.splitlines() == ["one 1", "two 2"]
