"""The page on one port of 127.0.0.1, behind the guard: what is served at which path."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING

from app.api.key import ApiKey
from app.desk.assembly import AppServices
from app.desk.exports import ExportedFile
from app.errors import guarded
from app.host import logs
from app.host.instance import Address, kept_port
from app.host.secrets import Keys
from app.render.templating import render
from app.server.gradio_internals import broken, calm_server, end_queue, launch_options, without_stub_files
from app.server.guard import LocalGuard, scrub_environment
from app.server.languages import LanguageMiddleware, wished
from app.server.last_tab import LastTab
from app.web.answers import cited_answer
from app.web.citations import Citations
from app.web.event_stream import Broadcast
from app.web.page import Page
from core import paths
from core.paths import ROOT
from core.text.words import LANGUAGES, in_language

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from core.config import Settings

log = logging.getLogger(__name__)
FONTS = ROOT / "assets" / "fonts"
STREAM_SCRIPT = ROOT / "assets" / "js" / "stream.js"
ICON = ROOT / "assets" / "icons" / "triforce-chat-256.png"
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
_KINDS = {
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "epub": "application/epub+zip",
}
_FORMS = {  # what is exported, and in which forms
    "export": ("md", "html", "json", "tsv", "epub"),
    "summaries": ("md", "html", "json", "epub"),
    "notes": ("md", "html", "tsv"),
}
_LAST_WORD_S = 0.4  # the goodbye page is told that all is stored


def data_folder_key() -> ApiKey:
    """The key of this data folder."""
    return ApiKey(paths.data_dir() / "api.key")


class Server:
    """The page on one port."""

    def __init__(self, parts: AppServices, settings: Settings, *, keys: Keys) -> None:
        self._parts, self._settings, self._keys = parts, settings, keys
        self.quit = False  # by the person, on the page
        self.port = 0  # once it is served
        self.moved = False  # the data folder was, and the app begins again in it
        parts.data_folder.when_moved(self._begin_again)
        self._asked, self._ended = threading.Event(), threading.Event()
        self._blocks = None
        self.broadcast = Broadcast(
            lambda language: Page(parts, language), lambda: parts.preferences.settings.language or ""
        )
        self._dressed = ""
        parts.store.watch(self.broadcast.changed)
        parts.folders.while_shown(lambda: self.broadcast.listening)
        citations = Citations()
        parts.several.cite_with(lambda *answer: cited_answer(citations, *answer).citations)

    def end_with_last_tab(self) -> None:
        """Lets the app end with its last tab where the person wants that, and asks."""
        parts = self._parts
        parts.store.update(closable=True)
        last = LastTab(
            wanted=lambda: parts.preferences.settings.when_closed == "quit",
            open_tabs=lambda: self.broadcast.listening,
            working=lambda: parts.at_work,
            end=self._end,
            gone=lambda: parts.store.update(was_left=True),
        )
        self.broadcast.when_left(last.left)

    def _begin_again(self) -> None:
        self.moved = True
        self._asked.set()

    def _end(self) -> None:
        log.info("the last tab was closed")
        self.quit = True
        self._asked.set()

    def start(self) -> Address:
        """Serves the page; returns once it answers."""
        scrub_environment(temp_dir=str(paths.subdir("tmp")))  # before gradio is imported
        from starlette.middleware import Middleware

        with without_stub_files():
            from app.web.layout import build_page
            from app.web.theme import theme
        for words in broken():
            log.warning(words)
        calm_server()

        settings = self._settings
        self._blocks = build_page(self._parts)
        self.port = kept_port(settings.port, paths.subdir("run") / "port.json")
        address = Address(self.port, self._keys.secret, os.getpid())
        self._blocks.queue(default_concurrency_limit=None, api_open=False).launch(
            server_name="127.0.0.1",
            server_port=address.port,
            blocked_paths=[str(paths.subdir(name)) for name in PRIVATE_FOLDERS],
            max_file_size=settings.max_upload_mb * 1024 * 1024,
            theme=theme(),
            head=self._head(),
            favicon_path=str(ICON) if ICON.exists() else None,
            app_kwargs={
                **NO_PAGES,
                "routes": self._routes(),
                "middleware": [
                    Middleware(
                        LocalGuard,
                        keys=self._keys,
                        port=address.port,
                        keyed=KEYED if settings.api else None,
                        names=settings.api_hosts,
                        language=self._language,
                    ),
                    Middleware(LanguageMiddleware, language=self._language, dress=self._dress),
                ],
            },
            **QUIET,
            **launch_options(),
        )
        end_queue(self._blocks)
        return address

    def _head(self) -> str:
        from app.web.theme import head

        settings = self._settings
        return head(settings.theme, launch=self.broadcast.launch, max_mb=settings.max_upload_mb)

    def _language(self, accepted: str) -> str:
        """What is set, else what a browser that accepts these wishes."""
        return self._parts.preferences.settings.language or wished(accepted)

    def _dress(self, language: str) -> None:
        """The page in the language of whoever loads it, before that."""
        from app.web.layout import dress

        wanted = f"{language} {self.broadcast.launch}"
        if wanted != self._dressed:
            with in_language(language):
                dress(self._blocks, self._head())
            self._dressed = wanted

    def _routes(self) -> list[BaseRoute]:
        from starlette.responses import FileResponse
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles

        from app.api.answering import ApiAnswers
        from app.api.kept import KeptAnswers
        from app.api.routes import Api
        from app.mcp.books import BookTools
        from app.mcp.routes import routes

        async def stream_script(_request: Request) -> Response:
            return FileResponse(STREAM_SCRIPT, media_type="text/javascript")

        parts = self._parts
        kept = KeptAnswers(parts.library, parts.history, parts.store.tell)
        answers = ApiAnswers(parts.engine, kept)  # one row for everybody but the person
        api = Api(parts.engine, parts.library, parts.preferences, key=data_folder_key(), answers=answers)
        return [
            *(api.routes() if self._settings.api else ()),
            *routes(BookTools(parts, answers)),
            Route("/healthz", self._healthz),
            Route("/events", self._events),
            Route("/stream.js", stream_script),
            Route("/act", self._act, methods=["POST"]),
            Route("/quit", self._quit, methods=["POST"]),
            Route("/end-now", self._end_now, methods=["POST"]),
            Route("/use", self._use, methods=["POST"]),
            Route("/take-model", self._take_model, methods=["POST"]),
            Route("/open", self._open_files, methods=["POST"]),
            Route("/goodbye", self._goodbye),
            Route("/ended", self._when_ended),
            Route("/log", self._log),
            Route("/export", self._export),
            Route("/export/summaries", self._export),
            Route("/export/notes", self._export),
            Route("/covers/{book_id}", self._book_cover),
            Mount("/fonts", StaticFiles(directory=FONTS)),
        ]

    def ask_to_end(self) -> None:
        """Lets `wait` return, and the second time `stop` not wait for what is being stored; safe in a signal
        handler.
        """
        # both take locks, which the interrupted thread may hold
        step = self._parts.hurry if self._asked.is_set() else self._asked.set
        threading.Thread(target=step, name="end", daemon=True).start()

    def wait(self) -> None:
        """Returns when the person quits or a signal asks for the end."""
        # Windows delivers Ctrl+C between waits only; elsewhere a signal ends the wait by itself
        while not self._asked.wait(0.5 if os.name == "nt" else None):
            pass

    def stop(self) -> None:
        """Ends the answer, stores what was read, ends the engine and the page."""
        self._asked.set()
        self._parts.close()
        self._ended.set()
        self.broadcast.close()
        if self._blocks is not None:
            if self.quit:
                time.sleep(_LAST_WORD_S)
            self._blocks.close(verbose=False)

    async def _healthz(self, _request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("ok")

    async def _events(self, request: Request) -> Response:
        """The page in the language that it was loaded in."""
        from starlette.responses import StreamingResponse

        headers, language = {"Cache-Control": "no-store"}, request.query_params.get("language", "")
        stream = self.broadcast.stream(language if language in LANGUAGES else "en")
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _act(self, request: Request) -> Response:
        """One action of the page's buttons and choices, answered when it is done: the page sends the next
        one then.
        """
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse

        try:
            data = json.loads(await request.body())
        except ValueError:
            return PlainTextResponse("no action", 400)
        say = self._parts.store.say
        await run_in_threadpool(guarded, lambda: self._parts.actions.dispatch(data), say, None)
        return PlainTextResponse("done")

    async def _quit(self, _request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        self.quit = True
        threading.Timer(1.0, self._asked.set).start()  # the goodbye page is fetched in between
        return PlainTextResponse("bye")

    async def _end_now(self, _request: Request) -> Response:
        """The person waits no longer for what is being stored."""
        from starlette.responses import PlainTextResponse

        if self.quit:
            threading.Thread(target=self._parts.hurry, name="end", daemon=True).start()
        return PlainTextResponse("bye")

    async def _use(self, request: Request) -> Response:
        """A model file that `launcher.py use` was given: what is wrong with it, the page says."""
        from starlette.responses import PlainTextResponse

        path = (await request.body()).decode("utf-8", errors="replace")
        if not path or len(path) > _LONGEST_PATH:
            return PlainTextResponse("no path", 400)
        self._parts.model_choice.file(path)
        return PlainTextResponse("ok")

    async def _take_model(self, request: Request) -> Response:
        """A model file out of the browser, copied after the person's yes."""
        from starlette.responses import PlainTextResponse

        from app.models.copies import until_gone

        size = request.headers.get("content-length", "")
        if not size.isdigit():
            return PlainTextResponse("how long?", 411)
        name = request.query_params.get("name", "")[:200]
        await self._parts.model_choice.take(name, int(size), until_gone(request))
        return PlainTextResponse("ok")

    async def _open_files(self, request: Request) -> Response:
        """Files that another start was given. Says whether a page is open that shows them."""
        from starlette.responses import PlainTextResponse

        try:
            files = json.loads(await request.body())
        except ValueError:
            files = None
        if not isinstance(files, list) or not all(isinstance(one, str) for one in files):
            return PlainTextResponse("no list of paths", 400)
        self._parts.imports.files(files)
        return PlainTextResponse("shown" if self.broadcast.listening else "taken")

    async def _goodbye(self, _request: Request) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(render("goodbye.html"))

    async def _log(self, _request: Request) -> Response:
        from starlette.responses import HTMLResponse

        return HTMLResponse(render("log.html", folder=logs.folder(), logs=logs.log_tails()))

    async def _when_ended(self, _request: Request) -> Response:
        """An answer once all is stored."""
        from starlette.responses import PlainTextResponse

        while not self._ended.is_set():
            await asyncio.sleep(_LAST_WORD_S / 4)
        return PlainTextResponse("ended")

    async def _book_cover(self, request: Request) -> Response:
        from starlette.responses import FileResponse, PlainTextResponse

        try:
            path = self._parts.library.cover(request.path_params["book_id"])
        except KeyError:
            path = None
        if path is None:
            return PlainTextResponse("no such cover", 404)
        return FileResponse(path, media_type="image/jpeg", headers={"Cache-Control": "private, no-cache"})

    def _written(self, request: Request, form: str) -> ExportedFile:
        """The file. Answers are looked up in their book as the page does it."""
        exports, citations = self._parts.exports, Citations()
        writers = {"summaries": exports.summaries, "notes": exports.notes}
        write = writers.get(request.url.path.rsplit("/", 1)[-1], exports.conversation)
        return write(form, lambda *answer: cited_answer(citations, *answer).citations)

    async def _export(self, request: Request) -> Response:
        """The file; nothing where it cannot be made, and the page, which stays, says why."""
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse, Response

        form = request.query_params.get("form", "md")
        if form not in _FORMS[request.url.path.rsplit("/", 1)[-1]]:
            return PlainTextResponse("no such form", 404)
        made = await run_in_threadpool(
            guarded, partial(self._written, request, form), self._parts.store.say, None
        )
        if made is None:
            return Response(status_code=204)
        header = {"Content-Disposition": "attachment; filename*=UTF-8''" + urllib.request.quote(made.name)}
        return Response(made.content, media_type=_KINDS[form], headers=header)
