"""What another program asks for, checked: a request of OpenAI's form as an Ask. What is not known is refused,
never passed over.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from app.store.book_entry import BookEntry
from core.config import LENGTHS, READING_MODES, checked
from core.documents.document import Document
from core.errors import UserError
from core.request import HistoryTurn, Request
from core.text.renamed import renamed

MOST_STOPS, MOST_SEED = 4, 2**31 - 1
LEAST_TEXT = 2000  # characters before a question that are worth being kept as read
_MOST = ("max_tokens", "max_completion_tokens")
_PARAMS = {"temperature": "temperature", "top_p": "top_p", "seed": "seed"} | dict.fromkeys(
    _MOST, "max_new_tokens"
)
# taken where they ask for what is done anyway
_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1, None),
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "logprobs": (False, None),
    "response_format": ({"type": "text"}, None),
}
_OTHERS = ("model", "messages", "stream", "stream_options", "stop", "store", "user", "triforce")
_OWN = ("summary", "spoiler_limit", "reading_mode")


class ApiError(Exception):
    """In OpenAI's form. `param`: what of the request is wrong."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        """What the other program is told."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request that can be answered. `model`: as it was named. `store`: the conversation is to be kept."""

    model: str
    ask: Request
    stream: bool = False
    usage: bool = False
    store: bool = False


def model_names(engine: str, books: Iterable[BookEntry]) -> dict[str, str]:
    """Ids of all that can be asked -> the book's id, "" for the model without a book. Books of one title have
    the beginning of their id behind it.
    """
    base = slug(engine) or "model"
    entries = [(one, slug(one.title) or "book") for one in books]
    often = Counter(name for _one, name in entries)
    named = {
        f"{base}@{name}" + (f"-{one.id[:6]}" if often[name] > 1 else ""): one.id for one, name in entries
    }
    return {base: "", **named}


