"""`read_safely`, `cover_safely`: a file from outside is read in a process of its own, with limits on memory
and time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from core.documents.document import Document
from core.documents.reader import refused_by_kind
from core.documents.windows_job import contained, interpreter
from core.errors import DocumentError, PasswordNeeded, ScannedPages, UserError
from core.events import Progress
from core.paths import ROOT
from core.text.words import duration, size
from core.text.words import translated as _

log = logging.getLogger(__name__)

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """What one file may cost. `time_s` is wall-clock; OCR takes seconds per page and gets `ocr_time_s`."""

    memory_bytes: int = 2 << 30
    time_s: float = 120.0
    ocr_time_s: float = 4 * 3600.0


_OF_A_COVER = Limits(memory_bytes=1 << 30, time_s=15.0)


class ReadingCancelled(DocumentError):
    """`should_stop` said so."""


def read_safely(
    path: str | Path,
    *,
    password: str | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    ocr: bool = False,
    limits: Limits | None = None,
) -> Document:
    """`read_document` in a child process.

    `progress(stage, fraction)` and `should_stop()` are called from this thread, about ten times a second.
    Raises what `read_document` raises, ReadingCancelled, and DocumentError when the file breaks a limit or
    the parser.
    """
    path = refused_by_kind(path).absolute()
    limits = limits or Limits()
    request = {"wanted": "document", "path": str(path), "password": password, "ocr": ocr}
    return _result(_asked(request, limits, progress, should_stop), path, limits)


def cover_safely(
    path: str | Path, *, password: str | None = None, should_stop: Callable[[], bool] | None = None
) -> bytes:
    """`cover_of` in a child process of its own, so that a picture costs nobody the book. Empty for whatever
    goes wrong.
    """
    try:
        path = refused_by_kind(path).absolute()
        request = {"wanted": "cover", "path": str(path), "password": password, "ocr": False}
        return base64.b64decode(_asked(request, _OF_A_COVER, None, should_stop).get("cover", ""))
    except DocumentError as error:
        log.info("no cover of %s: %s", path, error)
        return b""


def found_safely(
    function: str,
    path: Path,
    limits: Limits,
    given: Any = None,
    *,
    should_stop: Callable[[], bool] | None = None,
) -> Any:
    """What `function` ("module:name") finds in the file at `path`, in a child process: JSON values. With
    `given`, which are JSON values, what it makes of them; the path is then what they came from.

    Raises UserError with the function's words, ReadingCancelled, or DocumentError where the file breaks a
    limit or the child.
    """
    asked = str(path) if given is None else given
    request = {"wanted": function, "path": str(path), "given": asked, "password": None, "ocr": False}
    message = _asked(request, limits, None, should_stop)
    if "found" in message:
        return message["found"]
    if message["error"] == "limit":
        raise _too_large(path, limits)
    raise UserError(message["message"])


def _asked(
    request: dict[str, Any], limits: Limits, progress: Progress | None, should_stop: Callable[[], bool] | None
) -> dict[str, Any]:
    """A child's last word on a request."""
    path, ocr = Path(request["path"]), request["ocr"]
    _stop_if_asked(path, should_stop)
    started = time.monotonic()
    allowed_s = limits.ocr_time_s if ocr else limits.time_s
    child = _start()
    job = contained(child, memory_bytes=None if ocr else limits.memory_bytes)
    try:
        _send(child, {**request, **asdict(limits)})
        for message in _messages(child):
            if message is None:
                _check(child, path, limits, ocr, time.monotonic() - started > allowed_s, should_stop)
            elif "progress" in message:
                if progress:
                    progress(*message["progress"])
            else:
                return message
        raise _broken(path, child, limits)
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
        [python, "-m", "core.documents.child"],
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


def _messages(child: subprocess.Popen[bytes]) -> Any:
    """The child's messages; None whenever it has been silent for a moment. Ends when its output does."""
    lines: queue.Queue[bytes] = queue.Queue()

    def pump() -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in child.stdout:
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=pump, daemon=True).start()
    checked = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            line = None
        if line is None or time.monotonic() - checked > _POLL_S:
            checked = time.monotonic()
            # also between many progress messages: the limits are checked all the time
            yield None
        if line is None:
            continue
        if not line:
            return
        yield json.loads(line)


def _stop_if_asked(path: Path, should_stop: Callable[[], bool] | None) -> None:
    if should_stop and should_stop():
        raise ReadingCancelled(_("Reading {name} was cancelled.").format(name=path.name))


def _check(
    child: subprocess.Popen[bytes],
    path: Path,
    limits: Limits,
    ocr: bool,
    late: bool,
    should_stop: Callable[[], bool] | None,
) -> None:
    _stop_if_asked(path, should_stop)
    if late:
        raise DocumentError(
            _(
                "{name} took over {time} to read and was given up: it is damaged or built to be slow. "
                "Try to save it anew from the program it comes from."
            ).format(name=path.name, time=duration(limits.ocr_time_s if ocr else limits.time_s))
        )
    with contextlib.suppress(psutil.Error):
        if psutil.Process(child.pid).memory_info().rss > limits.memory_bytes:
            raise _too_large(path, limits)


def _result(message: dict[str, Any], path: Path, limits: Limits) -> Document:
    if "document" in message:
        return Document.from_json(message["document"])
    if message["error"] == "limit":
        raise _too_large(path, limits)
    kinds = {kind.__name__: kind for kind in (PasswordNeeded, ScannedPages)}
    raise kinds.get(message["error"], DocumentError)(message["message"])


def _too_large(path: Path, limits: Limits) -> DocumentError:
    return DocumentError(
        _(
            "{name} needs more than {limit} of memory to read, over the limit for one book. "
            "It is damaged or far too large; try to split it."
        ).format(name=path.name, limit=size(limits.memory_bytes))
    )


def _broken(path: Path, child: subprocess.Popen[bytes], limits: Limits) -> DocumentError:
    """The child ended without an answer: killed by a limit, or the parser itself crashed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=5)
    if sys.platform != "win32" and child.returncode in (-24, -25):  # SIGXCPU, SIGXFSZ
        return DocumentError(
            _("{name} took more than {time} of computing to read and was given up.").format(
                name=path.name, time=duration(limits.time_s)
            )
        )
    return DocumentError(
        _("{name} is damaged: its parser failed on it. Try to save it anew, or convert it to EPUB.").format(
            name=path.name
        )
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        with contextlib.suppress(OSError):
            stream.close()
