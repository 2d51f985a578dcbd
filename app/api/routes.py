"""The addresses under /v1. Every one wants the key; none is for a browser."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from app.api.answering import Answering, ApiAnswers, FinalChunk, ProgressChunk
from app.api.key import ApiKey
from app.api.request import ApiError, model_names, parse_request
from core.request import params_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from app.engine.client import Runtime
    from app.store.library import Library
    from app.store.preferences import Preferences

PREFIX = "/v1/"
MOST_BYTES = 16 << 20  # of a request: a long book as text, three times
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_LOOK_S = 0.5  # between two looks whether the client is still there


class Api:
    """Answers other programs from the books of one library."""

    def __init__(
        self, engine: Runtime, library: Library, preferences: Preferences, *, key: ApiKey, answers: ApiAnswers
    ) -> None:
        self._engine, self._library, self._preferences = engine, library, preferences
        self._key, self._answers = key, answers
        self._started = int(time.time())

    def routes(self) -> list[Route]:
        """What is served, and that nothing else is."""
        return [
            Route(path, self._guarded(serve, served), methods=_METHODS)
            for path, serve, served in (
                ("/v1/models", self._models, ["GET", "HEAD"]),
                ("/v1/models/{name}", self._model, ["GET", "HEAD"]),
                ("/v1/chat/completions", self._completions, ["POST"]),
                ("/v1/{rest:path}", self._nothing, [*_METHODS, "HEAD"]),
            )
        ]

    def _guarded(self, serve: Any, served: list[str]) -> Any:
        async def guarded(request: Request) -> Response:
            try:
                if request.headers.get("origin") is not None:
                    raise ApiError(403, "Web pages are not served here.")
                scheme, _space, key = request.headers.get("authorization", "").partition(" ")
                if scheme.lower() != "bearer" or not self._key.fits(key.strip()):
                    words = "The key is missing or wrong. `launcher.py api-key` makes a new one."
                    raise ApiError(401, words, code="invalid_api_key")
                if request.method not in served:
                    words = f"{request.url.path} takes {served[0]} only."
                    raise ApiError(405, words, code="method_not_allowed")
                return await serve(request)
            except ApiError as error:
                more = {"Retry-After": "30"} if error.status in (429, 503) else {}
                if error.status == 405:
                    more = {"Allow": ", ".join(served)}
                return JSONResponse(error.body, error.status, more)

        return guarded

    def _names(self) -> dict[str, str]:
        return model_names(
            self._engine.model_name, [one for one in self._library.entries() if not one.missing]
        )

    async def _models(self, _request: Request) -> Response:
        names = await run_in_threadpool(self._names)
        return JSONResponse({"object": "list", "data": [self._about(name) for name in names]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in await run_in_threadpool(self._names):
            raise ApiError(404, f"There is no model {name!r}.", param="model", code="model_not_found")
        return JSONResponse(self._about(name))

    def _about(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "triforce-chat"}

    async def _nothing(self, request: Request) -> Response:
        raise ApiError(404, f"There is nothing at {request.url.path}.", code="unknown_url")

    async def _completions(self, request: Request) -> Response:
        body = await _body(request)
        params = params_of(self._preferences.settings)
        context = (self._engine.plan or {}).get("context_tokens", 0)
        asked = await run_in_threadpool(
            lambda: parse_request(body, self._names(), self._library.get, params, context_tokens=context)
        )
        answering = self._answers.begin(asked)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        if asked.stream:
            events = _stream(answering, head)
            return StreamingResponse(
                events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
            )
        return JSONResponse(await _whole(request, answering, head))


async def _body(request: Request) -> bytes:
    """The request's bytes. Raises ApiError (413) for too many, before they are all here."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > MOST_BYTES:
            raise ApiError(413, f"A request has at most {MOST_BYTES >> 20} MB.")
    return bytes(found)


async def _whole(request: Request, answering: Answering, head: dict[str, Any]) -> dict[str, Any]:
    """The whole answer as one object. A client that goes away ends it."""
    text = []
    try:
        while True:
            news = await run_in_threadpool(answering.next, _LOOK_S)
            if isinstance(news, ApiError):
                raise news
            if isinstance(news, FinalChunk):
                message = {"role": "assistant", "content": "".join(text)}
                choice = {"index": 0, "message": message, "finish_reason": news.reason, "logprobs": None}
                told = {"object": "chat.completion", "choices": [choice], "usage": news.usage}
                return {**head, **told, "triforce": news.triforce}
            if isinstance(news, str):
                text.append(news)
            if await request.is_disconnected():
                raise ApiError(499, "The client went away.")
    finally:
        answering.stop()


async def _stream(answering: Answering, head: dict[str, Any]) -> AsyncIterator[bytes]:
    """Server-sent events; comment lines say what is being done, so that no client takes silence for death."""
    usage = {"usage": None} if answering.wanted.usage else {}

    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return _event({**head, "object": "chat.completion.chunk", "choices": [choice], **usage, **more})

    try:
        yield chunk({"role": "assistant", "content": ""})
        while True:
            news = await run_in_threadpool(answering.next)
            if isinstance(news, str):
                yield chunk({"content": news})
            elif isinstance(news, ProgressChunk):
                yield f": {' '.join(news.words.split())}\n\n".encode()
            elif isinstance(news, ApiError):
                yield _event(news.body)
                return
            else:
                yield chunk({}, news.reason, triforce=news.triforce)
                if usage:
                    yield _event(
                        {**head, "object": "chat.completion.chunk", "choices": [], "usage": news.usage}
                    )
                yield b"data: [DONE]\n\n"
                return
    finally:
        answering.stop()


def _event(values: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
