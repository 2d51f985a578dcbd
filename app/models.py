"""The models a person can choose on this computer: what fits, what is here, and one download at a time. No
HTML here.

The download runs in a process of its own (core.model.fetch): converting a checkpoint needs torch, which the
app does not load.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core import paths
from core.config import Settings
from core.errors import UserError
from core.hardware.facts import Hardware
from core.hardware.probe import probe
from core.model.catalogue import draft_for, find
from core.model.fetch import is_downloaded
from core.paths import write_whole
from core.planning.known import NOTHING, Known, known_in
from core.planning.offers import Offer, offers
from core.text.words import translated as _

log = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
FETCH = (sys.executable, "-m", "core.model.fetch")
_PAUSE_WAIT_S = 10.0  # a file is being checked or converted; both can be broken off


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the catalogue on this computer. `bytes`: what a download would still fetch."""

    name: str
    licence: str
    languages: str
    chat: bool
    gated: bool
    bytes: int
    here: bool
    context_tokens: int = 0
    tbt_ms: float = 0.0
    reason: str = ""  # why it does not fit

    @property
    def fits(self) -> bool:
        """Whether this computer can run it."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Fetching:
    """The download. `state`: running | paused | failed."""

    name: str
    stage: str = ""
    fraction: float | None = None
    state: str = "running"
    error: str = ""


def survey(hardware: Hardware, settings: Settings, *, known: Known = NOTHING) -> tuple[Model, ...]:
    """What can be chosen: nothing without a CUDA GPU, where the embedded model is the choice."""
    if not hardware.gpus or settings.device == "cpu":
        return ()
    found = offers(hardware, settings, is_downloaded=is_downloaded, known=known)
    return tuple(_model(offer) for offer in found)


def _model(offer: Offer) -> Model:
    entry, plan = offer.entry, offer.plan
    parts = [one for one in (entry, draft_for(entry)) if one is not None and not is_downloaded(one)]
    return Model(
        name=entry.name,
        licence=entry.licence,
        languages=entry.languages,
        chat=entry.chat,
        gated=entry.gated,
        bytes=sum(one.shape.file_bytes for one in parts),
        here=offer.downloaded,
        reason=offer.reason,
        context_tokens=plan.context_tokens if plan else 0,
        tbt_ms=plan.expected_tbt_ms if plan else 0.0,
    )


class Models:
    """The list and the download. Thread-safe; `changed` is called after every change, `arrived(name, words)`
    after a download.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        look: Callable[[], Hardware] | None = None,
        command: Sequence[str] = FETCH,
    ) -> None:
        self._settings, self._command = settings, tuple(command)
        self._look = look or (lambda: probe(paths.data_dir(), measure=False))
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self.changed: Callable[[], None] = lambda: None
        self.arrived: Callable[[str, str], None] = lambda name, words: None
        self.list: tuple[Model, ...] = ()
        self.fetching: Fetching | None = None

    def start(self) -> None:
        """Looks at the machine in the background."""
        threading.Thread(target=self._survey, name="models", daemon=True).start()

    def fetch(self, name: str) -> None:
        """Downloads a model of the list, or goes on with it. One at a time."""
        with self._lock:
            if self._process is not None or not any(model.name == name and model.fits for model in self.list):
                return
            self._process = subprocess.Popen(
                [*self._command, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env={**os.environ, "PYTHONUTF8": "1"},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
            self._set(Fetching(name, _("Starting the download")))
        threading.Thread(
            target=self._listen, args=(self._process, name), name="download", daemon=True
        ).start()

    def pause(self) -> None:
        """Breaks the download off; what came stays. In the background."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                self._set(replace(self.fetching, state="paused"))
                threading.Thread(target=_end, args=(process,), name="pause", daemon=True).start()

    def close(self) -> None:
        """Ends a download; the next start of the app offers it again, and it goes on where it was."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _survey(self) -> None:
        try:
            self.list = survey(self._look(), self._settings, known=known_in(paths.data_dir()))
        except Exception:  # a background thread's boundary: the app runs without the list
            log.exception("the models that fit could not be worked out")
        self.changed()

    def _listen(self, process: subprocess.Popen[bytes], name: str) -> None:
        said: dict = {}
        with contextlib.suppress(OSError, ValueError):
            for line in process.stdout:
                said = json.loads(line)
                with self._lock:
                    if "stage" in said and process is self._process:
                        self._set(Fetching(name, said["stage"], said["fraction"]))
        process.wait()
        with self._lock:
            if process is not self._process:  # paused, or the app ends
                return
            self._process = None
            if "done" not in said:
                self._set(
                    Fetching(
                        name,
                        state="failed",
                        error=said.get("error")
                        or _(
                            "The download ended unexpectedly; the text window has the reason. Start it "
                            "again: it goes on where it stopped."
                        ),
                    )
                )
                return
            self._set(None)
        self._survey()
        self.arrived(name, said["done"])

    def _set(self, fetching: Fetching | None) -> None:
        self.fetching = fetching
        self.changed()


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(_PAUSE_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---- the choice --------------------------------------------------------------------------------------------


def _choice_file() -> Path:
    return paths.data_dir() / "model.json"


def remember(name: str) -> None:
    """The model the app starts with from now on, unless config.yaml names one."""
    try:
        write_whole(_choice_file(), json.dumps({"model": name}))
    except OSError as error:
        log.warning("the choice of a model is not kept: %s", error)


def remembered(settings: Settings) -> Settings:
    """The settings with the model chosen in the app, where config.yaml leaves it open and the model is still
    here.
    """
    if settings.model is not None:
        return settings
    try:
        name = json.loads(_choice_file().read_text(encoding="utf-8"))["model"]
        return replace(settings, model=name) if is_downloaded(find(name)) else settings
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):
        return settings
