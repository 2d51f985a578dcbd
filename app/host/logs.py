"""The app's own log in the data folder: what went on and what went wrong, never what a book says or somebody
asks. Two files of a megabyte; the engine's lies beside it.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from core import paths
from core.errors import DiscreetFormatter, log_what_nobody_caught

LOG_BYTES = 1 << 20
SHOWN_BYTES = 48_000  # of each file, its end
log = logging.getLogger(__name__)


def folder() -> Path:
    """Where the logs lie: this app's, the engine's and the downloads'."""
    return paths.subdir("logs")


class QuietFileHandler(RotatingFileHandler):
    """Leaves out what it cannot write: a full disk is said on the page, not in tracebacks of the log."""

    def handleError(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""


@contextlib.contextmanager
def kept_log():
    """Writes what this process logs to app.log until the block ends. Raises OSError where it cannot."""
    handler = QuietFileHandler(
        folder() / "app.log", maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8", errors="replace"
    )
    handler.setFormatter(DiscreetFormatter())
    root, ours = logging.getLogger(), logging.getLogger("app")
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    log_what_nobody_caught()
    try:
        log.info("started: Python %s, %s, %s", platform.python_version(), platform.platform(), sys.executable)
        yield
        log.info("ended")
    except Exception:
        log.exception("ended by an error")
        raise
    finally:
        root.removeHandler(handler)
        handler.close()


def log_tails() -> list[tuple[str, str]]:
    """(file name, the end of what stands in it) of each log, the app's first."""
    found = sorted(folder().glob("*.log"), key=lambda path: (path.name != "app.log", path.name))
    return [(path.name, _end_of(path)) for path in found]


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - SHOWN_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError as error:
        return str(error)
    whole = len(text) < SHOWN_BYTES
    return text if whole else text.partition("\n")[2]
