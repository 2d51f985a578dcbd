"""What the end of the last tab means: the app goes on, or ends a little later, as the person chose."""

from __future__ import annotations

import threading
from collections.abc import Callable

GRACE_S = 15.0  # a page that is loaded anew, a browser that starts again
AGAIN_S = 5.0  # while something is still being read


class LastTab:
    """Calls `end` some seconds after the last tab was closed, once nothing is at work, unless one is open
    again or that is not `wanted`. Calls `gone` first, whatever is wanted.
    """

    def __init__(
        self,
        *,
        wanted: Callable[[], bool],
        open_tabs: Callable[[], int],
        working: Callable[[], bool],
        end: Callable[[], None],
        gone: Callable[[], None] = lambda: None,
        grace_s: float = GRACE_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._wanted, self._open_tabs, self._working, self._end = wanted, open_tabs, working, end
        self._gone = gone
        self._grace_s, self._again_s = grace_s, again_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def left(self) -> None:
        """No tab is open any more. From any thread."""
        self._look_in(self._grace_s)

    def _look_in(self, seconds: float) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(seconds, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        if self._open_tabs():
            return
        self._gone()
        if not self._wanted():
            return
        if self._working():
            self._look_in(self._again_s)
        else:
            self._end()
