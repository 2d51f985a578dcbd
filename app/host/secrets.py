"""Who may open the page: one secret, kept with the data until the person quits, and codes that are traded
for it once.

A command line can be read by every user of a PC, and a cookie of 127.0.0.1 goes to all of its ports. So what
a browser is started with is a code of one use, and the page lives on a name of its own.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)
CODE_S = 60.0
MOST_CODES = 16
NAME = re.compile(r"triforce-[0-9a-f]{16}\.localhost")
_FILE = "secret.json"


class Keys:
    """The secret and name of one page, and its codes. Thread-safe."""

    def __init__(self, secret: str, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.secret, self.name = secret, name
        self._clock, self._lock = clock, threading.Lock()
        self._codes: dict[str, float] = {}  # until when

    def code(self) -> str:
        """A fresh code: one use, within CODE_S."""
        made = secrets.token_urlsafe(24)
        with self._lock:
            self._codes[made] = self._clock() + CODE_S
            while len(self._codes) > MOST_CODES:
                self._codes.pop(next(iter(self._codes)))
        return made

    def redeem(self, code: str) -> bool:
        """Whether the code is good; it is not a second time."""
        with self._lock:
            return self._codes.pop(code, 0.0) > self._clock()

    def is_secret(self, given: str) -> bool:
        """Whether it is the secret."""
        return hmac.compare_digest(given.encode(), self.secret.encode())


def kept_keys(folder: Path) -> Keys:
    """Those of the run before, so that its open tabs go on; new ones where there are none."""
    secret, name = _kept(folder)
    if not secret:
        secret = secrets.token_urlsafe(32)
        write_if_room(folder / _FILE, json.dumps({"secret": secret, "name": name}))
    return Keys(secret, name)


def forget_keys(folder: Path) -> None:
    """The next start has another secret: whoever was let in is not any more. What a browser keeps for the
    page (colours, words that were not sent) is kept under its name, which stays.
    """
    name = _kept(folder)[1]
    (folder / _FILE).unlink(missing_ok=True)
    write_if_room(folder / _FILE, json.dumps({"secret": "", "name": name}))


def _kept(folder: Path) -> tuple[str, str]:
    """Secret and name of the run before; "" and a new name where there are none."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        if NAME.fullmatch(kept["name"]):
            return kept["secret"] if len(kept["secret"]) >= 32 else "", kept["name"]
    return "", f"triforce-{secrets.token_hex(8)}.localhost"


def write_private(path: Path, text: str) -> None:
    """Writes a file that this user alone may read, also while it is being written."""
    path.unlink(missing_ok=True)  # one that was there may have wider rights
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def write_if_room(path: Path, text: str) -> None:
    """Likewise, what the app can do without until its next start: a full disk keeps no page away, which says
    what could go.
    """
    try:
        write_private(path, text)
    except OSError as error:
        log.warning("%s could not be written: %s", path.name, error)


def make_private(root: Path, folders: tuple[str, ...]) -> None:
    """What earlier versions left readable for others. A folder that the person named stays as it is; what
    lies in it does not.
    """
    os.umask(0o077)
    for path in (*(root / name for name in folders), *(one for one in root.glob("*") if one.is_file())):
        try:
            path.chmod(0o700 if path.is_dir() else 0o600)
        except OSError:  # of another user, or on a file system without rights
            continue
