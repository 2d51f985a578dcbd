"""What a benchmark has measured so far, case by case in a file, so that a run which was stopped is gone on
with.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.results import RESULTS
from benchmarks.speed.forward_times import OutOfTime


class Cases:
    """Finished cases by name, in a JSON file that each one goes to at once, and the time that the run may
    take.

    Figures taken under different `conditions` (plain values) must not stand in one table: a file with others
    is refused. Raises SystemExit then.
    """

    def __init__(
        self,
        path: Path,
        conditions: dict[str, Any],
        *,
        minutes: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._conditions, self._clock = path, json.loads(json.dumps(conditions)), clock
        self._deadline = clock() + 60 * minutes
        kept = (
            json.loads(path.read_text(encoding="utf-8"))
            if path.is_file()
            else {"conditions": self._conditions, "cases": {}}
        )
        if kept["conditions"] != self._conditions:
            raise SystemExit(
                f"{path} was measured with {kept['conditions']}, now it is {self._conditions}. Delete it, or "
                "name another "
                "file with --state."
            )
        self.done: dict[str, Any] = kept["cases"]

    def out_of_time(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._clock() > self._deadline

    def left_s(self) -> float:
        """Seconds until then, at least a little."""
        return max(1.0, self._deadline - self._clock())

    def left(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are not done."""
        return [name for name in names if name not in self.done]

    def measure(self, name: str, case: Callable[[], Any]) -> None:
        """Does one case and keeps what it returns (plain values); one that is done already is not done again.

        Raises OutOfTime when the time is over before it, or within it as `case` says.
        """
        if name in self.done:
            return
        if self.out_of_time():
            raise OutOfTime
        found = json.loads(json.dumps(case()))
        self.done[name] = found
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(
            json.dumps({"conditions": self._conditions, "cases": self.done}, indent=1), encoding="utf-8"
        )
        part.replace(self._path)

    def measure_all(
        self, every: Mapping[str, Callable[[], Any]], short: Callable[[Any], Any] = lambda found: found
    ) -> list[str]:
        """Does what is missing of `every` until the time is over, and prints each as `short` says it. Returns
        the names that are left.
        """
        try:
            for name, case in every.items():
                self.measure(name, case)
                print(name, short(self.done[name]), flush=True)
        except OutOfTime:
            pass
        return self.left(list(every))


def add_resume_options(parser: argparse.ArgumentParser, name: str, *, minutes: float = 60.0) -> None:
    """The options that every resumable benchmark has; `name` is that of its results."""
    parser.add_argument(
        "--minutes",
        type=float,
        default=minutes,
        help="nothing is begun after so long; started again, it goes on",
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=RESULTS.parent / f"{name}-cases.json",
        help="finished cases; delete it to start over",
    )
    parser.add_argument("--save", metavar="NAME", help="name of the result below --folder")
    parser.add_argument("--folder", type=Path, default=RESULTS)
