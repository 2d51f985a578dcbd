"""Commands that answer: summarize and chat. They stream to stdout and tell on stderr what is going on."""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from app.history import wording
from app.runtime import Runtime
from app.terminal import read_book, say, status, tell
from core.ask import Ask, Exchange
from core.config import Settings
from core.documents.document import Document
from core.errors import UserError
from core.events import Delta, Event, Failed, Finished, Loading, Prefill, Reading
from core.text.words import translated as _

INTERRUPTED = 130
_REASONS = {
    "length": "The answer reached --max-new-tokens and was cut there.",
    "looping": "The answer began to repeat itself and was stopped.",
    "context_full": "The context is full; the answer was cut there.",
    "user": "Stopped.",
}
_HELP = "/summary  /chapters 1-3  /chapters all  /again  /new  /help  /quit   (Ctrl-C stops an answer)"


def summarize(given: argparse.Namespace, settings: Settings) -> int:
    """One summary, or one answer."""
    runtime = Runtime(settings)
    try:
        runtime.start()  # the model is loaded while the book is read
        book = read_book(given.file, given.password, ocr=given.ocr)
        ask = Ask(given.question, book, "command line", chapters=given.chapters, fit=settings.fit, fresh=True)
        events = runtime.ask(ask)
        finished = _Stream(runtime).show(events)
        _report(finished)
        if given.json:
            say(json.dumps(figures(finished), ensure_ascii=False))
        _save(runtime)
    finally:
        runtime.close()
    return INTERRUPTED if finished.reason == "user" else 0


def _save(runtime: Runtime) -> None:
    """Let the engine keep the book for the next time. Ctrl-C skips it: the answer is complete."""
    status("Keeping what was read for the next time; Ctrl-C skips this")
    try:
        runtime.save()
    except KeyboardInterrupt:
        pass
    finally:
        status("")


def figures(finished: Finished) -> dict[str, Any]:
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
        "tokens_per_round": stats.tokens_per_round,
        "rounds": stats.rounds,
        "longest_wait_ms": stats.longest_wait_ms,
        "mode": stats.mode,
        "model": stats.model,
        "plan": finished.plan,
        "peak_memory_bytes": stats.peak_memory_bytes,
        "verified": asdict(stats.verified) if stats.verified else None,
    }


def chat(given: argparse.Namespace, settings: Settings) -> int:
    """A conversation, line by line, until the input ends."""
    runtime = Runtime(settings)
    try:
        runtime.start()  # the model is loaded while the book is read
        book = read_book(given.file, given.password, ocr=given.ocr)
        say(f"{book.title or given.file}: {book.words:,} words. Ask, or type /summary.\n{_HELP}")
        _Chat(runtime, book, settings, given.chapters).run()
        _save(runtime)
    finally:
        runtime.close()
    return 0


class _Chat:
    """The conversation and the commands that begin with a slash."""

    def __init__(
        self, runtime: Runtime, book: Document, settings: Settings, chapters: tuple[int, int] | None
    ) -> None:
        self._runtime, self._book, self._settings, self._chapters = runtime, book, settings, chapters
        self._said: list[Exchange] = []
        self._asked: str | None = None

    def run(self) -> None:
        """Read lines until the input ends or /quit."""
        while (line := _prompt()) is not None:
            word, _, rest = line.partition(" ")
            if word == "/quit":
                return
            try:
                self._obey(word, rest.strip()) if word.startswith("/") else self._ask(line)
            except UserError as error:
                tell(str(error))

    def _obey(self, word: str, rest: str) -> None:
        if word == "/summary":
            self._ask(None)
        elif word == "/again" and self._said:
            self._said.pop()
            self._ask(self._asked)
        elif word == "/new":
            self._said.clear()
            self._runtime.forget("chat")
        elif word == "/chapters":
            self._chapters = None if rest in ("", "all") else _range(rest)
        else:
            say(_HELP)

    def _ask(self, question: str | None) -> None:
        self._asked = question
        ask = Ask(
            question,
            self._book,
            "chat",
            chapters=self._chapters,
            fit=self._settings.fit,
            history=tuple(self._said),
        )
        finished = _Stream(self._runtime).show(self._runtime.ask(ask))
        _report(finished)
        if finished.token_ids:
            self._said.append(Exchange(wording(ask), finished.text, finished.token_ids))


class _Stream:
    """Writes an answer's text as it comes and what is going on beside it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._at_start = True
        # a part's summary, written when it is known to be the one that stays
        self._held: list[str] | None = None

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
                    raise UserError(
                        event.message if event else "The engine gave no answer. Its log has the reason."
                    )
                self._one(event)
            except KeyboardInterrupt:
                if stopping or self._runtime.state != "busy":
                    raise
                stopping = True
                self._runtime.stop()
        status("")
        self._release()
        if not self._at_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
        return event

    def _one(self, event: Event) -> None:
        if isinstance(event, Loading):
            status(event.stage, event.fraction)
        elif isinstance(event, Reading):
            self._heading(event)
        elif isinstance(event, Prefill):
            left = f", about {event.eta_s:.0f} s left" if event.eta_s else ""
            known = f", {event.snapshot_tokens:,} known from before" if event.snapshot_tokens else ""
            status(f"Reading: {event.done_tokens:,} of {event.total_tokens:,} tokens{left}{known}")
        elif isinstance(event, Delta) and event.text:
            status("")
            self._write(event.text) if self._held is None else self._hold(event)

    def _hold(self, event: Delta) -> None:
        self._held.append(event.text)
        status(f"Writing: {event.stats.new_tokens} tokens")

    def _release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._write("".join(held))

    def _write(self, text: str) -> None:
        text = text.lstrip() if self._at_start else text
        sys.stdout.write(text)
        sys.stdout.flush()
        self._at_start = self._at_start and not text

    def _heading(self, event: Reading) -> None:
        status("")
        if event.attempt > 1:  # the same part, told anew
            self._held = []
            return
        self._release()
        self._held = [] if event.total > 1 and event.purpose != "answer" else None
        if event.purpose == "answer" and event.total == 1:
            return
        if event.purpose == "whole summary":  # stretches of it bring their own headings
            if event.index > 1:
                return
            title = "The whole book\n"
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


def _report(finished: Finished) -> None:
    """What was read, what was not, and how fast it went, on stderr."""
    stats = finished.stats
    if finished.sources:
        tell(_("Read for this answer: {sources}").format(sources="; ".join(finished.sources)))
    for line in (*finished.notes, _REASONS.get(finished.reason, "")):
        if line:
            tell(line)
    if stats.new_tokens:
        levels = {"draft": stats.acceptance_draft.rate, "retrieval": stats.acceptance_retrieval.rate}
        rates = "".join(f", {name} accepted {rate:.0%}" for name, rate in levels.items() if rate is not None)
        known = (
            f", {stats.snapshot_tokens:,} of {stats.prompt_tokens:,} prompt tokens from disk"
            if stats.snapshot_tokens
            else ""
        )
        tell(
            f"{stats.new_tokens} tokens, {stats.tbt_mean_ms:.0f} ms between tokens{rates}, first after "
            f"{stats.ttft_s:.1f} s{known} "
            f"({stats.model}, {stats.mode})"
        )


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if not (first.isdigit() and (last or first).isdigit()):
        raise UserError(f"{text!r} is no range of chapters; write 4 or 1-3.")
    return int(first), int(last or first)


def _prompt() -> str | None:
    """The next line that says something; None at the end of the input."""
    while True:
        try:
            line = input("\n> " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        if line.strip():
            return line.strip()
