"""Commands and events as lines of JSON: what the app and the engine's process say to each other. Values
only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, BinaryIO

from core.events import (
    Acceptance,
    AttentionEvidence,
    DecodingStarted,
    Delta,
    Event,
    Failed,
    Finished,
    Loading,
    Piece,
    Prefill,
    Preparing,
    ReadingStep,
    RoundStats,
    SourceSpan,
    Stats,
    SummaryDraft,
    VerificationResult,
)
from core.request import HistoryTurn, Request
from core.text.packing import from_json, to_json_text

if TYPE_CHECKING:
    from core.documents.document import Document

CARD_LOST = 86  # the exit code of the engine's process whose card has failed for good,
RANK_LOST = 87  # and of one that computes a model with others, of which one is gone

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Loading,
        ReadingStep,
        Preparing,
        Prefill,
        DecodingStarted,
        Delta,
        AttentionEvidence,
        SummaryDraft,
        Finished,
        Failed,
    )
}


def to_line(message: dict[str, Any]) -> bytes:
    """One message as one line; lone surrogates and line breaks inside texts do not get out. Bytes under
    `data` follow the line as they are, and stand in it by their number.
    """
    data = message.get("data", b"")
    if data:
        message = {**message, "data": len(data)}
    return to_json_text(message, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n" + data


def from_line(line: bytes) -> dict[str, Any]:
    """The message of one line. Raises ValueError when it is none."""
    message = from_json(line)
    if not isinstance(message, dict):
        raise ValueError(f"not a message: {line[:80]!r}")
    return message


def messages(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """What `to_line` made, as it comes, until the stream ends or a message is cut off."""
    for line in stream:
        message = from_line(line)
        if size := message.get("data"):
            message["data"] = stream.read(size)
            if len(message["data"]) < size:
                return
        yield message


def pack(event: Event) -> dict[str, Any]:
    """An event as plain values."""
    return {"kind": type(event).__name__, **asdict(event)}


def unpack(values: dict[str, Any]) -> Event:
    """The event that `pack` packed."""
    values = dict(values)
    kind = _KINDS[values.pop("kind")]
    if "stats" in values:
        values["stats"] = unpack_stats(values["stats"])
    if kind is Delta:
        values["pieces"] = tuple(Piece(**piece) for piece in values["pieces"])
        values["rounds"] = tuple(_round(one) for one in values["rounds"])
    if kind is SummaryDraft:
        for name in ("before", "telling", "after"):
            values[name] = tuple(Piece(**piece) for piece in values[name])
        values["stands"] = tuple(SourceSpan(**one) for one in values["stands"])
    if kind is AttentionEvidence:
        return unpack_looked(values)
    if kind is Failed:
        values["ways"] = tuple(values.get("ways", ()))
    if kind is Finished:
        for name in ("token_ids", "decoded", "sources", "notes"):
            values[name] = tuple(values[name])
        values["pieces"] = tuple(Piece(**piece) for piece in values["pieces"])
        values["stands"] = tuple(SourceSpan(**one) for one in values["stands"])
    return kind(**values)


def _round(values: dict[str, Any]) -> RoundStats:
    levels = {name: Acceptance(**values[name]) for name in ("acceptance_draft", "acceptance_retrieval")}
    return RoundStats(**{**values, **levels})


def unpack_looked(values: dict[str, Any]) -> AttentionEvidence:
    """From the plain values of `asdict`, as they are packed and as they are stored."""
    return AttentionEvidence(values["sentence"], tuple((start, score) for start, score in values["places"]))


def pack_ask(ask: Request) -> dict[str, Any]:
    """A question as plain values; its book, which is large, as its id."""
    values = {one.name: getattr(ask, one.name) for one in fields(ask)}
    said = [asdict(exchange) for exchange in ask.history]
    return {
        **values,
        "book": ask.book_id,
        "params": dict(ask.params),
        "drawn": dict(ask.drawn),
        "history": said,
    }


def unpack_ask(values: dict[str, Any], book: Document | None) -> Request:
    """The question that `pack_ask` packed, about `book`."""
    chapters = tuple(values["chapters"]) if values["chapters"] else None
    said = tuple(HistoryTurn(**{**one, "ids": tuple(one["ids"])}) for one in values["history"])
    lists = {name: tuple(values[name]) for name in ("selected_chapters", "compare")}
    return Request(**{**values, **lists, "book": book, "chapters": chapters, "history": said})


def unpack_stats(values: dict[str, Any]) -> Stats:
    """Stats from the plain values of `asdict`, also of another version: stored answers outlive this one.

    A figure that is not known here is left out, one that is missing takes its default.
    """
    known = _known(Stats, values)
    for name in ("acceptance_draft", "acceptance_retrieval"):
        known[name] = Acceptance(**_known(Acceptance, known.get(name, {})))
    for name in ("tbt_series_ms", "acceptance_series", "round_sizes"):
        known[name] = tuple(known.get(name, ()))
    known["verified"] = unpack_verified(known.get("verified") or {})
    return Stats(**known)


def unpack_verified(values: dict[str, Any]) -> VerificationResult | None:
    """From the plain values of `asdict`; None where one is missing that has no default."""
    known = _known(VerificationResult, values)
    known["places"] = tuple((start, end) for start, end in known.get("places", ()))
    return VerificationResult(**known) if len(known) == len(fields(VerificationResult)) else None


def _known(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    return {one.name: values[one.name] for one in fields(kind) if one.name in values}
