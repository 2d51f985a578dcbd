"""How long loading a model takes on this machine: measured at every load, and said at the next. Knows nothing
of models but how many bytes their weights are.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from core.hardware.measured import Measurements

# {"before_s", "bytes_per_s", "after_s": of the last load; "bytes": of each wish}
LOADING = "loading a model"
_MOST_SIZES = 30
_PACE_SHARE = 0.2  # of the weights, before their own pace says more than the last load's


class LoadTime:
    """One load: the machine is looked at, weights are read, the rest is made ready. `wish`: what the person
    chose; the same wish has the same size. `clock` in seconds.
    """

    def __init__(
        self, measured: Measurements, wish: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measured, self._wish, self._clock = measured, wish, clock
        self._known = measured.get(LOADING) or {}
        self._sizes: dict[str, int] = dict(self._known.get("bytes", {}))
        self._began = clock()
        self._before_s = 0.0
        self._weights_at: float | None = None
        self._ready_at: float | None = None  # the weights are read
        self._first: tuple[float, float] | None = None  # when the first share was read, and how much it was
        self._share = 0.0

    def planned(self, weight_bytes: int) -> None:
        """The model and its size are known."""
        self._before_s = self._clock() - self._began
        self._sizes[self._wish] = weight_bytes

    def reading(self) -> None:
        """Its weights are read from now on; what had to be fetched first is over."""
        self._weights_at = self._clock()

    def read(self, share: float) -> None:
        """So much of the weights is read, 0 to 1."""
        self._share = share
        if share and self._first is None:
            self._first = self._clock(), share
        if share >= 1 and self._ready_at is None:
            self._ready_at = self._clock()

    def left_s(self) -> float | None:
        """Seconds until it is loaded; None where no load was measured, and where that time is over.

        The pace of the weights counts from the first share on: before it Python imports what reads them.
        """
        now, after_s = self._clock(), self._known.get("after_s")
        if self._ready_at is not None:
            left = None if after_s is None else after_s - (now - self._ready_at)
        elif self._first is not None and (read := self._share - self._first[1]) >= _PACE_SHARE:
            left = (now - self._first[0]) * (1 - self._share) / read + (after_s or 0.0)
        elif after_s is None or self._wish not in self._sizes:
            left = None
        else:
            weights_s = self._sizes[self._wish] / self._known["bytes_per_s"]
            gone = now - (self._began if self._weights_at is None else self._weights_at)
            before_s = self._known["before_s"] if self._weights_at is None else 0.0
            left = before_s + weights_s + after_s - gone
        return left if left is not None and left > 0 else None

    def done(self) -> None:
        """Keeps what was measured."""
        if self._weights_at is None or self._ready_at is None:
            return
        took_s = max(self._ready_at - self._weights_at, 1e-3)
        sizes = {name: self._sizes[name] for name in list(self._sizes)[-_MOST_SIZES:]}
        kept = {
            "before_s": self._before_s,
            "bytes_per_s": self._sizes[self._wish] / took_s,
            "after_s": self._clock() - self._ready_at,
            "bytes": sizes,
        }
        self._measured.put(LOADING, kept)
