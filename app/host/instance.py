"""One app per data folder: the lock, the address of the one that runs, and a port to listen on. Knows nothing
of pages.
"""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock

from app.host.secrets import write_if_room

_TOLD_S = 5.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where an app listens, and the secret that its codes are given for."""

    port: int
    secret: str
    pid: int

    @property
    def cookie(self) -> str:
        """Its name: cookies of 127.0.0.1 are shared by all its ports."""
        return f"triforce_{self.port}"

    def told(self, path: str, text: str) -> str:
        """Sends the app some text. What it says to it; nothing where there is none that took it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=text.encode(),
            headers={"Cookie": f"{self.cookie}={self.secret}", "Content-Type": "text/plain; charset=utf-8"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_TOLD_S) as answer:
                return answer.read().decode()
        except OSError:
            return ""


class Instance:
    """Holds the lock of a data folder while the app runs; the system frees it even when the app is killed."""

    def __init__(self, folder: Path) -> None:
        self._lock = filelock.FileLock(folder / "app.lock", timeout=0)
        self._file = folder / "app.json"

    def acquire(self) -> bool:
        """True when no other app runs on this data folder."""
        try:
            self._lock.acquire()
        except filelock.Timeout:
            return False
        self._file.unlink(missing_ok=True)  # the address of an app that was killed
        return True

    def announce(self, address: Address) -> None:
        """Lets a second start find this one. Readable by this user only: it holds the secret."""
        write_if_room(self._file, json.dumps(asdict(address)))

    def running(self) -> Address | None:
        """The address of the app that holds the lock; None while it is still starting."""
        try:
            return Address(**json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def release(self) -> None:
        """Gives the folder free."""
        self._file.unlink(missing_ok=True)
        self._lock.release()


def kept_port(preferred: int, file: Path) -> int:
    """The port that was used last in place of the `preferred` one, as long as it is free: bookmarks and the
    addresses of other programs stay. `file` keeps it. 0: any free port, which is not kept.
    """
    if not preferred:
        return free_port(0)
    try:
        before = json.loads(file.read_text(encoding="utf-8")).get(str(preferred), preferred)
    except (OSError, ValueError, AttributeError):
        before = preferred
    before = before if isinstance(before, int) and 0 < before < 65536 else preferred
    found = free_port(before)
    if found != before:
        found = free_port(preferred)
    write_if_room(file, json.dumps({str(preferred): found}))
    return found


def free_port(preferred: int) -> int:
    """The preferred port if nobody listens on it, else any free one."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name != "nt":  # there the option would allow taking a port that is in use
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise OSError("no free port on 127.0.0.1")
