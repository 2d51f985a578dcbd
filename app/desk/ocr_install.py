"""Installs the OCR extra into this program's own environment, when the person says so."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from core.documents.pdf.ocr import REQUIREMENTS
from core.errors import UserError
from core.text.words import translated as _

log = logging.getLogger(__name__)
# of requirements-ocr.txt with all that it needs and is not there yet: Linux, Python 3.11, 2026-11-22
DOWNLOAD_BYTES = 120_000_000
_DOWNLOADING = re.compile(r"\s*Downloading (?:\S*/)?(\S+?)-\d\S* ?(\(.*\))?")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
CACHE = Path(sys.prefix) / "cache"  # the setup's own name for it, which `uninstall` lists
_SAID_LINES = 3  # of what pip said, for the person; the log has all
_POLL_S = 0.2  # between two looks at whether it is to stop

Progress = Callable[..., None]


def install(progress: Progress, should_stop: Callable[[], bool]) -> None:
    """Downloads and installs. `progress(stage, fraction)` is told how far it is. Raises UserError where it
    does not come to its end; returns when the extra is there, or as soon as it is stopped. What pip keeps
    to go on from lies in the environment, and goes when the extra is there.
    """
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "raw" if _tells_progress() else "off", "-r", str(REQUIREMENTS)]
    said: deque[str] = deque(maxlen=_SAID_LINES)
    progress(_("Looking for the parts of OCR"), None)
    pip = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PIP_CACHE_DIR": str(CACHE), **os.environ},
    )
    with pip, _ended_when(should_stop, pip):
        stage = ""
        for line in pip.stdout:
            log.info("pip: %s", line.rstrip())
            if found := _PROGRESS.match(line):
                progress(stage, int(found[1]) / max(1, int(found[2])))
                continue
            said.append(line.strip())
            if found := _DOWNLOADING.match(line):
                stage = _("Downloading {name}").format(name=" ".join(filter(None, found.groups())))
                progress(stage, None)
            elif line.startswith("Installing"):
                progress(_("Installing what was downloaded"), None)
    if should_stop():
        return
    if pip.returncode:
        words = _("OCR could not be installed: {reason} See that there is a network and room on the disk.")
        raise UserError(words.format(reason=" ".join(said)))
    shutil.rmtree(CACHE, ignore_errors=True)
    importlib.invalidate_caches()


@contextlib.contextmanager
def _ended_when(should_stop: Callable[[], bool], pip: subprocess.Popen[str]) -> Iterator[None]:
    """Ends pip as soon as `should_stop` says so, also where it prints nothing for long."""
    over = threading.Event()

    def watch() -> None:
        while not should_stop():
            if over.wait(_POLL_S):
                return
        pip.terminate()

    watching = threading.Thread(target=watch, name="ocr-stop", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _tells_progress() -> bool:
    """Whether this pip prints how far a download is in a form for programs."""
    major, minor = version("pip").split(".")[:2]
    return (int(major), int(minor)) >= (24, 1)
