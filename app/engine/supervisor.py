"""Keeps the engine's process alive: starts it, has it load a model, starts it again when it was killed, and
notices when it stands still. Knows nothing of what is asked.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from app.engine import standstill
from app.engine.process import EngineProcess, log_path, what_ended, why_ended
from app.errors import in_words
from core.config import Settings
from core.events import Event, Failed, Loading
from core.text.words import translated as _

log = logging.getLogger(__name__)

# in a row without becoming ready; then something is wrong for good
_RESTARTS = 2


class Supervisor:
    """The engine's process and what is known of it. Thread-safe.

    `state` is starting (process not up), loading, ready, busy or failed; `error` says why it failed. `still`:
    it loads or is busy, and has done nothing for about a minute.
    """

    def __init__(self, settings: Settings, *, worker: Sequence[str]) -> None:
        self._settings, self._command = settings, tuple(worker)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self._process: EngineProcess | None = None
        self._answering: int | None = None  # the question that it is busy with
        self._known_book: tuple[str, int] | None = None  # what the engine has: a file, and its text
        self._mapped_files: dict[str, int] = {}
        self._failures = 0
        self._closed = False
        self._ready_with: Settings | None = None  # the last settings that the engine became ready with
        self.state = "starting"
        self.still = False
        self.error = ""
        self.loading = Loading("")  # how far that is
        self.plan: dict[str, Any] | None = None
        self.model_name = ""
        self.context_tokens = 0
        self.stored_as = ""  # whose snapshots are this model's; see Engine
        self.stored = 0  # rises when the engine has used idle time to store what it read
        self._watcher: Callable[[], None] = lambda: None

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called after every change of state, still, error, loading, plan, model and stored, from
        any thread and with the lock held: it must only take notice.
        """
        self._watcher = told

    def start(self) -> None:
        """Start the engine process unless one runs, and return at once. Also the way out of "failed"."""
        with self._lock:
            if self._closed or (self._process is not None and self.state != "failed"):
                return
            self._failures = 0
            self._end_process(self.error)
            self._launch()

    def restart(self) -> None:
        """Start an engine again that stands still. The answer being written, if any, fails."""
        why = _(
            "The engine stood still and was started again. Nothing of the conversation is lost: try again."
        )
        with self._lock:
            if self.still:
                self._become("starting")  # one that is stopped takes some seconds to end
                self._start_with(self._settings, why)

    def use(self, model: str) -> None:
        """Start the engine again with another model. The answer being written, if any, fails."""
        self._start_with(dataclasses.replace(self._settings, model=model), _("The model was changed."))

    def renew(self, settings: Settings) -> None:
        """Start the engine again with other settings and the same model. Like `use` otherwise."""
        self._start_with(
            dataclasses.replace(settings, model=self._settings.model), _("The settings were changed.")
        )

    def _start_with(self, settings: Settings, why: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._settings = settings
            self._failures = 0
            self._end_process(why)
            self._launch()

    def cancel_loading(self) -> Settings | None:
        """Go back to the settings, and the model, that ran before; the engine starts with them, and they are
        returned. Where there are none, it stops until `start`. Nothing happens to an engine that is ready.
        """
        with self._lock:
            if self.state not in ("starting", "loading") or self._closed:
                return None
            before = self._ready_with if self._ready_with != self._settings else None
            if before is not None:
                self._start_with(before, _("Loading was cancelled."))
                return before
            self._end_process(_("Loading was cancelled."))
            self.error = _("Loading was cancelled. Restart the engine with the button at the top.")
            self._become("failed")
            return None

    def close(self) -> None:
        """End the engine process. Returns when it is gone."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
            self._tell()
        if process is not None:
            process.end(_("The engine was closed."))

    def rest(self) -> None:
        """End the engine process, so that it holds no file; `start` begins another."""
        with self._lock:
            self._end_process(_("The engine was stopped."))
            self._become("starting")

    @property
    def pid(self) -> int | None:
        """The engine's process id while it runs."""
        process = self._process
        return process.pid if process is not None else None

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until questions can be answered. False when the engine failed or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.state in ("ready", "busy", "failed") or self._closed, timeout_s
            )
            return self.state in ("ready", "busy")

    # ---- inside --------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        self._known_book, self._answering = None, None
        self.error, self.loading = "", Loading(_("Starting the engine"))
        try:
            self._process = EngineProcess(
                self._command,
                numbers=self._numbers,
                heard=self._heard,
                answered=self._answered,
                ended=self._ended,
            )
        except OSError as error:  # its log cannot be written, where the data folder is gone
            self.error = in_words(error)
            self._become("failed")
            return
        self._become("loading")
        self._process.send({"do": "load", "id": 0, "settings": self._settings.to_json()})
        threading.Thread(
            target=self._look_after, args=(self._process,), name="engine at work", daemon=True
        ).start()

    def _look_after(self, process: EngineProcess) -> None:
        """Looks from time to time whether the process does something, until it is gone."""
        seen = standstill.Standstill()
        while not process.gone.wait(standstill.LOOK_S):
            spent = standstill.spent_s(process.pid)
            with self._lock:
                if process is not self._process:
                    return
                if self.state not in ("loading", "busy"):
                    seen.rest()
                elif (still := seen.look(process.said, spent)) != self.still:
                    log.warning("the engine process %s", "stands still" if still else "goes on")
                    self.still = still
                    self._tell()

    def _ended(self, process: EngineProcess, how: str) -> None:
        with self._lock:
            if process is self._process and not self._closed:
                self._engine_died(how)

    def _heard(self, process: EngineProcess, said: Event | dict[str, Any]) -> None:
        with self._lock:
            if process is not self._process:
                return
            if isinstance(said, dict) and "ready" in said:
                self._get_ready(said["ready"])
            elif isinstance(said, dict) and "stored" in said:
                self.stored += 1
                self._tell()
            elif self.state == "loading" and isinstance(said, Loading):
                self.loading = said
                self._tell()
            elif self.state == "loading" and isinstance(said, Failed):
                self.error = said.message
                self._become("failed")

    def _answered(self, process: EngineProcess, number: int) -> None:
        with self._lock:
            if process is self._process and self._answering == number:
                self._answering = None
                self._become("ready")

    def _get_ready(self, facts: dict[str, Any]) -> None:
        self.plan, self.model_name, self.context_tokens = (
            facts["plan"],
            facts["model_name"],
            facts["context_tokens"],
        )
        self._mapped_files = facts["mapped_files"]
        self.stored_as = facts.get("stored_as", "")
        self._failures, self._ready_with = 0, self._settings
        self._become("ready")

    def _engine_died(self, how: str) -> None:
        """Tell whoever waits, then start again; not for ever."""
        log.warning("the engine process ended: %s", how)
        started = self.state in ("ready", "busy")
        self._end_process(why_ended(how, self._mapped_files))
        self._failures = 0 if started else self._failures + 1
        if self._failures > _RESTARTS:
            words = _(
                "The engine stopped {times} times while starting ({how}). What it wrote is in {log}. Close "
                "other programs or choose a smaller model."
            )
            self.error = words.format(times=self._failures, how=what_ended(how), log=log_path())
            self._become("failed")
        else:
            self._launch()

    def _end_process(self, why: str) -> None:
        """`why`: what is told to whoever waits for it."""
        if self._process is not None:
            self._process.end(why)
            self._process = None

    def _become(self, state: str) -> None:
        self.state, self.still = state, False
        self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        self._watcher()
