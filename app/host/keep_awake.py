"""Keeps the computer from falling asleep while the app reads, answers or downloads, and no longer.

Windows is asked through SetThreadExecutionState, macOS through `caffeinate`, Linux through `systemd-inhibit`
where there is one. The screen may go dark. Where nothing of this is there, the log says so once.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

log = logging.getLogger(__name__)
WHY = "Reading a book"
# winbase.h: until it is said otherwise, and only the system, not the display
_CONTINUOUS, _SYSTEM_REQUIRED = 0x80000000, 0x00000001
_END_WAIT_S = 5.0


class Inhibitor(Protocol):
    """One way to keep a computer awake. Called from one thread."""

    def hold(self) -> bool:
        """From now on; whether it could be done."""

    def release(self) -> None:
        """No longer."""


class WindowsState:
    """A state of the calling thread: hold and release must come from the same one."""

    def __init__(self, kernel: Any = None) -> None:
        self._kernel = kernel or ctypes.windll.kernel32

    def hold(self) -> bool:
        """See Inhibitor."""
        return bool(self._kernel.SetThreadExecutionState(_CONTINUOUS | _SYSTEM_REQUIRED))

    def release(self) -> None:
        """See Inhibitor."""
        self._kernel.SetThreadExecutionState(_CONTINUOUS)


class Helper:
    """A program that keeps the computer awake as long as it runs. It ends by itself when this process is
    gone: its input is a pipe of ours, or it watches our id.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self) -> bool:
        """See Inhibitor."""
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._process.wait(0.3)
        except subprocess.TimeoutExpired:  # it runs, as it should
            return True
        except OSError:
            pass
        self._process = None
        return False

    def release(self) -> None:
        """See Inhibitor."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()  # what runs under systemd-inhibit reads it, and ends with it
            process.terminate()
        try:
            process.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def inhibitor(
    platform: str = sys.platform, which: Callable[[str], str | None] = shutil.which
) -> Inhibitor | None:
    """What this system has; None where it has nothing."""
    if platform == "win32":
        return WindowsState()
    if platform == "darwin" and (program := which("caffeinate")):
        return Helper([program, "-i", "-w", str(os.getpid())])
    if platform.startswith("linux") and (program := which("systemd-inhibit")):
        asked = ["--what=idle:sleep", "--mode=block", "--who=TriForce Chat", f"--why={WHY}"]
        return Helper([program, *asked, "cat"])
    return None


class KeepAwake:
    """Looks on a thread of its own whether there is work whenever `look` is called, and holds the computer
    awake while there is.
    """

    def __init__(self, working: Callable[[], bool], by: Callable[[], Inhibitor | None] = inhibitor) -> None:
        self._working, self._by = working, by
        self._bell = threading.Condition()
        self._rung, self._closed = True, False
        self.held = False
        self._thread = threading.Thread(target=self._run, name="awake", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Something changed. From any thread, also with locks held."""
        with self._bell:
            self._rung = True
            self._bell.notify_all()

    def close(self) -> None:
        """Lets the computer sleep again, for good."""
        with self._bell:
            self._closed = True
            self._bell.notify_all()
        self._thread.join()

    def _run(self) -> None:
        by = self._by()
        if by is None:
            log.warning("nothing here keeps the computer awake while a book is read")
            return
        refused = False
        while self._wait():
            wanted = self._working()
            if wanted and not self.held and not refused:
                self.held = by.hold()
                refused = not self.held
                if refused:
                    log.warning("the computer cannot be kept awake: the system refused")
                else:
                    log.info("the computer is kept awake")
            elif self.held and not wanted:
                by.release()
                self.held = False
                log.info("the computer may sleep")
        if self.held:
            by.release()
            self.held = False

    def _wait(self) -> bool:
        with self._bell:
            self._bell.wait_for(lambda: self._rung or self._closed)
            self._rung = False
            return not self._closed
