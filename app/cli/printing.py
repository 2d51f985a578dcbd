"""An answer in the terminal: its text as it comes, what goes on beside it, what is said at its end."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import shorten
from typing import Any

from app.cli.terminal import status, tell
from app.engine.client import Runtime
from app.render.footnotes import UNSURE
from app.web.citations import Citations
from core.errors import UserError
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
    SummaryDraft,
)
from core.request import Request
from core.stats import AnswerStats
from core.text.words import duration
from core.text.words import translated as _

_DOUBTED_CHARS = 160  # of a sentence that may not be right


class Stream:
    """Writes an answer's text as it comes and what is going on beside it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._at_start = True
        # a part's summary, written when it is known to be the one that stays
        self._held: list[str] | None = None
        self._told = ""  # where it is told in the place of what stands there: what was written of it
        self._settles = False  # a part of it begins: what stands before it stays
        self._figures = AnswerStats()
        self.looked: list[AttentionEvidence] = []  # where the model looked for the answer

    def show(self, events: Iterator[Event]) -> Finished:
        """The end of the answer. Ctrl-C stops it and waits for what it has. Raises UserError when there is
        none.
        """
        inbox: queue.Queue[Event | None] = queue.Queue()
        threading.Thread(target=_pump, args=(events, inbox), name="answer", daemon=True).start()
        stopping, event = False, None
        while not isinstance(event, Finished):
            try:
                event = _next(inbox)
                if event is None or isinstance(event, Failed):
                    none = _("The engine gave no answer. Its log has the reason.")
                    raise UserError(event.message if event else none)
                self._one(event)
            except KeyboardInterrupt:
                if stopping or self._runtime.state != "busy":
                    raise
                stopping = True
                self._runtime.stop()
        status("")
        self._release()
        if self._told:
            self._write(event.text[len(self._told) :])
        if not self._at_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
        return event

    def _one(self, event: Event) -> None:
        self._figures.take(event)
        if isinstance(event, Loading):
            status(event.stage, event.fraction)
        elif isinstance(event, ReadingStep):
            self.looked = []
            self._heading(event)
        elif isinstance(event, AttentionEvidence):
            self.looked.append(event)
        elif isinstance(event, SummaryDraft):
            self._settled(event)
        elif isinstance(event, Preparing):
            status(_("Preparing memory"), event.done_bytes / event.total_bytes)
        elif isinstance(event, Prefill):
            status(_how_far(event))
        elif isinstance(event, Delta) and event.text:
            status("")
            if self._held is None:
                self._write(event.text)
            else:
                self._hold(event)

    def _settled(self, event: SummaryDraft) -> None:
        """Writes what stays of a summary that is told in the place of what stands there."""
        if self._settles:
            before = "".join(piece.text for piece in event.before)
            self._write(before[len(self._told) :])
            self._told, self._settles = before, False
        self._held = []

    def _hold(self, event: Delta) -> None:
        self._held.append(event.text)
        if stats := self._figures.stats():
            status(_("Writing: {count} tokens").format(count=stats.new_tokens))

    def _release(self) -> None:
        held, self._held = self._held, None
        if held and not self._told:
            self._write("".join(held))

    def _write(self, text: str) -> None:
        text = text.lstrip() if self._at_start else text
        sys.stdout.write(text)
        sys.stdout.flush()
        self._at_start = self._at_start and not text

    def _heading(self, event: ReadingStep) -> None:
        status("")
        if event.purpose == "passage":
            words = _("Reading passage {index} of {total}: {part}")
            status(words.format(index=event.index, total=event.total, part=event.label))
            return
        if event.purpose == "telling":
            words = _("Telling part {index} of {total}: {part}")
            status(words.format(index=event.index, total=event.total, part=event.label))
            self._settles = event.attempt == 1
            self._held = self._held or []
            return
        if event.attempt > 1:  # the same part, told anew
            self._held = []
            return
        self._release()
        # a summary may be told anew
        self._held = [] if event.purpose in ("part summary", "whole summary") else None
        if event.purpose == "answer" and event.total == 1:
            return
        if event.purpose == "whole summary":  # stretches of it bring their own headings
            if event.index > 1:
                return
            title = _("The whole book") + "\n"
        else:
            place = f"[{event.index}/{event.total}] " if event.total > 1 else ""
            title = f"{place}{event.label[:1].upper()}{event.label[1:]}"
        before = "" if self._at_start else "\n\n"
        sys.stdout.write(f"{before}{title}\n")
        sys.stdout.flush()
        self._at_start = True


