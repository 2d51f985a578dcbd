"""The app's side of the engine: starts its process, talks to it, starts it again when it was killed.

Thread-safe. Nothing that matters lives in the engine's process: books and turns are handed over with every
question, so a killed engine costs one answer and no conversation.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from app.process import EngineProcess, log_path, why_ended
from core import paths
from core.ask import Ask
from core.cache.disk import SnapshotFolder
from core.config import Settings
from core.conversation.notes import NoteStore
from core.documents.document import Document
from core.errors import UserError
from core.events import Event, Failed, Finished, Loading
from core.text.words import translated as _
from core.wire import pack_ask, unpack

log = logging.getLogger(__name__)

WORKER = (sys.executable, "-m", "core.worker")
# in a row without becoming ready; then something is wrong for good
_RESTARTS = 2
_CARD_WAIT_S = 30.0
_GUEST_WAIT_S = 0.5  # between two looks whether it is still wanted
_SAVE_WAIT_S = 120.0  # 17 GB, an 8B model's KV of 128K tokens, at 150 MB/s


class Runtime:
    """Client of the worker process.

    `state` is starting (process not up), loading, ready, busy or failed; `error` says why it failed. One
    answer at a time.
    """

    def __init__(self, settings: Settings, *, worker: Sequence[str] = WORKER) -> None:
        self._settings, self._command = settings, tuple(worker)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self._process: EngineProcess | None = None
        self._inboxes: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._answering: int | None = None
        self._saving: int | None = None
        self._guest: int | None = None  # of an answer for another program
        self._sent_away: int | None = None
        self._persons = 0  # who ask or are answered
        self._known_book = ""
        self._mapped_files: dict[str, int] = {}
        self._failures = 0
        self._closed = False
        self.state = "starting"
        self.error = ""
        self.loading = Loading("")  # how far that is
        self._ready_with: Settings | None = None  # the last settings that the engine became ready with
        self.plan: dict[str, Any] | None = None
        self.model_name = ""
        self.context_tokens = 0
        self.stored_as = ""  # whose snapshots are this model's; see Engine
        self.stored = 0  # rises when the engine has used idle time to store what it read
        # called after every change of these, from any thread and with the lock held: it must only take notice
        self.changed: Callable[[], None] = lambda: None

    # ---- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the engine process unless one runs, and return at once. Also the way out of "failed"."""
        with self._lock:
            if self._closed or (self._process is not None and self.state != "failed"):
                return
            self._failures = 0
            self._end_process()
            self._launch()

    def use(self, model: str) -> None:
        """Start the engine again with another model. The answer being written, if any, fails."""
        self._start_with(dataclasses.replace(self._settings, model=model), _("The model was changed."))

    def renew(self, settings: Settings) -> None:
        """Start the engine again with other settings and the same model. Like `use` otherwise."""
        self._start_with(
            dataclasses.replace(settings, model=self._settings.model), _("The settings were changed.")
        )

    def _start_with(self, settings: Settings, why: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._settings = settings
            self._failures = 0
            self._fail_all(why)
            self._end_process()
            self._launch()

    def cancel_loading(self) -> Settings | None:
        """Go back to the settings, and the model, that ran before; the engine starts with them, and they are
        returned. Where there are none, it stops until `start`. Nothing happens to an engine that is ready.
        """
        with self._lock:
            if self.state not in ("starting", "loading") or self._closed:
                return None
            before = self._ready_with if self._ready_with != self._settings else None
            if before is not None:
                self._start_with(before, _("Loading was cancelled."))
                return before
            self._fail_all(_("Loading was cancelled."))
            self._end_process()
            self.error = _("Loading was cancelled. Restart the engine with the button at the top.")
            self._become("failed")
            return None

    def close(self) -> None:
        """End the engine process. Returns when it is gone."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
            self._fail_all(_("The engine was closed."))
            self._tell()
        if process is not None:
            process.end()

    def rest(self) -> None:
        """End the engine process, so that it holds no file; `start` begins another."""
        with self._lock:
            self._fail_all(_("The engine was stopped."))
            self._end_process()
            self._become("starting")

    @property
    def pid(self) -> int | None:
        """The engine's process id while it runs."""
        process = self._process
        return process.pid if process is not None else None

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until questions can be answered. False when the engine failed or the time is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.state in ("ready", "busy", "failed") or self._closed, timeout_s
            )
            return self.state in ("ready", "busy")

    # ---- questions -----------------------------------------------------------------------------------------

    def card(self, book: Document, until: int | None = None) -> dict[str, Any]:
        """How the book fits, or what of it may be read until a chapter: title, author, chapters, words,
        tokens, share_of_context, fits, parts, the estimates of Session.card, from_passages, notes.

        Waits for a loading engine. Raises UserError when the engine does not answer.
        """
        self.start()
        if not self.wait_ready(None):
            raise UserError(self.error or _("The engine is not running."))
        return self._told(book, {"do": "card", "book_id": book.sha256, "until": until})["card"]

    def room(self, ask: Ask) -> dict[str, Any]:
        """How the context would be filled by an answer, see Session.room. Raises UserError when the engine is
        not there, or does not answer.
        """
        if self.state not in ("ready", "busy"):
            raise UserError(self.error or _("The engine is not running."))
        return self._told(ask.book, {"do": "room", "ask": pack_ask(ask)})["room"]

    def ask(self, ask: Ask) -> Iterator[Event]:
        """The events of one answer, ending with Finished or Failed.

        While the engine loads, its progress comes first. To answer a question again, cut `history` and ask it
        again. A guest waits until nobody else asks, and the answer to it begins anew (after a Loading) when
        somebody does meanwhile.
        """
        self.start()
        if ask.guest:
            while (yield from self._answer_guest(ask)):
                pass
            return
        with self._changed:
            self._persons += 1
        try:
            yield from self._wait_loading()
            self._send_guest_away()
            yield from self._answer(ask)
        finally:
            with self._changed:
                self._persons -= 1
                self._changed.notify_all()

    def stop_guest(self) -> None:
        """End the answer that a guest is given, if one is."""
        with self._lock:
            if self._guest is not None:
                self._send({"do": "stop", "id": self._guest})

    def save(self, timeout_s: float = _SAVE_WAIT_S) -> None:
        """Wait until what was read is stored on disk, or `stop`; the engine does so by itself when it has
        time, but not after `close`.

        When the time is over it gives way: what is stored by then stays, and the next process goes on from
        there.
        """
        with self._lock:
            if self.state != "ready":
                return
            self._saving, inbox = self._post({"do": "save"})
        try:
            inbox.get(timeout=timeout_s)
        except queue.Empty:
            log.warning("what was read could not be stored in %.0f s", timeout_s)
        finally:
            with self._lock:
                self._send({"do": "stop", "id": self._saving})
                self._inboxes.pop(self._saving, None)
                self._saving = None

    def stop(self) -> None:
        """End the answer that is being written (its events end with Finished("user")), and the wait of
        `save`.
        """
        with self._lock:
            for number in (self._answering, self._saving):
                if number is not None:
                    self._send({"do": "stop", "id": number})

    def forget(self, conversation_id: str) -> None:
        """Let the engine drop what it remembers of a conversation."""
        with self._lock:
            self._send({"do": "forget", "conversation_id": conversation_id})

    def forget_book(self, book_id: str) -> None:
        """Delete what was kept of a book's reading, in memory and on disk, whether or not an engine runs."""
        SnapshotFolder(paths.subdir("snapshots")).forget(book_id)
        NoteStore(paths.subdir("notes")).forget(book_id)
        with self._lock:
            self._send({"do": "forget_book", "book_id": book_id})
            if self._known_book == book_id:
                self._known_book = ""  # it may come back with another text

    # ---- inside: questions ---------------------------------------------------------------------------------

    def _told(self, book: Document | None, message: dict[str, Any]) -> dict[str, Any]:
        """What the engine says at once, also while it answers."""
        with self._lock:
            if book is not None:
                self._hand_over(book)
            number, inbox = self._post(message)
        try:
            said = inbox.get(timeout=_CARD_WAIT_S)
        except queue.Empty:
            raise UserError(_("The engine did not answer in time. Try again in a moment.")) from None
        finally:
            self._inboxes.pop(number, None)
        if "event" in said:
            raise UserError(unpack(said["event"]).message)
        return said

    def _answer(self, ask: Ask) -> Iterator[Event]:
        begun = self._begin(ask)
        if isinstance(begun, Failed):
            yield begun
            return
        number, inbox = begun
        try:
            yield from _events(inbox)
        finally:
            self._done_answering(number)

    def _begin(self, ask: Ask) -> tuple[int, queue.Queue[dict[str, Any]]] | Failed:
        with self._lock:
            if self.state != "ready":
                busy = _("An answer is still being written. Stop it or wait for its end.")
                return Failed(busy if self.state == "busy" else self.error or _("The engine is not running."))
            if ask.book is not None:
                self._hand_over(ask.book)
            number, inbox = self._post({"do": "ask", "ask": pack_ask(ask)})
            self._answering = number
            self._guest = number if ask.guest else None
            self._become("busy")
            return number, inbox

    def _answer_guest(self, ask: Ask) -> Generator[Event, None, bool]:
        """True when a person asked meanwhile: the answer is to begin anew."""
        yield from self._wait_loading()
        with self._changed:
            free = self.state == "ready" and not self._persons
            begun = self._begin(ask) if free or self.state == "failed" or self._closed else None
            if begun is None:
                self._changed.wait(_GUEST_WAIT_S)
        if begun is None:
            yield Loading(_("Waiting until the engine is free"))
            return True
        if isinstance(begun, Failed):
            yield begun
            return False
        number, inbox = begun
        try:
            for event in _events(inbox):
                if isinstance(event, Finished) and event.reason == "user" and self._sent_away == number:
                    return True
                yield event
        finally:
            self._done_answering(number)
        return False

    def _send_guest_away(self) -> None:
        """The person's own question goes first."""
        with self._changed:
            if self.state == "busy" and self._guest is not None:
                self._sent_away = self._guest
                self._send({"do": "stop", "id": self._guest})
                self._changed.wait_for(lambda: self.state != "busy" or self._closed, _CARD_WAIT_S)

    def _wait_loading(self) -> Iterator[Loading]:
        told = None
        while True:
            with self._changed:
                if self.state not in ("starting", "loading") or self._closed:
                    return
                now = self.loading if self.loading.stage else Loading(_("Starting the engine"))
                if now == told:
                    self._changed.wait(0.5)
                    continue
            told = now
            yield now

    def _hand_over(self, book: Document) -> None:
        if self._known_book != book.sha256:
            self._send({"do": "book", "book_id": book.sha256, "book": book.to_json()})
            self._known_book = book.sha256

    def _done_answering(self, number: int) -> None:
        """Also reached when the caller stops listening in the middle: then the engine must stop, too."""
        with self._lock:
            self._inboxes.pop(number, None)
            if self._answering == number:
                self._send({"do": "stop", "id": number})
                self._answering = self._guest = None
                if self.state == "busy":
                    self._become("ready")

    def _post(self, message: dict[str, Any]) -> tuple[int, queue.Queue[dict[str, Any]]]:
        number, inbox = next(self._numbers), queue.Queue()
        self._inboxes[number] = inbox
        self._send({**message, "id": number})
        return number, inbox

    def _send(self, message: dict[str, Any]) -> None:
        if self._process is not None:
            self._process.send(message)

    # ---- inside: the process -------------------------------------------------------------------------------

    def _launch(self) -> None:
        self._known_book, self._answering, self._guest = "", None, None
        self.error, self.loading = "", Loading(_("Starting the engine"))
        self._process = EngineProcess(self._command, heard=self._deliver, ended=self._ended)
        self._become("loading")
        self._post({"do": "load", "settings": self._settings.to_json()})

    def _ended(self, process: EngineProcess, how: str) -> None:
        with self._lock:
            if process is self._process and not self._closed:
                self._engine_died(how)

    def _deliver(self, process: EngineProcess, message: dict[str, Any]) -> None:
        with self._lock:
            if process is not self._process:
                return
            event = unpack(message["event"]) if "event" in message else None
            inbox = self._inboxes.get(message["id"])
            if "ready" in message:
                self._inboxes.pop(message["id"], None)
                self._get_ready(message["ready"])
            elif self.state == "loading" and isinstance(event, Loading):
                self.loading = event
                self._tell()
            elif self.state == "loading" and isinstance(event, Failed):
                self.error = event.message
                self._become("failed")
            elif "stored" in message:
                self.stored += 1
                self._tell()
            elif inbox is not None:
                if isinstance(event, (Finished, Failed)) and self._answering == message["id"]:
                    self._answering = self._guest = None
                    self._become("ready")
                inbox.put(message)

    def _get_ready(self, facts: dict[str, Any]) -> None:
        self.plan, self.model_name, self.context_tokens = (
            facts["plan"],
            facts["model_name"],
            facts["context_tokens"],
        )
        self._mapped_files = facts["mapped_files"]
        self.stored_as = facts.get("stored_as", "")
        self._failures, self._ready_with = 0, self._settings
        self._become("ready")

    def _engine_died(self, how: str) -> None:
        """Tell whoever waits, then start again; not for ever."""
        log.warning("the engine process ended: %s", how)
        started = self.state in ("ready", "busy")
        self._fail_all(why_ended(how, self._mapped_files))
        self._end_process()
        self._failures = 0 if started else self._failures + 1
        if self._failures > _RESTARTS:
            words = _(
                "The engine stopped {times} times while starting ({how}). The reason is in {log}. Close "
                "other programs or choose a smaller model."
            )
            self.error = words.format(times=self._failures, how=how, log=log_path())
            self._become("failed")
        else:
            self._launch()

    def _fail_all(self, message: str) -> None:
        for inbox in self._inboxes.values():
            inbox.put({"event": {"kind": "Failed", "message": message, "fatal": True}})
        self._inboxes.clear()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _become(self, state: str) -> None:
        self.state = state
        self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        self.changed()


def _events(inbox: queue.Queue[dict[str, Any]]) -> Iterator[Event]:
    while True:
        event = unpack(inbox.get()["event"])
        yield event
        if isinstance(event, (Finished, Failed)):
            return
