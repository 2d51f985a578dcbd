"""How far a download or a copy of a model is, and how fast. Values; no HTML here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_PACE_S, _LEAST_PACE_S = 15.0, 1.0  # seconds of a download that say how fast it is


@dataclass(frozen=True, slots=True)
class Transfer:
    """The download, or a copy. `state`: running | paused | failed | copying. `bytes_per_s` and `left_s`:
    None until known.
    """

    name: str
    stage: str = ""
    fraction: float | None = None
    state: str = "running"
    error: str = ""
    bytes_per_s: float | None = None
    left_s: float | None = None


class StageEstimate:
    """How long the stage lasts that something is in. `clock` in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._stage = clock, ""
        self._pace = DownloadSpeed(1, clock)

    def left_s(self, stage: str, fraction: float | None) -> float | None:
        """Seconds until it is over, now that so much of it is done; None while it cannot be said."""
        if stage != self._stage:
            self._stage, self._pace = stage, DownloadSpeed(1, self._clock)
        return self._pace.at(fraction)[1]


class DownloadSpeed:
    """How fast a download is, by what the last seconds brought. `clock` in seconds."""

    def __init__(self, total_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._clock = total_bytes, clock
        self._seen: deque[tuple[float, float]] = deque()

    def at(self, fraction: float | None) -> tuple[float | None, float | None]:
        """(bytes per second, seconds left) now that so much is there; None while it cannot be said."""
        if fraction is None:
            self._seen.clear()
            return None, None
        now = self._clock()
        if self._seen and fraction < self._seen[-1][1]:  # another stage: what was fetched is checked
            self._seen.clear()
        self._seen.append((now, fraction))
        while now - self._seen[0][0] > _PACE_S:
            self._seen.popleft()
        then, before = self._seen[0]
        if now - then < _LEAST_PACE_S or fraction <= before:
            return None, None
        share_per_s = (fraction - before) / (now - then)
        return share_per_s * self._total, (1 - fraction) / share_per_s
