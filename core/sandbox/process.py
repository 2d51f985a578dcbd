"""`run_isolated`: a function that handles data from outside runs in a process of its own, with limits on
memory and time. Knows nothing of what the function does.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any

import psutil

from core import errors
from core.events import Progress
from core.paths import ROOT
from core.sandbox.windows_job import contained, interpreter
from core.text.packing import from_json

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may cost. `time_s` holds for the clock and for what is computed. `enforced`: by the
    kernel, too; without it this process alone watches, for libraries that map far more memory than they use.
    """

    memory_bytes: int = 2 << 30
    time_s: float = 120.0
    enforced: bool = True


class SandboxError(Exception):
    """The call ended without a result. The caller says what that means, and what would help."""


class CallCancelled(SandboxError):
    """`should_stop` said so."""


class MemoryExceeded(SandboxError):
    """The call needed more than `Limits.memory_bytes`."""


class TimeExceeded(SandboxError):
    """The call took longer than `Limits.time_s`."""


class CallCrashed(SandboxError):
    """The process ended by a signal or by an error that is not meant for people."""


def run_isolated(
    function: str,
    arguments: Mapping[str, Any],
    *,
    limits: Limits,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Any:
    """What `function` ("module:name") returns for the keyword arguments, in a child process. Arguments and
    result are JSON values; a result may be bytes instead.

    The function is given a `progress`, too, where there is one here. `progress(stage, fraction)` and
    `should_stop()` are called from this thread, about ten times a second. Raises the function's UserError,
    and SandboxError for whatever else keeps it from returning.
    """
    if should_stop and should_stop():
        raise CallCancelled
    started = time.monotonic()
    child = _start()
    job = contained(child, memory_bytes=limits.memory_bytes if limits.enforced else None)
    request = {"function": function, "arguments": dict(arguments), "limits": asdict(limits)}
    try:
        _send(child, {**request, "reports": progress is not None})
        for message in _messages(child):
            if message is None:
                _check(child, limits, time.monotonic() - started, should_stop)
            elif "progress" in message:
                progress(*message["progress"])
            else:
                return _result(message)
        raise _ended(child)
    finally:
        _end(child)
        if job:
            job.close()


def _start() -> subprocess.Popen[bytes]:
    python, launcher = interpreter()
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "PYTHONPATH": search,
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        **launcher,
    }
    flags = {"creationflags": subprocess.CREATE_NO_WINDOW} if sys.platform == "win32" else {}
    return subprocess.Popen(
        [python, "-m", "core.sandbox.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment,
        **flags,
    )


def _send(child: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    """By the pipe: arguments, a password among them, are visible to every process on the machine."""
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.flush()


def _messages(child: subprocess.Popen[bytes]) -> Iterator[dict[str, Any] | None]:
    """The child's messages; None whenever it has been silent for a moment. Ends when its output does: what
    was cut off there is no message.
    """
    heard: queue.Queue[dict[str, Any]] = queue.Queue()

    def pump() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in child.stdout:
                heard.put(_whole(from_json(line), child.stdout))
        heard.put({})

    threading.Thread(target=pump, daemon=True).start()
    checked = time.monotonic()
    while True:
        try:
            message = heard.get(timeout=_POLL_S)
        except queue.Empty:
            message = None
        if message is None or time.monotonic() - checked > _POLL_S:
            checked = time.monotonic()
            # also between many progress messages: the limits are checked all the time
            yield None
        if message is None:
            continue
        if not message:
            return
        yield message


def _whole(message: dict[str, Any], following: IO[bytes]) -> dict[str, Any]:
    """A message with the bytes that follow its line. Raises ValueError where some are missing."""
    if "bytes" not in message:
        return message
    data = following.read(message["bytes"])
    if len(data) < message["bytes"]:
        raise ValueError(f"{message['bytes'] - len(data)} bytes of a result are missing")
    return {"result": data}


def _check(
    child: subprocess.Popen[bytes], limits: Limits, elapsed_s: float, should_stop: Callable[[], bool] | None
) -> None:
    if should_stop and should_stop():
        raise CallCancelled
    if elapsed_s > limits.time_s:
        raise TimeExceeded
    with contextlib.suppress(psutil.Error):
        if psutil.Process(child.pid).memory_info().rss > limits.memory_bytes:
            raise MemoryExceeded


def _result(message: dict[str, Any]) -> Any:
    if "result" in message:
        return message["result"]
    if "exhausted" in message:
        raise MemoryExceeded
    raise getattr(errors, message["error"])(message["message"])


def _ended(child: subprocess.Popen[bytes]) -> SandboxError:
    """The child ended without an answer: killed by the limit on computing, or crashed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=5)
    if sys.platform != "win32" and child.returncode == -signal.SIGXCPU:
        return TimeExceeded()
    return CallCrashed()


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            stream.close()
