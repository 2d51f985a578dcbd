"""The engine's process as the app holds it: commands go in and events come out, as lines of JSON, each to
who asked for it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from core import paths
from core.events import Event, Failed, Finished
from core.model.store.model_folder import changed_since
from core.paths import ROOT
from core.text.words import translated as _
from core.wire import CARD_LOST, RANK_LOST, from_line, to_line, unpack

Inbox = queue.Queue[Event | dict[str, Any]]
_CLOSE_WAIT_S = 5.0
_LOG_BYTES = 4 << 20


class EngineProcess:
    """One process, from its start to its end. What is posted gets one of `numbers`, and what the process says
    to it comes into an inbox of its own: events, or the message that is the answer.

    On a thread of its own `heard(process, said)` is called for what it says to none of them,
    `answered(process, number)` before the end of an answer comes into its inbox, and `ended(process, how)`
    once, when it is gone.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        numbers: Iterator[int],
        heard: Callable[[EngineProcess, Event | dict[str, Any]], None],
        answered: Callable[[EngineProcess, int], None],
        ended: Callable[[EngineProcess, str], None],
    ) -> None:
        self._numbers, self._heard, self._answered, self._ended = numbers, heard, answered, ended
        self._inboxes: dict[int, Inbox] = {}
        self._outbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.said = 0  # messages that came
        self.gone = threading.Event()
        with log_file() as said:
            self._popen = subprocess.Popen(
                [*command, "--parent", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=_environment(),
                cwd=ROOT,
                **_apart(),
            )
        for run, name in ((self._write, "engine commands"), (self._listen, "engine events")):
            threading.Thread(target=run, name=name, daemon=True).start()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._popen.pid

    def send(self, message: dict[str, Any]) -> None:
        """Hands a command to the writing thread: a full pipe must not hold the caller."""
        self._outbox.put(message)

    def post(self, message: dict[str, Any]) -> tuple[int, Inbox]:
        """Sends a command under a number: that, and the inbox of what is said to it."""
        number = next(self._numbers)
        inbox = self._inboxes[number] = queue.Queue()
        self.send({**message, "id": number})
        return number, inbox

    def put(self, number: int | None, said: Event | dict[str, Any]) -> bool:
        """Puts something into an inbox; False where nobody waits for it any more."""
        inbox = self._inboxes.get(number)
        if inbox is not None:
            inbox.put(said)
        return inbox is not None

    def drop(self, number: int) -> None:
        """Nobody waits for what is said to it any more."""
        self._inboxes.pop(number, None)

    def end(self, why: str) -> None:
        """Tells whoever waits `why`, and closes its pipe, which ends it; kills one that does not go. Returns
        when it is gone.
        """
        for number in list(self._inboxes):
            self.put(number, Failed(why, fatal=True))
            self.drop(number)
        self._outbox.put(None)
        try:
            self._popen.wait(_CLOSE_WAIT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _write(self) -> None:
        # a broken pipe is not handled here: the listening thread sees the same end and acts on it
        with contextlib.suppress(OSError, ValueError):
            while (message := self._outbox.get()) is not None:
                self._popen.stdin.write(to_line(message))
                self._popen.stdin.flush()
        with contextlib.suppress(OSError):
            self._popen.stdin.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._popen.stdout:
                self.said += 1
                self._hear(from_line(line))
        code = self._popen.wait()
        self.gone.set()
        self._ended(self, f"signal {-code}" if code < 0 else f"exit code {code}")

    def _hear(self, message: dict[str, Any]) -> None:
        said, number = unpack(message["event"]) if "event" in message else message, message["id"]
        if isinstance(said, (Finished, Failed)):
            self._answered(self, number)
        if not self.put(number, said):
            self._heard(self, said)


KILLED = ("signal 9", "signal 15")


def log_path(of: str = "engine") -> Path:
    """Where a process of the app writes what goes on and what went wrong."""
    return paths.subdir("logs") / f"{of}.log"


def log_file(of: str = "engine") -> IO[bytes]:
    """Its log, begun anew when it has grown large."""
    path = log_path(of)
    with contextlib.suppress(OSError):  # on Windows it cannot be moved while an old engine still ends
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return path.open("ab")


def why_ended(how: str, mapped_files: Mapping[str, int]) -> str:
    """What whoever waits for an answer is told when the process ended by itself. `mapped_files`: those of its
    model, which end it when somebody makes them shorter.
    """
    file = changed_since(mapped_files)
    if file is not None:
        said = _(
            "{file} was changed or removed while the model was in use: this answer is lost, and nothing of "
            "the conversation. Put the file back, or choose another model; then ask again."
        )
        return said.format(file=file)
    if how == f"exit code {CARD_LOST}":
        return _(
            "The graphics card failed, and the engine with it, which was started again. Nothing of the "
            "conversation is lost: try again. If it happens again, update the NVIDIA driver and run "
            "`launcher.py doctor --gpu`."
        )
    if how == f"exit code {RANK_LOST}":
        said = _(
            "One of the processes that compute the model on several graphics cards ended, and the engine "
            "with it, which was started again. Nothing of the conversation is lost: try again. If it "
            "happens again, name one card in devices; the reason is in {log}."
        )
        return said.format(log=log_path())
    said = _(
        "The engine stopped unexpectedly ({how}) and was started again. Nothing of the conversation is "
        "lost: try again."
    )
    return said.format(how=what_ended(how))


def what_ended(how: str) -> str:
    """What ended a process, in words for people; the log has signal or exit code."""
    if how in KILLED:
        return _("ended from outside, by another program or by the system, as when memory runs short")
    return _("an error of its own; the log has more")


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _apart() -> dict[str, Any]:
    """A group of its own: Ctrl-C is for the app, which then stops the answer and keeps the engine."""
    if os.name != "nt":
        return {"start_new_session": True}
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    return {"creationflags": flags | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
