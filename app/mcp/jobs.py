"""What takes longer than an assistant waits for one call: begun, asked after, and told once it is done."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from core.errors import UserError

MOST_KEPT, MOST_RUNNING = 64, 8
FORGOTTEN_S = 1800.0  # nobody asked after it any more: what still runs of it is stopped


@dataclass(frozen=True, slots=True)
class JobProgress:
    """`state`: running | done | failed. `fraction` of the step at hand, where it is known."""

    state: str = "running"
    step: str = "waiting"
    fraction: float | None = None
    result: dict[str, Any] | None = None
    error: str = ""


class BackgroundJob:
    """Runs `work(tell, unwanted)` on a thread of its own. `tell(step, fraction)` says how far it is;
    `unwanted()` turns true when nobody asks after it any more.
    """

    def __init__(self, work: Callable[..., dict[str, Any]], *, clock: Callable[[], float]) -> None:
        self.id = secrets.token_hex(6)
        self._work, self._clock = work, clock
        self._changed = threading.Condition()
        self._progress = JobProgress()
        self._asked = clock()
        self.delivered = False
        threading.Thread(target=self._run, name="assistant's job", daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether its result is still to come."""
        return self._progress.state == "running"

    def after(self, timeout_s: float) -> JobProgress:
        """How far it is: at once when it has ended, else after `timeout_s` at the latest."""
        with self._changed:
            self._asked = self._clock()
            self._changed.wait_for(lambda: not self.running, timeout_s)
            self._asked = self._clock()
            self.delivered = not self.running
            return self._progress

    def _unwanted(self) -> bool:
        return self._clock() - self._asked > FORGOTTEN_S

    def _run(self) -> None:
        try:
            ended = JobProgress("done", "done", 1.0, self._work(self._tell, self._unwanted))
        except (UserError, Refused) as error:
            ended = JobProgress("failed", "failed", error=str(error))
        except Exception as error:  # the thread's boundary: an assistant must not ask for ever
            ended = JobProgress(
                "failed", "failed", error=f"It broke off ({type(error).__name__}). Ask again."
            )
        self._become(ended)

    def _tell(self, step: str, fraction: float | None = None) -> None:
        self._become(JobProgress("running", step, fraction))

    def _become(self, progress: JobProgress) -> None:
        with self._changed:
            self._progress = progress
            self._changed.notify_all()


class Refused(Exception):
    """Why an assistant does not get what it asks for."""


class Jobs:
    """The newest of them, by id and by what was asked. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._kept: dict[str, BackgroundJob] = {}
        self._asked: dict[Hashable, BackgroundJob] = {}

    def begin(self, what: Hashable, work: Callable[..., dict[str, Any]]) -> BackgroundJob:
        """A job for it; the one there is, if its result was not told yet: an assistant that gave up waiting
        and asks again starts nothing anew. Raises Refused where too many run already.
        """
        with self._lock:
            there = self._asked.get(what)
            if there and there.id in self._kept and not there.delivered:
                return there
            if sum(job.running for job in self._kept.values()) >= MOST_RUNNING:
                raise Refused(f"{MOST_RUNNING} jobs run already. Wait for one of them with check_job.")
            made = self._asked[what] = BackgroundJob(work, clock=self._clock)
            self._kept[made.id] = made
            while len(self._kept) > MOST_KEPT and (ended := self._oldest_ended()):
                del self._kept[ended]
            self._asked = {key: job for key, job in self._asked.items() if job.id in self._kept}
            return made

    def get(self, job_id: str) -> BackgroundJob:
        """Raises Refused for one that is not there any more."""
        with self._lock:
            if job_id in self._kept:
                return self._kept[job_id]
        raise Refused(f"There is no job {job_id!r} any more. Ask again.")

    def _oldest_ended(self) -> str | None:
        return next((name for name, job in self._kept.items() if not job.running), None)
