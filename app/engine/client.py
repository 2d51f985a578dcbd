"""The app's side of the engine: questions to it, one answer at a time, and what programs ask between them.

Thread-safe. Nothing that matters lives in the engine's process: books and turns are handed over with every
question, so a killed engine costs one answer and no conversation.
"""

from __future__ import annotations

import logging
import queue
import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from app.engine.process import EngineProcess, Inbox
from app.engine.supervisor import Supervisor
from core import paths
from core.cache.disk import SnapshotFolder
from core.config import Settings
from core.conversation.part_summaries import PartSummaryStore
from core.documents.document import Document
from core.errors import UserError
from core.events import Event, Failed, Finished, Loading, Stats
from core.request import Request
from core.text.words import translated as _
from core.wire import pack_ask

log = logging.getLogger(__name__)

WORKER = (sys.executable, "-m", "core.worker")
_ROOM_WAIT_S = 30.0  # a long book is counted first
_GUEST_GOES_S = 30.0
_FREE_S = 1.0  # an engine that is free begins sooner
_GUEST_WAIT_S = 0.5  # between two looks whether it is still wanted
_SAVE_WAIT_S = 120.0  # 17 GB, an 8B model's KV of 128K tokens, at 150 MB/s


class Runtime(Supervisor):
    """Asks the engine, whose process it keeps alive."""

    def __init__(self, settings: Settings, *, worker: Sequence[str] = WORKER) -> None:
        super().__init__(settings, worker=worker)
        self._saving: int | None = None
        self._guest: int | None = None  # of the last answer for another program
        self._sent_away: int | None = None
        self._persons = 0  # who ask or are answered
        self._begun: int | None = None  # the last question of whose answer anything came

    def card(self, book: Document, spoiler_limit: int | None = None, **scope: Any) -> dict[str, Any]:
        """How the book fits, or what of it may be read until a chapter: title, author, chapters, words,
        tokens, share_of_context, fits, parts, the estimates of Session.card, from_passages, notes. `scope`:
        `chapters`, `selected_chapters` and `whole`, as there.

        Waits for a loading engine, and for what it counts first: another long book may take minutes. Raises
        UserError when the engine cannot say, or ends.
        """
        self.start()
        if not self.wait_ready(None):
            raise UserError(self.error or _("The engine is not running."))
        asked = {"do": "card", "book_id": book.sha256, "spoiler_limit": spoiler_limit, "scope": scope}
        return self._told(book, asked)["card"]

    def room(self, ask: Request, timeout_s: float = _ROOM_WAIT_S) -> dict[str, Any]:
        """How the context would be filled by an answer, see Session.room. Raises UserError when the engine is
        not there, or does not answer in time.
        """
        if self.state not in ("ready", "busy"):
            raise UserError(self.error or _("The engine is not running."))
        return self._told(ask.book, {"do": "room", "ask": pack_ask(ask)}, timeout_s)["room"]

    def ask(self, ask: Request) -> Iterator[Event]:
        """The events of one answer, ending with Finished or Failed.

        While the engine loads, its progress comes first. To answer a question again, cut `history` and ask it
        again. A guest waits until nobody else asks, and the answer to it begins anew (after a Loading) when
        somebody does meanwhile.
        """
        self.start()
        if ask.low_priority:
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
            if self._answers_guest():
                self._send({"do": "stop", "id": self._guest})

    def save(self, timeout_s: float = _SAVE_WAIT_S) -> None:
        """Wait until what was read is stored on disk, or `stop`; the engine does so by itself when it has
        time, but not after `close`.

        When the time is over it gives way: what is stored by then stays, and the next process goes on from
        there.
        """
        with self._lock:
            process = self._process
            if self.state != "ready" or process is None:
                return
            self._saving, inbox = process.post({"do": "save"})
        try:
            inbox.get(timeout=timeout_s)
        except queue.Empty:
            log.warning("what was read could not be stored in %.0f s", timeout_s)
        finally:
            with self._lock:
                process.send({"do": "stop", "id": self._saving})
                process.drop(self._saving)
                self._saving = None

    def stop(self) -> None:
        """End the answer that is being written (its events end with Finished("user"), at once where the
        engine has yet to count the book), and the wait of `save`.
        """
        with self._lock:
            for number in (self._answering, self._saving):
                if number is not None:
                    self._send({"do": "stop", "id": number})
            if self._process is not None and self._answering != self._begun:
                self._process.put(self._answering, Finished("user", "", Stats()))

    def forget(self, conversation_id: str) -> None:
        """Let the engine drop what it remembers of a conversation."""
        with self._lock:
            self._send({"do": "forget", "conversation_id": conversation_id})

    def forget_book(self, book_id: str) -> None:
        """Delete what was kept of a book's reading, in memory and on disk, whether or not an engine runs."""
        SnapshotFolder(paths.subdir("snapshots")).forget(book_id)
        PartSummaryStore(paths.subdir("notes")).forget(book_id)
        with self._lock:
            self._send({"do": "forget_book", "book_id": book_id})
            if self._known_book and self._known_book[0] == book_id:
                self._known_book = None  # it may come back with other chapters

    # ---- inside --------------------------------------------------------------------------------------------

    def _told(
        self, book: Document | None, message: dict[str, Any], timeout_s: float | None = None
    ) -> dict[str, Any]:
        """What the engine says, also while it answers. Raises UserError where it does not, or not in time."""
        with self._lock:
            process = self._process
            if process is None:
                raise UserError(self.error or _("The engine is not running."))
            if book is not None:
                self._hand_over(process, book)
            number, inbox = process.post(message)
        try:
            said = inbox.get(timeout=timeout_s)
        except queue.Empty:
            raise UserError(_("The engine did not answer in time. Try again in a moment.")) from None
        finally:
            process.drop(number)
        if isinstance(said, Failed):
            raise UserError(said.message)
        return said

    def _answer(self, ask: Request) -> Iterator[Event]:
        begun = self._begin(ask)
        if isinstance(begun, Failed):
            yield begun
            return
        number, inbox = begun
        try:
            yield from self._events(number, inbox)
        finally:
            self._done_answering(number)

    def _begin(self, ask: Request) -> tuple[int, Inbox] | Failed:
        with self._lock:
            process = self._process
            if self.state != "ready" or process is None:
                busy = _("An answer is still being written. Stop it or wait for its end.")
                return Failed(busy if self.state == "busy" else self.error or _("The engine is not running."))
            if ask.book is not None:
                self._hand_over(process, ask.book)
            number, inbox = process.post({"do": "ask", "ask": pack_ask(ask)})
            self._answering = number
            if ask.low_priority:
                self._guest = number
            self._become("busy")
            return number, inbox

    def _answer_guest(self, ask: Request) -> Generator[Event, None, bool]:
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
            for event in self._events(number, inbox):
                if isinstance(event, Finished) and event.reason == "user" and self._sent_away == number:
                    return True
                yield event
        finally:
            self._done_answering(number)
        return False

    def _answers_guest(self) -> bool:
        return self._guest is not None and self._guest == self._answering

    def _send_guest_away(self) -> None:
        """The person's own question goes first."""
        with self._changed:
            if self._answers_guest():
                self._sent_away = self._guest
                self._send({"do": "stop", "id": self._guest})
                self._changed.wait_for(lambda: self.state != "busy" or self._closed, _GUEST_GOES_S)

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

    def _hand_over(self, process: EngineProcess, book: Document) -> None:
        known = (book.sha256, hash((book.text, book.title)))  # a file may be read otherwise than before
        if self._known_book != known:
            process.send({"do": "book", "book_id": book.sha256, "data": book.packed})
            self._known_book = known

    def _done_answering(self, number: int) -> None:
        """Also reached when the caller stops listening in the middle: then the engine must stop, too."""
        with self._lock:
            if self._process is not None:
                self._process.drop(number)
            if self._answering == number:
                self._send({"do": "stop", "id": number})
                self._answering = None
                if self.state == "busy":
                    self._become("ready")

    def _send(self, message: dict[str, Any]) -> None:
        if self._process is not None:
            self._process.send(message)

    def _events(self, number: int, inbox: Inbox) -> Iterator[Event]:
        try:
            event = inbox.get(timeout=_FREE_S)
        except queue.Empty:  # a text that was left is still counted
            yield Loading(_("Waiting until the engine is free"))
            event = inbox.get()
        while True:
            if not isinstance(event, Loading):
                self._begun = number
            yield event
            if isinstance(event, (Finished, Failed)):
                return
            event = inbox.get()
