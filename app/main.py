"""Starts and ends the app: one instance, one port on 127.0.0.1, the guard in front of the page, the engine
beside it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import threading
import time
import urllib.request
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from app.api.key import ApiKey
from app.broadcast import Broadcast
from app.gradio_inside import broken, calm_server, end_queue, launch_options, without_stub_files
from app.guard import LocalGuard, scrub_environment
from app.handlers import Desk
from app.history import History
from app.instance import Address, Instance, free_port
from app.keys import Keys, forget_keys, kept_keys, make_private
from app.library import Library
from app.page import Page
from app.preferences import Preferences
from app.templating import render
from core import paths
from core.errors import UserError
from core.paths import write_whole
from core.text.words import translated as _

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from app.models import Models
    from core.config import Settings

log = logging.getLogger(__name__)
SAMPLES = Path(__file__).resolve().parent.parent / "assets" / "samples"
FONTS = Path(__file__).resolve().parent.parent / "assets" / "fonts"
STREAM_SCRIPT = Path(__file__).resolve().parent.parent / "assets" / "js" / "stream.js"
ICON = Path(__file__).resolve().parent.parent / "assets" / "icons" / "triforce-chat-256.png"
# nothing of Gradio's beside the page: no sharing, no monitoring, no pages about itself, no second process
QUIET = {
    "share": False,
    "inbrowser": False,
    "prevent_thread_lock": True,
    "quiet": True,
    "show_error": False,
    "allowed_paths": [],
    "enable_monitoring": False,
    "run_history": False,
    "mcp_server": False,
    "ssr_mode": False,
    "pwa": False,
    "strict_cors": True,
    "footer_links": [],
    "root_path": "",
    "num_workers": 0,
}
NO_PAGES = {"docs_url": None, "redoc_url": None, "openapi_url": None}
PRIVATE_FOLDERS = ("books", "models", "notes", "run", "logs", "snapshots")
KEYED = "/v1/"  # what other programs are served at
_LONGEST_PATH = 32_768  # Windows'
_LAST_WORD_S = 0.4  # the goodbye page is told that all is stored


def run(settings: Settings, open_browser: bool, *, preferences: Preferences | None = None) -> int:
    """Serves the app until the person quits, or hands over to the one that already runs. Returns the exit
    code. `preferences`: the settings as the page may change them.
    """
    _try_data_folder()
    make_private(paths.data_dir(), (*PRIVATE_FOLDERS, "tmp"))
    instance = Instance(paths.subdir("run"))
    if not instance.acquire():
        return _hand_over(instance, open_browser)
    try:
        from app.models import Models, remembered
        from app.runtime import Runtime
        from core.documents import cover_safely, read_safely
        from core.documents.ocr import available

        preferences = preferences or Preferences(settings)
        settings = remembered(preferences.settings)
        desk = make_desk(
            Runtime(settings),
            models=Models(settings),
            read=read_safely,
            cover=cover_safely,
            can_ocr=available,
            preferences=preferences,
        )
        server = Server(desk, settings, keys=kept_keys(paths.subdir("run")))
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda *_: server.ask_to_end())
        address = server.start()
        instance.announce(address)
        desk.engine.start()  # after the page is up: loading a model must not delay it
        desk.models.start()
        _open(address, open_browser, _("TriForce Chat is open at {address}"))
        if settings.api:
            _tell_of_api(address)
        server.wait()
        _say(_("Keeping what was read for the next time; end it again to skip this."))
        server.stop()
        if server.quit:
            forget_keys(paths.subdir("run"))
    finally:
        instance.release()
    return 0


def _try_data_folder() -> None:
    """Raises UserError where the app could keep nothing."""
    try:
        for name in (*PRIVATE_FOLDERS, "tmp"):
            write_whole(paths.subdir(name) / ".try", b"")
            (paths.subdir(name) / ".try").unlink()
    except OSError as error:
        folder = os.environ.get("TRIFORCE_HOME") or error.filename or ""
        words = _(
            "The data folder {folder} cannot be written to: {reason}. Make it writable and see that its disk "
            "has room, or name another one with data_dir in config.yaml."
        )
        raise UserError(words.format(folder=folder, reason=error.strerror or error)) from error


def api_key() -> ApiKey:
    """The key of this data folder."""
    return ApiKey(paths.data_dir() / "api.key")


def _tell_of_api(address: Address) -> None:
    """Where other programs find it, and the key when it is new: it is not shown again."""
    _say(_("Other programs: http://127.0.0.1:{port}/v1").format(port=address.port))
    if key := api_key().ensure():
        _say(_("Their key, shown this once: {key}").format(key=key))


def _hand_over(instance: Instance, open_browser: bool) -> int:
    """Shows the app that already runs on this data folder."""
    for _attempt in range(100):  # the other one may be starting at this very moment
        address = instance.running()
        if address and _alive(address):
            _open(address, open_browser, _("TriForce Chat is already open at {address}"))
            return 0
        time.sleep(0.1)
    sys.stderr.write(
        _("TriForce Chat runs already but does not answer. End it in the task manager, then start it again.")
        + "\n"
    )
    return 1


def _open(address: Address, in_browser: bool, words: str) -> None:
    """Says where the page is, and shows it: each address has a code of its own."""
    _say(words.format(address=fresh_url(address)))
    _say(_("The address opens it once, within a minute; start again for another."))
    if in_browser:
        webbrowser.open(fresh_url(address))


def fresh_url(address: Address) -> str:
    """An address that lets one browser in. Raises OSError when the app does not answer."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{address.port}/code",
        method="POST",
        headers={"Authorization": f"Bearer {address.secret}"},
    )
    with _opener().open(asked, timeout=5) as answer:
        return f"http://127.0.0.1:{address.port}/enter#{answer.read().decode()}"


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _alive(address: Address) -> bool:
    try:
        with _opener().open(f"http://127.0.0.1:{address.port}/healthz", timeout=2) as answer:
            return answer.read() == b"ok"
    except OSError:
        return False