def slug(text: str) -> str:
    """Letters and digits of any script with dashes between: a name for an address."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[^\w.]+|_+", "-", plain)[:60].strip("-.")


def parse_request(
    body: bytes,
    names: Mapping[str, str],
    book: Callable[[str], Document],
    params: Mapping[str, Any] = MappingProxyType({}),
    context_tokens: int = 0,
) -> ParsedRequest:
    """The request as an Ask. `book` gives a document by its id; `params`: what holds where the request says
    nothing; `context_tokens`: of the engine, 0 where it has not said so yet. Raises ApiError.
    """
    given = _object(body)
    for name in given:
        if name not in (*_PARAMS, *_ONLY, *_OTHERS):
            raise ApiError(400, f"{name} is not known here.", param=name, code="unknown_parameter")
    for name, fine in _ONLY.items():
        if not any(given.get(name) == one for one in fine):
            raise ApiError(
                400, f"{name} cannot be {given[name]!r} here.", param=name, code="unsupported_value"
            )
    model = given.get("model")
    if not isinstance(model, str) or model not in names:
        words = f"There is no model {model!r}; GET /v1/models lists those there are."
        raise ApiError(404, words, param="model", code="model_not_found")
    own = _own(given.get("triforce"))
    history, question, before = _said(given.get("messages"))
    try:
        document = book(names[model]) if names[model] else None
    except KeyError:
        words = "That book is no longer on the shelf."
        raise ApiError(404, words, param="model", code="model_not_found") from None
    first = history[0].question if history else question
    talk = hashlib.sha256(json.dumps([model, own, first]).encode()).hexdigest()[:32]
    text = "" if document else first[:before]
    if text and history:
        history = (replace(history[0], question=first[before:]), *history[1:])
    elif text:
        question = first[before:]
    ask = Request(
        question=None if own["summary"] else question,
        book=document,
        conversation_id=f"api-{talk}",
        reading_mode=own["reading_mode"] or "auto",
        spoiler_limit=own["spoiler_limit"],
        summary_length=own["summary"] or "page",
        params={**params, **_bounded(_params(given), context_tokens)},
        history=() if own["summary"] else history,
        low_priority=True,
        text=text,
    )
    if own["summary"] and document is None:
        raise ApiError(400, "Only a book can be summarised: name one as the model.", param="triforce")
    if own["spoiler_limit"] and (document is None or own["spoiler_limit"] > len(document.chapters)):
        raise ApiError(400, "spoiler_limit is a chapter of the book, from 1.", param="triforce")
    stream = _flag(given.get("stream"), "stream")
    options = {} if given.get("stream_options") is None else given["stream_options"]
    if not isinstance(options, dict) or set(options) - {"include_usage"} or (options and not stream):
        raise ApiError(400, "stream_options takes include_usage, with stream.", param="stream_options")
    usage, store = _flag(options.get("include_usage"), "stream_options"), _flag(given.get("store"), "store")
    return ParsedRequest(model, ask, stream, usage, store)


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
        json.dumps(given, ensure_ascii=False).encode()  # half a character fails: no answer could name it
    except (ValueError, RecursionError):
        raise ApiError(400, "The request is no JSON.") from None
    if not isinstance(given, dict):
        raise ApiError(400, "The request is no JSON object.")
    return given


def _flag(value: Any, name: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise ApiError(400, f"{name} is true or false.", param=name)
    return bool(value)


def _params(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if len({given[name] for name in _MOST if isinstance(given.get(name), int)}) > 1:
        words = "max_tokens and max_completion_tokens are two names of one number."
        raise ApiError(400, words, param="max_tokens")
    for name, ours in _PARAMS.items():
        value = given.get(name)
        if value is None:
            continue
        whole = ours in ("seed", "max_new_tokens")
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
            raise ApiError(400, f"{name} is a {'whole ' if whole else ''}number.", param=name)
        try:
            found[ours] = checked(ours, value)
        except UserError as error:
            raise ApiError(400, str(error), param=name) from None
    found.setdefault("seed", 1 + secrets.randbelow(MOST_SEED))  # an answer may have to begin anew
    stop = given.get("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if (
        not isinstance(stops, list)
        or len(stops) > MOST_STOPS
        or not all(isinstance(x, str) and x for x in stops)
    ):
        raise ApiError(400, f"stop is a text, or up to {MOST_STOPS} of them.", param="stop")
    return {**found, "stop": stops} if stops else found


def _bounded(params: dict[str, Any], context_tokens: int) -> dict[str, Any]:
    """The params with an answer of at most a quarter of the context. Many programs send 16,384 whatever the
    model is; what an answer may need is kept free, and the book would find no room.
    """
    most = context_tokens // 4
    longer = most and params.get("max_new_tokens", 0) > most
    return {**params, "max_new_tokens": most} if longer else params


def _own(value: Any) -> dict[str, Any]:
    """What only this program knows: `triforce: {summary, spoiler_limit, reading_mode}`; earlier
    versions called the last two until and fit."""
    given = {} if value is None else renamed(value) if isinstance(value, dict) else value
    if not isinstance(given, dict) or set(given) - set(_OWN):
        raise ApiError(400, f"triforce takes {', '.join(_OWN)}.", param="triforce", code="unknown_parameter")
    for name, allowed in (("summary", LENGTHS), ("reading_mode", READING_MODES)):
        if given.get(name) is not None and given[name] not in allowed:
            raise ApiError(400, f"{name} is one of {', '.join(allowed)}.", param="triforce")
    spoiler_limit = given.get("spoiler_limit")
    if spoiler_limit is not None and (
        isinstance(spoiler_limit, bool) or not isinstance(spoiler_limit, int) or spoiler_limit < 1
    ):
        raise ApiError(400, "spoiler_limit is a chapter of the book, from 1.", param="triforce")
    return {name: given.get(name) for name in _OWN}


def _said(messages: Any) -> tuple[tuple[HistoryTurn, ...], str, int]:
    """What was said before, the question, and how many characters of the first one are the text that it is
    about. Instructions go before the first question, and questions without an answer between are one.
    """
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages is a list with a question in it.", param="messages")
    exchanges: list[HistoryTurn] = []
    pieces: list[str] = []  # of the question at hand; those of instructions are of the first
    asked, before = False, 0
    for message in messages:
        role, texts = _message(message)
        if role in ("system", "developer"):
            if asked or exchanges:
                raise ApiError(400, "Instructions come before everything else.", param="messages")
            pieces += texts
        elif role == "user":
            asked, pieces = True, [*pieces, *texts]
        elif not asked:
            raise ApiError(400, "An answer without a question before it.", param="messages")
        else:
            before = before if exchanges else _before_question(pieces)
            exchanges.append(HistoryTurn(_joined(pieces), _joined(texts)))
            asked, pieces = False, []
    if not asked:
        raise ApiError(400, "The last message is the user's question.", param="messages")
    question = _joined(pieces)
    if not question:
        raise ApiError(400, "The question is empty.", param="messages")
    return tuple(exchanges), question, before if exchanges else _before_question(pieces)


def _joined(pieces: list[str]) -> str:
    return "\n\n".join(piece for piece in pieces if piece.strip()).strip()


def _before_question(pieces: list[str]) -> int:
    """How many characters of these, joined, are a text that the question stands behind: all before the last
    piece or, of a long one, before its last line. 0 where that is short: it is read as fast as looked for.
    """
    whole, last = _joined(pieces), next((one.strip() for one in reversed(pieces) if one.strip()), "")
    line = last.rfind("\n") + 1 if len(last) > LEAST_TEXT else 0
    before = len(whole) - len(last) + line
    return before if before >= LEAST_TEXT else 0


def _message(message: Any) -> tuple[str, list[str]]:
    if not isinstance(message, dict) or set(message) - {"role", "content"}:
        raise ApiError(400, "A message has a role and a content, and nothing else.", param="messages")
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise ApiError(
            400, "The role of a message is system, developer, user or assistant.", param="messages"
        )
    if isinstance(content, list):
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise ApiError(400, "Only text can be read: no pictures, no sound.", param="messages")
        if not all(set(part) == {"type", "text"} and isinstance(part["text"], str) for part in content):
            raise ApiError(400, "A part of a content has a type and a text.", param="messages")
        return role, [part["text"] for part in content]
    if not isinstance(content, str):
        raise ApiError(400, "The content of a message is text.", param="messages")
    return role, [content]
