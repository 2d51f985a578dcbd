"""The language of the page: what the browser asks for, and what is rendered for its requests in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from core.text.words import LANGUAGES, in_language

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# rendered where they are asked for
PAGES = ("/goodbye", "/export", "/export/summaries", "/export/notes", "/log")
DRESSED = ("/", "/config")  # Gradio's page, and what it is made of


def wished(header: str) -> str:
    """The language that an Accept-Language header puts first among those there are; English where there is
    none of them.
    """
    wishes = []
    for at, one in enumerate(header.split(",")):
        tag, _, quality = one.partition(";q=")
        try:
            wishes.append((-float(quality or 1), at, tag.strip().lower().partition("-")[0]))
        except ValueError:
            continue
    return next((code for quality, _, code in sorted(wishes) if code in LANGUAGES and quality), "en")


class LanguageMiddleware:
    """ASGI middleware behind the guard: has the page dressed in the language of the browser that loads it,
    one load after another. `language`: by what a browser accepts. Only what is rendered is in that language:
    what requests store is English.
    """

    def __init__(self, app: ASGIApp, *, language: Callable[[str], str], dress: Callable[[str], None]) -> None:
        self._app, self._language, self._dress = app, language, dress
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
        path = scope.get("path", "")
        if path not in (*DRESSED, *PAGES):
            await self._app(scope, receive, send)
            return
        language = self._language(Headers(scope=scope).get("accept-language", ""))
        if path in DRESSED:
            await self._load(language, scope, receive, send)
            return
        with in_language(language):
            await self._app(scope, receive, send)

    async def _load(self, language: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Nobody else's language until the answer, which is whole when it begins."""
        await self._loading.acquire()
        held = [True]

        def free() -> None:
            if held:
                held.clear()
                self._loading.release()

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                free()
            await send(message)

        try:
            await run_in_threadpool(self._dress, language)
            await self._app(scope, receive, sent)
        finally:
            free()