def make_desk(
    engine: object,
    *,
    models: Models,
    read: Callable,
    cover: Callable,
    can_ocr: Callable[[], bool],
    preferences: Preferences | None = None,
) -> Desk:
    """A desk on the user's data folder. Uploads that an earlier run left behind are deleted."""
    uploads = paths.subdir("tmp")
    for left in uploads.iterdir():
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    library = Library(paths.subdir("books"))
    history = History(paths.data_dir() / "conversations.db")
    desk = Desk(
        engine,
        library,
        history,
        upload_dir=uploads,
        read=read,
        cover=cover,
        can_ocr=can_ocr,
        models=models,
        samples=sample_books(),
        preferences=preferences,
    )
    desk.resume()
    return desk


def sample_books() -> tuple[Path, ...]:
    """The app's own books, each once: as EPUB where there is one."""
    found: dict[str, Path] = {}
    for suffix in (".epub", ".pdf", ".txt"):
        for path in sorted(SAMPLES.glob(f"*{suffix}")):
            found.setdefault(path.stem, path)
    return tuple(found.values())


class Server:
    """The page of one desk on one port."""

    def __init__(self, desk: Desk, settings: Settings, *, keys: Keys) -> None:
        self._desk, self._settings, self._keys = desk, settings, keys
        self.quit = False  # by the person, on the page
        self._asked, self._ended = threading.Event(), threading.Event()
        self._blocks = None
        self.broadcast = Broadcast(Page(desk))
        desk.watch(self.broadcast.changed)

    def start(self) -> Address:
        """Serves the page; returns once it answers."""
        scrub_environment(temp_dir=str(paths.subdir("tmp")))  # before gradio is imported
        from starlette.middleware import Middleware

        with without_stub_files():
            from app.theme import head, theme
            from app.ui import build
        for words in broken():
            log.warning(words)
        calm_server()

        settings = self._settings
        self._blocks = build(self._desk)
        address = Address(free_port(settings.port), self._keys.secret, os.getpid())
        self._blocks.queue(default_concurrency_limit=None, api_open=False).launch(
            server_name="127.0.0.1",
            server_port=address.port,
            blocked_paths=[str(paths.subdir(name)) for name in PRIVATE_FOLDERS],
            max_file_size=settings.max_upload_mb * 1024 * 1024,
            theme=theme(),
            head=head(settings.theme, launch=self.broadcast.launch, max_mb=settings.max_upload_mb),
            favicon_path=str(ICON) if ICON.exists() else None,
            app_kwargs={
                **NO_PAGES,
                "routes": self._routes(),
                "middleware": [
                    Middleware(
                        LocalGuard, keys=self._keys, port=address.port, keyed=KEYED if settings.api else None
                    )
                ],
            },
            **QUIET,
            **launch_options(),
        )
        end_queue(self._blocks)
        return address

    def _routes(self) -> list[BaseRoute]:
        from starlette.responses import FileResponse
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles

        from app.api.routes import Api

        async def stream_script(_request: Request) -> Response:
            return FileResponse(STREAM_SCRIPT, media_type="text/javascript")

        served = Api(self._desk, api_key()).routes() if self._settings.api else []
        return [
            *served,
            Route("/healthz", self._healthz),
            Route("/events", self._events),
            Route("/stream.js", stream_script),
            Route("/quit", self._quit, methods=["POST"]),
            Route("/use", self._use, methods=["POST"]),
            Route("/goodbye", self._goodbye),
            Route("/ended", self._when_ended),
            Route("/export", self._export),
            Route("/covers/{book_id}", self._book_cover),
            Mount("/fonts", StaticFiles(directory=FONTS)),
        ]

    def ask_to_end(self) -> None:
        """Lets `wait` return, and the second time `stop` not wait for what is being stored; safe in a signal
        handler.
        """
        # both take locks, which the interrupted thread may hold
        step = self._desk.hurry if self._asked.is_set() else self._asked.set
        threading.Thread(target=step, name="end", daemon=True).start()

    def wait(self) -> None:
        """Returns when the person quits or a signal asks for the end."""
        # Windows delivers Ctrl+C between waits only; elsewhere a signal ends the wait by itself
        while not self._asked.wait(0.5 if os.name == "nt" else None):
            pass

    def stop(self) -> None:
        """Ends the answer, stores what was read, ends the engine and the page."""
        self._asked.set()
        self._desk.close()
        self._ended.set()
        self.broadcast.close()
        if self._blocks is not None:
            time.sleep(_LAST_WORD_S)
            self._blocks.close(verbose=False)

    async def _healthz(self, _request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("ok")

    async def _events(self, _request: Request) -> Response:
        from starlette.responses import StreamingResponse

        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(self.broadcast.stream(), media_type="text/event-stream", headers=headers)

    async def _quit(self, _request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        self.quit = True
        threading.Timer(1.0, self._asked.set).start()  # the goodbye page is fetched in between
        return PlainTextResponse("bye")

    async def _use(self, request: Request) -> Response:
        """A model file that `launcher.py use` was given: what is wrong with it, the page says."""
        from starlette.responses import PlainTextResponse

        path = (await request.body()).decode("utf-8", errors="replace")
        if not path or len(path) > _LONGEST_PATH:
            return PlainTextResponse("no path", 400)
        self._desk.used.file(path)
        return PlainTextResponse("ok")

    async def _goodbye(self, _request: Request) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(render("goodbye.html"))

    async def _when_ended(self, _request: Request) -> Response:
        """An answer once all is stored."""
        from starlette.responses import PlainTextResponse

        while not self._ended.is_set():
            await asyncio.sleep(_LAST_WORD_S / 4)
        return PlainTextResponse("ended")

    async def _book_cover(self, request: Request) -> Response:
        from starlette.responses import FileResponse, PlainTextResponse

        try:
            path = self._desk.library.cover(request.path_params["book_id"])
        except KeyError:
            path = None
        if path is None:
            return PlainTextResponse("no such cover", 404)
        return FileResponse(path, media_type="image/jpeg", headers={"Cache-Control": "private, no-cache"})

    async def _export(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        form = request.query_params.get("form", "md")
        kinds = {"md": "text/markdown", "html": "text/html", "json": "application/json"}
        if form not in kinds:
            return PlainTextResponse("no such form", 404)
        name, text = self._desk.talks.export(form)
        header = {"Content-Disposition": "attachment; filename*=UTF-8''" + urllib.request.quote(name)}
        return PlainTextResponse(text, media_type=f"{kinds[form]}; charset=utf-8", headers=header)
