"""An answer for another program: its text as it grows, and what is told of it at the end."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from app.api.kept import KeptAnswers
from app.api.request import ApiError, ParsedRequest
from app.errors import in_words
from app.render.markdown import Citation
from app.web.citations import Citations
from core.documents.document import Document, Section
from core.events import (
    AttentionEvidence,
    Delta,
    Event,
    Failed,
    Finished,
    Loading,
    Prefill,
    Preparing,
    ReadingStep,
    Stats,
)
from core.request import Request
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

MOST_WAITING = 8  # answers that are made or waited for
TICK_S = 5.0  # the longest silence: clients and proxies give up on a connection that says nothing
REASONS = {"length": "length", "context_full": "length"}
_SAID = ("answer", "whole summary")  # the readings whose text is the answer's own


@dataclass
class StreamedText:
    """Turns events into text that only ever grows, though answers may begin anew and parts of a book are told
    before the whole.
    """

    text: str = ""
    sent: str = ""
    purpose: str = "answer"
    looked: list[AttentionEvidence] = field(default_factory=list)

    def take(self, event: Event) -> str:
        """What is new of the answer's text. Trailing white space waits: it is no part of an answer's end."""
        if isinstance(event, Loading):
            self.text, self.purpose = "", "answer"
        elif isinstance(event, ReadingStep):
            if event.attempt > 1 or (event.purpose, self.purpose) != ("whole summary", "whole summary"):
                self.text = ""
            self.purpose, self.looked = event.purpose, []
        elif isinstance(event, AttentionEvidence):
            self.looked.append(event)
        elif isinstance(event, Delta):
            self.text += event.text
            return self._new(self.text.strip()) if self.purpose in _SAID else ""
        elif isinstance(event, Finished):
            if not event.text.startswith(self.sent):
                raise ApiError(500, "The answer changed while it was written. Please ask again.")
            return self._new(event.text)
        return ""

    def _new(self, whole: str) -> str:
        if not whole.startswith(self.sent):
            return ""
        new, self.sent = whole[len(self.sent) :], whole
        return new


class ApiAnswers:
    """Makes answers one after the other, and keeps those that are wanted."""

    def __init__(self, engine: Runtime, kept: KeptAnswers) -> None:
        self._engine, self._kept, self._citations = engine, kept, Citations()
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._waiting = 0

    def begin(self, wanted: ParsedRequest) -> Answering:
        """Raises ApiError (429) where too many wait already."""
        with self._lock:
            if self._waiting >= MOST_WAITING:
                words = f"{MOST_WAITING} answers are waited for already. Ask again later."
                raise ApiError(429, words, code="too_many_requests")
            self._waiting += 1
        return Answering(
            self._engine, wanted, kept=self._kept, turn=self._turn, citations=self._citations, over=self._over
        )

    def _over(self) -> None:
        with self._lock:
            self._waiting -= 1


class Answering:
    """One answer, made on a thread of its own. `next` gives texts, remarks and at last the end."""

    def __init__(
        self,
        engine: Runtime,
        wanted: ParsedRequest,
        *,
        kept: KeptAnswers,
        turn: threading.Lock,
        citations: Citations,
        over: Callable[[], None],
    ) -> None:
        self.wanted = wanted
        self._engine, self._keeps = engine, kept
        self._turn, self._citations, self._over = turn, citations, over
        self._making = False
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._unwanted = threading.Event()
        threading.Thread(target=self._run, name="api answer", daemon=True).start()

    def stop(self) -> None:
        """Nobody listens any more: a long prefill ends, too."""
        self._unwanted.set()
        if self._making:
            self._engine.stop_guest()

    def next(self, timeout_s: float = TICK_S) -> str | ProgressChunk | FinalChunk | ApiError:
        """A piece of the text, a remark about what is being done, the end, or what went wrong. Where nothing
        comes in time, an empty remark.
        """
        try:
            return self._news.get(timeout=timeout_s)
        except queue.Empty:
            return ProgressChunk("working")

    def _run(self) -> None:
        try:
            while not self._turn.acquire(timeout=0.2):
                if self._unwanted.is_set():
                    return
            self._making = True
            try:
                self._make()
            finally:
                self._making = False
                self._turn.release()
        except ApiError as error:
            self._news.put(error)
        except Exception as error:  # the thread's boundary: a client must not wait for ever
            self._news.put(ApiError(500, f"The answer broke off ({type(error).__name__})."))
        finally:
            self._over()

    def _make(self) -> None:
        made, remarked = StreamedText(), 0.0
        with contextlib.closing(self._engine.ask(self.wanted.ask)) as events:
            for event in events:
                if self._unwanted.is_set():
                    return
                if isinstance(event, Failed):
                    raise ApiError(400 if event.refused else 503, event.message, code="not_answered")
                if new := made.take(event):
                    self._news.put(new)
                remark = _remark(event)
                if remark and time.monotonic() - remarked > 1:
                    remarked = time.monotonic()
                    self._news.put(remark)
                if isinstance(event, Finished):
                    self._news.put(self._ended(self._kept(event, made), made))

    def _kept(self, event: Finished, made: StreamedText) -> Finished:
        """The answer, written down where that is wanted; a disk that does not take it is told in a note."""
        if not self.wanted.store or event.reason == "user":
            return event
        try:
            self._keeps.keep(self.wanted.ask, event, made.looked)
        except (sqlite3.Error, KeyError) as error:
            reason = _("the book is gone") if isinstance(error, KeyError) else in_words(error)
            note = _("The conversation was not kept: {reason}").format(reason=reason)
            return replace(event, notes=(*event.notes, note))
        return event

    def _ended(self, event: Finished, made: StreamedText) -> FinalChunk:
        ask, evidence = self.wanted.ask, []
        if book := _looked_up_in(ask):
            cited = self._citations(event.text, book, ask.question or "", made.looked, event.stands)
            evidence = [_evidence(book, one) for one in cited.citations]
        return FinalChunk(REASONS.get(event.reason, "stop"), event, evidence)


@dataclass(frozen=True, slots=True)
class ProgressChunk:
    """What is being done, for a comment line, and how far it is where that is known."""

    words: str
    fraction: float | None = None


@dataclass(frozen=True, slots=True)
class FinalChunk:
    """The answer is complete. `evidence`: of its sentences and quotations, in characters of the text."""

    reason: str
    finished: Finished
    evidence: list[dict[str, Any]]

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens, in OpenAI's form."""
        stats: Stats = self.finished.stats
        return {
            "prompt_tokens": stats.prompt_tokens,
            "completion_tokens": stats.new_tokens,
            "total_tokens": stats.prompt_tokens + stats.new_tokens,
            "prompt_tokens_details": {"cached_tokens": stats.reused_tokens},
        }

    @property
    def triforce(self) -> dict[str, Any]:
        """What only this program tells."""
        stats = self.finished.stats
        return {
            "evidence": self.evidence,
            "read": list(self.finished.sources),
            "notes": list(self.finished.notes),
            "mode": stats.mode,
            "acceptance": stats.acceptance_retrieval.rate,
            "tbt_ms": stats.tbt_mean_ms,
            "ttft_s": stats.ttft_s,
        }


