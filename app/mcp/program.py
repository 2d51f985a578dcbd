"""`launcher.py mcp`: the process that an assistant starts. It speaks MCP on its standard streams, by the
official SDK, and passes every call on to the app, which it starts where none runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.host.instance import Address, Instance
from app.mcp.quoting import ABOUT
from app.store.preferences import Preferences
from core import paths
from core.config import Settings
from core.paths import ROOT

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

TOOLS = ("list_books", "open_book", "ask_book", "summarise_chapter", "find_quote", "check_job")
START_S = 40.0  # until the app answers: its page, not its model
CALL_S = 50.0  # the app answers a call within half of it
INSTRUCTIONS = (
    "Books on this person's computer, read by a model that runs there. Begin with list_books. A long book "
    "takes minutes to read: open_book returns at once, and whatever is not done within 20 seconds comes back "
    "as a job; call check_job until its state is done. " + ABOUT
)


class Unreachable(Exception):
    """Why the app cannot be asked, and what helps."""


class App:
    """The app of this data folder, by the address and the secret that it keeps in a file of mode 0600."""

    def __init__(self, settings: Callable[[], Settings], *, start: Callable[[], None] | None = None) -> None:
        self._settings, self._start = settings, start or start_app
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        """What the tool gives. Raises Unreachable with the app's own words, or with why it is not there."""
        address = self._address()
        request = urllib.request.Request(
            f"http://127.0.0.1:{address.port}/assistant/{tool}",
            data=json.dumps(given).encode(),
            headers={"Cookie": f"{address.cookie}={address.secret}", "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=CALL_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Unreachable(_reason(error)) from None
        except (OSError, ValueError) as error:
            words = "TriForce Chat does not answer ({error}). Start it again, then repeat the call."
            raise Unreachable(words.format(error=error)) from None

    def _address(self) -> Address:
        instance = Instance(paths.subdir("run"))
        if (address := instance.running()) and self._alive(address):
            return address
        if not self._settings().mcp:
            from app.mcp.books import OFF

            raise Unreachable(OFF)
        self._start()
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if (address := instance.running()) and self._alive(address):
                return address
            time.sleep(0.2)
        raise Unreachable("TriForce Chat was started, but does not answer yet. Repeat the call in a minute.")

    def _alive(self, address: Address) -> bool:
        try:
            url = f"http://127.0.0.1:{address.port}/healthz"
            with self._opener.open(url, timeout=2) as answer:
                return answer.read() == b"ok"
        except OSError:
            return False


def start_app() -> None:
    """Starts the app without a page of its own accord; it stays until the person quits it."""
    apart: dict[str, Any] = {"start_new_session": True}
    if os.name == "nt":
        flags = ("CREATE_NO_WINDOW", "CREATE_NEW_PROCESS_GROUP")
        apart = {"creationflags": sum(getattr(subprocess, name, 0) for name in flags)}
    nothing = subprocess.DEVNULL
    # not a line of it may reach this process's standard output, which is the protocol's
    command = [sys.executable, "-m", "app.cli", "serve"]
    subprocess.Popen(command, cwd=ROOT, stdin=nothing, stdout=nothing, stderr=nothing, **apart)


def make_server(call: Callable[[str, dict[str, Any]], dict[str, Any]]) -> MCPServer:
    """The tools over MCP; `call(tool, arguments)` blocks, raises Unreachable."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    server = MCPServer(
        "triforce-chat",
        title=paths.APP_NAME,
        version=paths.program_version(),
        instructions=INSTRUCTIONS,
        log_level="WARNING",
    )
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    opens = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True)

    async def asked(tool: str, **given: Any) -> dict[str, Any]:
        try:
            return await asyncio.to_thread(call, tool, given)
        except Unreachable as error:
            raise ToolError(str(error)) from None

    @server.tool(annotations=reads)
    async def list_books() -> dict[str, Any]:
        """The books on the shelf: id (`book`), title, author, number of words and chapters."""
        return await asked("list_books")

    @server.tool(annotations=opens)
    async def open_book(book: str) -> dict[str, Any]:
        """Begin to read a book, so that questions about it are answered soon. `book`: an id from list_books,
        or the absolute path of a file in a folder that the person allows. Returns at once, with the chapters
        where they are known and a job; check_job says how far the reading is.
        """
        return await asked("open_book", book=book)

    @server.tool(annotations=reads)
    async def ask_book(book: str, question: str, until_chapter: int | None = None) -> dict[str, Any]:
        """Ask a question about a book. Comes back with the answer and the passages it rests on, or after 20
        seconds with a job for check_job; the same question again goes on waiting for the same answer.
        `until_chapter`: nothing behind that chapter is read or told.
        """
        return await asked("ask_book", book=book, question=question, until_chapter=until_chapter)

    @server.tool(annotations=reads)
    async def summarise_chapter(book: str, chapter: int) -> dict[str, Any]:
        """A summary of one chapter, by its number in open_book's list, or after 20 seconds a job for
        check_job.
        """
        return await asked("summarise_chapter", book=book, chapter=chapter)

    @server.tool(annotations=reads)
    async def find_quote(book: str, words: str, until_chapter: int | None = None) -> dict[str, Any]:
        """Where words stand in a book, with chapter, page and the text around them. Case, accents and kinds
        of quotation marks do not count, and "..." stands for words left out.
        """
        return await asked("find_quote", book=book, words=words, until_chapter=until_chapter)

    @server.tool(annotations=reads)
    async def check_job(job: str) -> dict[str, Any]:
        """How far a job is, after at most 20 seconds, or its result."""
        return await asked("check_job", job=job)

    return server


def mcp(given: argparse.Namespace, settings: Settings) -> int:
    """Serves one assistant until it closes the streams."""
    make_server(App(lambda: Preferences(settings).settings).call).run("stdio")
    return 0


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"TriForce Chat refused the call ({error.code}). Update it, or start it again."
