"""Routes of the app behind its guard, on a real port of this computer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from app.host.instance import Address
from app.host.secrets import Keys
from app.server.guard import LocalGuard
from app.server.server import KEYED
from tests.support.fake_runtime import wait_until

SECRET = "cookie" * 6


@contextlib.contextmanager
def served(routes: Sequence[BaseRoute]) -> Iterator[Address]:
    """The address, while the block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    guard = Middleware(LocalGuard, keys=Keys(SECRET, "x.localhost"), port=port, keyed=KEYED)
    app = Starlette(routes=routes, middleware=[guard])
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield Address(port, SECRET, 0)
    server.should_exit = True
    thread.join(10)