def _pump(events: Iterator[Event], inbox: queue.Queue[Event | None]) -> None:
    """On a thread of its own: a Ctrl-C inside the events themselves would end them."""
    try:
        for event in events:
            inbox.put(event)
    finally:
        inbox.put(None)


def _next(inbox: queue.Queue[Event | None]) -> Event | None:
    while True:
        try:
            return inbox.get(timeout=0.2)  # Windows delivers Ctrl-C between waits only
        except queue.Empty:
            continue


def answer_json(finished: Finished) -> dict[str, Any]:
    """What `--json` writes."""
    stats = finished.stats
    return {
        "text": finished.text,
        "prompt_tokens": stats.prompt_tokens,
        "reused_tokens": stats.reused_tokens,
        "snapshot_tokens": stats.snapshot_tokens,
        "new_tokens": stats.new_tokens,
        "finish_reason": finished.reason,
        "prefill_s": stats.prefill_s,
        "ttft_s": stats.ttft_s,
        "tbt_ms": {"mean": stats.tbt_mean_ms, "p50": stats.tbt_p50_ms, "p95": stats.tbt_p95_ms},
        "tokens_per_s": stats.tokens_per_s,
        "acceptance": {"draft": stats.acceptance_draft.rate, "retrieval": stats.acceptance_retrieval.rate},
        "proposed": {
            "draft": asdict(stats.acceptance_draft),
            "retrieval": asdict(stats.acceptance_retrieval),
        },
        "tokens_per_round": stats.tokens_per_round,
        "rounds": stats.rounds,
        "longest_wait_ms": stats.longest_wait_ms,
        "mode": stats.mode,
        "model": stats.model,
        "plan": finished.plan,
        "peak_memory_bytes": stats.peak_memory_bytes,
        "verified": asdict(stats.verified) if stats.verified else None,
    }


def unsure(
    citations: Citations, ask: Request, finished: Finished, looked: Sequence[AttentionEvidence]
) -> list[str]:
    """The sentences of an answer that the page has a circle behind."""
    if ask.book is None:
        return []
    known = ask.book.up_to(ask.spoiler_limit)
    cited = citations(finished.text, known, ask.question or "", looked, finished.stands)
    return [finished.text[one.start : one.end] for one in cited.citations if one.kind == "nothing"]


def report(finished: Finished, doubted: Sequence[str]) -> None:
    """What may not be right, what was read, what was not, and how fast it went, on stderr."""
    stats = finished.stats
    for sentence in doubted:
        words = _("Not sure that this is right: “{sentence}”")
        tell(f"{UNSURE} {words.format(sentence=shorten(sentence, _DOUBTED_CHARS, placeholder=' …'))}")
    if finished.sources:
        tell(_("Read for this answer: {sources}").format(sources="; ".join(finished.sources)))
    for line in filter(None, (*finished.notes, _ended(finished.reason))):
        tell(line)
    if stats.new_tokens:
        tell(_how_fast(stats))


def _ended(reason: str) -> str:
    """Why the answer is not longer, where that is worth a word."""
    return {
        "length": _("The answer reached --max-new-tokens and was cut there."),
        "looping": _("The answer began to repeat itself and was stopped."),
        "context_full": _("The context is full; the answer was cut there."),
        "user": _("Stopped."),
    }.get(reason, "")


def _how_far(event: Prefill) -> str:
    words = [
        _("Reading: {done:,} of {total:,} tokens").format(done=event.done_tokens, total=event.total_tokens)
    ]
    if event.eta_s:
        words.append(_("about {time} left").format(time=duration(event.eta_s)))
    if event.snapshot_tokens:
        words.append(_("{tokens:,} known from before").format(tokens=event.snapshot_tokens))
    return ", ".join(words)


def _how_fast(stats: Stats) -> str:
    words = [_("{tokens} tokens").format(tokens=stats.new_tokens)]
    if stats.tbt_mean_ms:  # there is none in an answer of one round
        words.append(_("{ms:.0f} ms between tokens").format(ms=stats.tbt_mean_ms))
    for level, accepted in (
        (_("draft"), stats.acceptance_draft),
        (_("retrieval"), stats.acceptance_retrieval),
    ):
        if accepted.rate is not None:
            words.append(_("{level} accepted {rate:.0%}").format(level=level, rate=accepted.rate))
    words.append(_("first after {time}").format(time=duration(stats.ttft_s)))
    if stats.snapshot_tokens:
        known = _("{known:,} of {tokens:,} prompt tokens from disk")
        words.append(known.format(known=stats.snapshot_tokens, tokens=stats.prompt_tokens))
    return f"{', '.join(words)} ({stats.model}, {stats.mode})"
