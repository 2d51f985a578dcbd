"""One line on what the setup is doing: rewritten on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

QUIET_S = 20.0  # between two lines where nothing can be rewritten


class SetupProgress:
    """Writes to `stream` (stderr), so that a command's output on stdout stays clean."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._rewrites = self._stream.isatty()
        self._started = self._last = time.monotonic()
        self._open = False  # whether the line on the terminal is unfinished
        self._title = ""

    def step(self, title: str) -> None:
        """A new step begins."""
        self._title = title
        self._finish_line()
        self._write(f"{title} ...", keep=not self._rewrites)

    def update(self, detail: str) -> None:
        """What is happening within the step."""
        now = time.monotonic()
        if self._rewrites:
            self._write(f"{self._title}: {detail}  [{_clock(now - self._started)}]", keep=False)
        elif now - self._last > QUIET_S:
            self._write(f"{self._title}: {detail}  [{_clock(now - self._started)}]", keep=True)

    def note(self, text: str) -> None:
        """A sentence that stays on the screen."""
        self._finish_line()
        self._write(text, keep=True)

    def done(self, text: str) -> None:
        """The end of all steps."""
        self._finish_line()
        self._write(f"{text} ({_clock(time.monotonic() - self._started)})", keep=True)

    def _write(self, text: str, *, keep: bool) -> None:
        self._last = time.monotonic()
        if self._rewrites:
            width = max(shutil.get_terminal_size().columns - 1, 20)
            text = "\r" + text[:width].ljust(width) if not keep else "\r" + text
        try:
            self._stream.write(text + ("\n" if keep else ""))
            self._stream.flush()
        except UnicodeEncodeError:  # an old console's code page
            self._stream.write(text.encode("ascii", "replace").decode() + ("\n" if keep else ""))
        self._open = not keep

    def _finish_line(self) -> None:
        if self._open:
            self._stream.write("\n")
            self._open = False


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
