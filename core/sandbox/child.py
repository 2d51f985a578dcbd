"""The process that calls one function on data from outside: reads a request on stdin, writes progress and the
result as JSON lines. Bytes follow their line as they are.

It gives up its own rights before the function's module is imported: memory, CPU time, writing files, the
network and starting programs. It ends when its parent does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from core.text.packing import to_json_text

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "urllib.Request",
    "ftplib.",
    "smtplib.",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "shutil.",
)


def main() -> None:
    """One request, one result."""
    request = json.loads(sys.stdin.readline())
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # whatever a library prints must not mix with the answer
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limits = request["limits"]
    if limits["enforced"]:
        _limit(limits["memory_bytes"], limits["time_s"])
    sys.addaudithook(_refuse)
    lock = threading.Lock()

    def send(message: dict[str, Any]) -> None:
        data = message.pop("data", b"")
        with lock:
            out.write(to_json_text(message).encode() + b"\n" + data)
            out.flush()

    send(_answer(request, send))
    os._exit(0)  # no clean-up that a damaged library could hang in


def _answer(request: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    from core.errors import UserError

    arguments = request["arguments"]
    if request["reports"]:
        arguments["progress"] = lambda stage, fraction: send({"progress": [stage, fraction]})
    try:
        module, name = request["function"].split(":")
        result = getattr(importlib.import_module(module), name)(**arguments)
        if isinstance(result, bytes):
            return {"bytes": len(result), "data": result}
        return {"result": result}
    except UserError as error:
        known = next(kind for kind in type(error).__mro__ if kind.__module__ == "core.errors")
        return {"error": known.__name__, "message": str(error)}
    except (MemoryError, RecursionError):
        return {"exhausted": True}


def _end_with_parent() -> None:
    """The parent keeps our stdin open; its end means that nobody waits for the answer."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.buffer.raw.read(1)
    os._exit(3)


def _limit(memory_bytes: int, time_s: float) -> None:
    """Limits by the kernel where it has them; elsewhere the parent watches."""
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {"RLIMIT_AS": memory_bytes, "RLIMIT_CPU": int(time_s) + 1, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}
    for name, value in wanted.items():
        with contextlib.suppress(AttributeError, ValueError, OSError):
            hard = resource.getrlimit(getattr(resource, name))[1]
            ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(getattr(resource, name), (ceiling, hard))


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    """An audit hook: what handles data from outside has no business with the network, other programs or
    writing files.
    """
    if event == "open":
        mode, flags = args[1], args[2]
        writes = (
            bool(set(mode) & set("wax+"))
            if isinstance(mode, str)
            else bool(isinstance(flags, int) and flags & _WRITING)
        )
        if writes:
            raise PermissionError(f"writing {args[0]!r} is not allowed in a process with limits")
    elif event.startswith(_FORBIDDEN):
        raise PermissionError(f"{event} is not allowed in a process with limits")


if __name__ == "__main__":
    main()