def _looked_up_in(ask: Request) -> Document | None:
    """The book, or the text that was sent, with which an answer's sentences are compared."""
    if ask.book is not None:
        return ask.book.up_to(ask.spoiler_limit)
    if not ask.text:
        return None
    whole = (Section("", 0, len(ask.text)),)
    return Document("", "", "txt", ask.text, whole, sha256=ask.text_id)


def _remark(event: Event) -> ProgressChunk | None:
    if isinstance(event, Loading):
        return ProgressChunk(event.stage)
    if isinstance(event, ReadingStep):
        return ProgressChunk(f"reading {event.index} of {event.total}")
    if isinstance(event, Preparing):
        return ProgressChunk("preparing memory", event.done_bytes / event.total_bytes)
    if isinstance(event, Prefill):
        words = f"read {event.done_tokens} of {event.total_tokens} tokens"
        return ProgressChunk(words, event.done_tokens / max(1, event.total_tokens))
    return None


def _evidence(book: Document, one: Citation) -> dict[str, Any]:
    """A sentence or a quotation of the answer with its place: `kind` is quoted, agrees or nothing."""
    place = {}
    if one.offset is not None:
        end = one.offset + (one.length or 0)
        place = {
            "chapter": book.section_at(one.offset).title,
            "page": book.page_at(one.offset),
            "book_start": one.offset,
            "book_end": end,
            "words": book.text[one.offset : end],
        }
    kind = one.kind or ("quoted" if place else "nothing")
    return {"start": one.start, "end": one.end, "kind": kind, **place}
