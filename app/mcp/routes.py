"""Where the thin process asks. Behind the guard: only who has read the app's secret gets here."""

from __future__ import annotations

import inspect
import json
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.mcp.books import BookTools
from app.mcp.jobs import Refused
from app.mcp.program import TOOLS
from core.errors import UserError

PATH = "/assistant/"
MOST_BYTES = 64 << 10  # of a call


def routes(assistant: BookTools) -> list[Route]:
    """One address for each tool."""

    async def call(request: Request) -> Response:
        tool = request.path_params["tool"]
        if tool not in TOOLS:
            return JSONResponse({"error": f"There is no tool {tool!r}."}, 404)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                return JSONResponse({"error": f"A call has at most {MOST_BYTES >> 10} KB."}, 413)
        try:
            given = json.loads(bytes(body))
            inspect.signature(getattr(assistant, tool)).bind(**given)
        except (ValueError, TypeError, RecursionError):
            return JSONResponse({"error": f"{tool} was not called as it is described."}, 400)
        return await run_in_threadpool(_answered, assistant, tool, given)

    return [Route(PATH + "{tool}", call, methods=["POST"])]


def _answered(assistant: BookTools, tool: str, given: dict[str, Any]) -> Response:
    try:
        return JSONResponse(assistant.call(tool, given))
    except (Refused, UserError) as error:
        return JSONResponse({"error": str(error)}, 400)
