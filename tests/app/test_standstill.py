"""When a process that has work is said to stand still; what is looked at is given, so no clock decides."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.engine.standstill import LEAST_CPU_S, LOOKS, Standstill, spent_s


def looks(*given: tuple[int, float | None]) -> list[bool]:
    seen = Standstill()
    return [seen.look(heard, spent) for heard, spent in given]


def test_nothing_said_and_nothing_spent_is_a_standstill():
    assert looks(*[(3, 7.0)] * (LOOKS + 3)) == [False] * LOOKS + [True] * 3


def test_a_thread_that_only_waits_is_no_work():
    """One of the worker's looks every second whether its parent lives."""
    ticks = [(3, 7.0 + LEAST_CPU_S / 10 * look / LOOKS) for look in range(LOOKS + 1)]
    assert looks(*ticks)[-1]


@pytest.mark.parametrize(
    "life",
    [
        lambda look: (0, 0.02 * look),  # 20 ms in 5 s: two fifths of a percent of a core
        lambda look: (0, 0.25 * (look // 8)),
        lambda look: (look // 10, 0.0),  # it says something now and then
        lambda look: (0, None),  # the system does not tell
    ],
)
def test_what_is_slow_is_not_accused(life):
    """At load 14 on two cores a process has a seventh of one, which is 35 times as much."""
    assert not any(looks(*map(life, range(40 * LOOKS))))


def test_it_goes_on():
    assert looks(*[(3, 7.0)] * (LOOKS + 1), (3, 7.5), *[(3, 7.5)] * LOOKS)[LOOKS:] == [
        True,
        *[False] * LOOKS,
        True,
    ]


def test_time_without_work_does_not_count():
    seen = Standstill()
    for _look in range(LOOKS):
        assert not seen.look(3, 7.0)
    seen.rest()
    assert not any(seen.look(3, 7.0) for _look in range(LOOKS))


def test_what_a_process_spends_is_known_until_it_is_gone():
    code = "import sys; sum(range(10**7)); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    assert spent_s(process.pid) > 0
    process.communicate()
    assert spent_s(process.pid) is None
