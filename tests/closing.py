"""What a run says of its time at its end: the slowest tests, and the whole beside a fixed piece of
arithmetic, so that runs on different machines can be compared.
"""

from __future__ import annotations

import time
from collections import Counter
from statistics import median

import pytest

_SLOWEST = 20
_TIMES = 3  # before the tests, and behind them once more


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process of xdist reports to the one that started it
        config.pluginmanager.register(Timekeeper(), "timekeeper")


def arithmetic_s() -> float:
    """Seconds of a fixed piece of arithmetic."""
    began = time.perf_counter()
    sum(number * number % 7 for number in range(2_000_000))
    return time.perf_counter() - began


class Timekeeper:
    """Seconds by test, set-up and tear-down with it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._held_to: list[str] = []  # instruction sets that tests/test_instruction_sets.py tried
        self._arithmetic: list[float] = []
        self._began = time.perf_counter()

    def pytest_sessionstart(self) -> None:
        self._arithmetic = [arithmetic_s() for _ in range(_TIMES)]
        self._began = time.perf_counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        name, _, case = report.nodeid.partition("[")
        if name.endswith("::test_the_exact_suites") and report.when == "call" and report.passed:
            self._held_to.append(case.rstrip("]"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.seconds:
            return
        took = time.perf_counter() - self._began
        self._arithmetic += [arithmetic_s() for _ in range(_TIMES)]

        terminalreporter.section(f"the slowest {_SLOWEST}")
        for name, seconds in self.seconds.most_common(_SLOWEST):
            terminalreporter.write_line(f"{seconds:8.2f} s  {name}")
        if self._held_to:
            sets = ", ".join(sorted(self._held_to))
            terminalreporter.write_line(
                f"the exact suites ran as it is, and held to: {sets} (none: torch alone)"
            )
        piece = median(self._arithmetic)
        terminalreporter.write_line(
            f"{took:.0f} s ({sum(self.seconds.values()):.0f} s over all processes), which is "
            f"{took / piece:.0f} times a fixed piece of arithmetic ({piece:.3f} s)"
        )
