"""Whether a process that has work does nothing: it was stopped, hangs, or waits for something that does not
come. Knows nothing of what it works on.
"""

from __future__ import annotations

import psutil

LOOK_S = 5.0  # between two looks
LOOKS = 12  # so often in a row nothing was done
LEAST_CPU_S = 0.2  # ten times what an engine spends in as many looks that only waits


def spent_s(pid: int) -> float | None:
    """CPU seconds that a process has spent; None where the system does not say."""
    try:
        spent = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return spent.user + spent.system


class Standstill:
    """Counts looks at one process. No clock decides: a slow machine that gives it little time still gives it
    some, and behind a sleep of the computer, or where the one that looks is held up too, there was one look.
    """

    def __init__(self) -> None:
        self._looks, self._heard, self._spent_s = 0, -1, 0.0

    def look(self, heard: int, spent: float | None) -> bool:
        """Whether it has stood still for `LOOKS` looks. `heard`: how much it has said. `spent`: `spent_s`."""
        if spent is None or heard != self._heard or spent - self._spent_s >= LEAST_CPU_S:
            self._looks, self._heard, self._spent_s = 0, heard, spent or 0.0
        else:
            self._looks += 1
        return self._looks >= LOOKS

    def rest(self) -> None:
        """It has no work: what it does not do meanwhile says nothing."""
        self._looks, self._heard = 0, -1
