"""The key by which other programs are let in. Only its SHA-256 is kept: it is shown once, when it is made."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

PREFIX = "tfc-"


class ApiKey:
    """In a file that nobody else on this computer can read."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def ensure(self) -> str | None:
        """A new key where there is none yet; None where there is one."""
        return None if self._digest() else self.renew()

    def renew(self) -> str:
        """A new key; the one before is worth nothing from now on. Raises OSError where it cannot be kept."""
        key = PREFIX + secrets.token_urlsafe(32)
        new = self._file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_digest(key))
        new.replace(self._file)
        return key

    def fits(self, given: str) -> bool:
        """Whether this is the key. Reads the file each time: one that was renewed holds at once."""
        digest = self._digest()
        return bool(digest) and hmac.compare_digest(_digest(given), digest)

    def _digest(self) -> str:
        try:
            return self._file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
