"""Keeps the page for the person at this computer: no foreign host, no foreign origin, no request without this
launch's cookie.

A web page of any site may send requests to 127.0.0.1, and a name that resolves to 127.0.0.1 may even read the
answers. Gradio checks neither the Host header nor uploads from elsewhere, so this stands in front of every
one of its routes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, MutableMapping, Sequence
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import is_away
from app.host.secrets import Keys
from app.render.templating import render
from app.server.languages import wished
from core.text.words import in_language

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")
# asked by the app itself, by a second start, and by a browser, which sends no cookie for a manifest; they
# reveal nothing
OPEN_PATHS = ("/gradio_api/startup-events", "/healthz", "/manifest.json")
UPLOAD = "/gradio_api/upload"

# scripts: Gradio's page is built of inline scripts and compiles its templates; connections and frames stay on
# this origin
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "media-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-src 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class LocalGuard:
    """ASGI middleware. `/?k=<code>` trades a code of `keys` for a cookie, and `POST /code` gives a code to
    whoever has the secret. `port` is the one served on.
    Paths that begin with `keyed` see to it themselves who may ask, and answer to `names`, too. `language`:
    that of its own pages, by what the browser accepts.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        port: int,
        keyed: str | None = None,
        names: Sequence[str] = (),
        language: Callable[[str], str] = wished,
    ) -> None:
        self._app, self._language = app, language
        self._keys, self._keyed = keys, keyed
        self._port, self._names = port, frozenset(names)
        self._cookie = f"triforce_{port}"  # cookies of 127.0.0.1 are shared by all its ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers refused requests itself; passes the others on and adds the security headers to their
        answers.
        """
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the app has no websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        with in_language(self._language(Headers(scope=scope).get("accept-language", ""))):
            refusal = self._refuse(scope)
        if refusal is not None:
            for name, value in HEADERS.items():
                refusal.headers.setdefault(name, value)
            await refusal(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        keyed = bool(self._keyed) and scope["path"].startswith(self._keyed)
        hosts = {f"{name}:{self._port}" for name in (*LOCAL_NAMES, self._keys.name)}
        hosts |= self._names if keyed else set()
        if headers.getlist("host") not in [[host] for host in hosts]:
            return PlainTextResponse("Unknown host.", 421)
        if scope["path"] == "/here" and headers["host"] == f"{self._keys.name}:{self._port}":
            # asked by /enter, which is another origin; whoever asks must know the name
            return Response(status_code=204, headers={"Cross-Origin-Resource-Policy": "cross-origin"})
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{headers['host']}":
            return PlainTextResponse("Requests from other sites are refused.", 403)
        foreign = headers.get("sec-fetch-site") not in (None, "none", "same-origin")
        if foreign and not _is_visit(scope, headers):
            return PlainTextResponse("Requests from other sites are refused.", 403)
        if keyed:
            return None
        if scope["path"] == UPLOAD and is_away():
            return PlainTextResponse("The data folder is gone.", 507)  # Gradio would make one in its place
        if scope["path"] in ("/enter", "/code"):
            return self._let_in(scope, headers)
        code = parse_qs(scope["query_string"].decode("latin-1")).get("k", [""])[0]
        if scope["path"] == "/" and code:
            return self._redeemed(code, known=self._has_cookie(headers))
        if scope["path"] in OPEN_PATHS or self._has_cookie(headers):
            return None
        return HTMLResponse(render("locked_out.html"), 401)

    def _let_in(self, scope: Scope, headers: Headers) -> Response:
        if scope["path"] == "/enter":
            answer = HTMLResponse(render("enter.html"))
            answer.headers["Content-Security-Policy"] = (
                f"default-src 'none'; script-src 'unsafe-inline'; connect-src http://{self._keys.name}:*"
            )
            return answer
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if scope["method"] != "POST" or not self._keys.is_secret(given):
            return PlainTextResponse("A code is given to whoever has the secret.", 401)
        return PlainTextResponse(f"{self._keys.code()}.{self._keys.name}")

    def _redeemed(self, code: str, *, known: bool) -> Response:
        good = self._keys.redeem(code)
        if not good and not known:
            return HTMLResponse(render("locked_out.html"), 401)
        answer = HTMLResponse(render("entered.html"))
        if good:
            answer.set_cookie(self._cookie, self._keys.secret, httponly=True, samesite="strict", path="/")
        return answer

    def _has_cookie(self, headers: Headers) -> bool:
        cookies: SimpleCookie = SimpleCookie()
        for line in headers.getlist("cookie"):
            try:
                cookies.load(line)
            # another program's cookie on 127.0.0.1 must not lock the user out
            except CookieError:
                continue
        return self._cookie in cookies and self._keys.is_secret(cookies[self._cookie].value)


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """A link followed in the address bar's sense: it can show the page, not read it or change anything."""
    return (
        scope["method"] == "GET"
        and scope["path"] == "/"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def scrub_environment(environ: MutableMapping[str, str] = os.environ, *, temp_dir: str = "") -> None:
    """Makes Gradio's environment switches ours. To be called before gradio is imported.

    Every GRADIO_* variable goes (they can open the server to the network, share it or turn on code editing);
    proxies must not see requests to this machine.
    """
    for name in [name for name in environ if name.upper().startswith("GRADIO_")]:
        del environ[name]
    environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # its usage statistics would load pandas at the first click
    environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(10**9)
    environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    if temp_dir:
        environ["GRADIO_TEMP_DIR"] = temp_dir
    for name in ("NO_PROXY", "no_proxy"):
        kept = [part for part in environ.get(name, "").split(",") if part.strip()]
        environ[name] = ",".join(dict.fromkeys([*kept, "127.0.0.1", "localhost", "::1"]))
