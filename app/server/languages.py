"""The language of the page: what the browser asks for, and what is rendered for its requests in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers

from core.text.words import LANGUAGES, in_language

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from app.store.preferences import Preferences

PAGES = ("/goodbye", "/export", "/export/summaries", "/log")  # rendered where they are asked for


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
    """ASGI middleware behind the guard: hears what the browser that loads the page wishes, and has the page
    dressed for it. Only what is rendered is in that language: what requests store is English.
    """

    def __init__(self, app: ASGIApp, *, preferences: Preferences, dress: Callable[[], None]) -> None:
        self._app, self._preferences, self._dress = app, preferences, dress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
        path = scope.get("path", "")
        if path == "/":
            self._preferences.wish(wished(Headers(scope=scope).get("accept-language", "")))
            await run_in_threadpool(self._dress)
        if path not in PAGES:
            await self._app(scope, receive, send)
            return
        with in_language(self._preferences.language):
            await self._app(scope, receive, send)
