"""The engine in a process of its own: `python -m core.worker` reads commands from stdin and writes events to
stdout.

One line of JSON each (core.wire). A thread of its own reads the commands, so that stop is heard while an
answer is written, and another says how books fit, for which a long one is counted. When the pipe closes, for
whatever reason, the process ends at once: nothing is left behind when the app is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from core.backend.cpu.threads import bound_spinning
from core.backend.shared.heap import bound_products
from core.build import open_session
from core.config import Settings
from core.documents.document import Document
from core.errors import DeviceLost, DiscreetFormatter, RankLost, UserError, log_what_nobody_caught
from core.events import Event, Failed, Finished, Loading, Stats
from core.text.packing import from_json
from core.text.words import translated as _
from core.wire import CARD_LOST, RANK_LOST, messages, pack, to_line, unpack_ask

if TYPE_CHECKING:
    from core.conversation.session import Session

log = logging.getLogger(__name__)

Open = Callable[..., "Session"]  # see core.build.open_session

_ORPHAN_CHECK_S = 1.0
# storing gives way between two layers of a block, which takes milliseconds
_GIVE_WAY_S = 2.0


class Worker:
    """Runs commands one after the other on the calling thread, `card` and `room` on another; `stop` and
    `forget` are served as they come.
    """

    def __init__(self, commands: BinaryIO, events: BinaryIO, open_session: Open) -> None:
        self._commands, self._events, self._open = commands, events, open_session
        self._send_lock = threading.Lock()
        self._todo: queue.Queue[dict[str, Any]] = queue.Queue()
        self._to_say: queue.Queue[dict[str, Any]] = queue.Queue()
        self._stopped: set[int] = set()
        self._books: dict[str, Document] = {}
        self._session: Session | None = None
        self._storing = threading.Lock()  # held while something is written to the disk
        self._leaving = threading.Event()

    def run(self) -> None:
        """Serve until the pipe closes."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        threading.Thread(target=self._say, name="sizes", daemon=True).start()
        while True:
            message = self._todo.get()
            handlers = {
                "load": self._load,
                "ask": self._ask,
                "save": self._save,
                "forget_book": self._forget_book,
            }
            self._guarded(message, handlers[message["do"]])
            self._use_idle_time()

    # ---- the listening thread ------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            for message in messages(self._commands):
                self._hear(message)
        # the app is gone, or says what we do not understand: nothing to stay for
        finally:
            self._leave()

    def _leave(self, code: int = 0) -> None:
        """Ends the process, without a block half-written. Whole blocks stay: the next process goes on from
        them.
        """
        self._leaving.set()
        self._storing.acquire(timeout=_GIVE_WAY_S)
        os._exit(code)

    def _leave_if_lost(self, error: Exception) -> None:
        """What faulted on a card ends the process, and a rank that is gone: all that it was asked for later
        would fail, too.
        """
        if isinstance(error, RankLost):
            log.error("a process that computes a part of the model is gone: this one ends, so that all begin")
            self._leave(RANK_LOST)
        if isinstance(error, DeviceLost) or (self._session is not None and self._session.lost):
            log.error("the card has failed for good: the process ends, so that another can begin")
            self._leave(CARD_LOST)

    def _hear(self, message: dict[str, Any]) -> None:
        at_once = {
            "stop": self._stop,
            "book": self._take_book,
            "ask": self._take_ask,
            "forget": self._forget,
            "card": self._take_card,
            "room": self._take_room,
        }
        if message["do"] in at_once:
            self._guarded(message, at_once[message["do"]])
        else:
            self._todo.put(message)

    def _stop(self, message: dict[str, Any]) -> None:
        self._stopped.add(message["id"])

    def _take_book(self, message: dict[str, Any]) -> None:
        # the newest only: books are large
        self._books = {message["book_id"]: Document.from_json(from_json(message["data"]))}

    def _take_ask(self, message: dict[str, Any]) -> None:
        self._todo.put(self._bound(message))

    def _take_card(self, message: dict[str, Any]) -> None:
        self._to_say.put({**message, "book": self._books[message["book_id"]]})

    def _take_room(self, message: dict[str, Any]) -> None:
        self._to_say.put(self._bound(message))

    def _bound(self, message: dict[str, Any]) -> dict[str, Any]:
        """A question with its book: by the time it is answered another may have come."""
        book_id = message["ask"]["book"]
        ask = unpack_ask(message["ask"], self._books[book_id] if book_id else None)
        return {**message, "ask": ask}

    def _forget(self, message: dict[str, Any]) -> None:
        if self._session is not None:
            self._session.forget(message["conversation_id"])

    # ---- the thread that says how books fit ----------------------------------------------------------------

    def _say(self) -> None:
        while True:
            message = self._to_say.get()
            self._guarded(message, {"card": self._card, "room": self._room}[message["do"]])

    def _card(self, message: dict[str, Any]) -> None:
        assert self._session is not None, "a card was asked for before the engine was ready"
        scope = {name: tuple(one) if isinstance(one, list) else one for name, one in message["scope"].items()}
        card = self._session.card(message["book"], message["spoiler_limit"], **scope)
        self._send(id=message["id"], card=card)

    def _room(self, message: dict[str, Any]) -> None:
        assert self._session is not None, "room was asked for before the engine was ready"
        self._send(id=message["id"], room=self._session.room(message["ask"]))

    # ---- the working thread --------------------------------------------------------------------------------

    def _load(self, message: dict[str, Any]) -> None:
        def report(loading: Loading) -> None:
            self._send(id=message["id"], event=pack(loading))

        self._session = self._open(Settings.from_json(message["settings"]), hear=report)
        # what answers leave in cycles is looked for when it is a quarter of what the last search went
        # through: 20 MB, were all that is there now, and stays, among it
        gc.freeze()
        gc.collect()
        self._send(id=message["id"], ready=self._session.facts)

    def _ask(self, message: dict[str, Any]) -> None:
        assert self._session is not None, "a question was asked before the engine was ready"
        number, ask = message["id"], message["ask"]
        if number in self._stopped:  # left before it was begun: no text is counted for it
            self._stopped.discard(number)
            self._send_event(number, Finished("user", "", Stats()))
            return
        if ask.book is not None:
            words = _("Looking through the text ({count} words)")
            self._send_event(number, Loading(words.format(count=f"{ask.book.words:,}")))
        with contextlib.closing(
            self._session.ask(ask, should_stop=lambda: number in self._stopped)
        ) as events:
            for event in events:
                self._send_event(number, event)
        self._stopped.discard(number)

    def _save(self, message: dict[str, Any]) -> None:
        """Store what was read and say so; `_use_idle_time` may have had no time for it."""
        self._store(should_stop=lambda: message["id"] in self._stopped)
        self._send(id=message["id"], saved=True)

    def _store(self, *, should_stop: Callable[[], bool]) -> None:
        with self._storing:
            if self._session is not None and not self._leaving.is_set():
                self._session.save(should_stop=lambda: self._leaving.is_set() or should_stop())

    def _forget_book(self, message: dict[str, Any]) -> None:
        """On the thread that also stores, so that nothing of the book can be stored behind it."""
        if self._session is not None:
            self._session.forget_book(message["book_id"])

    def _use_idle_time(self) -> None:
        """Store what was read, until somebody wants something."""
        try:
            self._store(should_stop=lambda: not self._todo.empty())
        except Exception as error:  # nobody asked for it, so nobody is told
            log.exception("storing what was read failed")
            self._leave_if_lost(error)
        else:
            self._send(id=0, stored=True)

    # ---- both ----------------------------------------------------------------------------------------------

    def _guarded(self, message: dict[str, Any], handler: Callable[[dict[str, Any]], None]) -> None:
        """Run a handler. What goes wrong becomes Failed, out of memory, too; the process goes on, unless its
        card does not.
        """
        number = message.get("id", 0)
        try:
            handler(message)
        except UserError as error:
            self._send_event(number, Failed(str(error), refused=True, ways=error.ways))
        except MemoryError:
            log.exception("out of memory")
            self._send_event(
                number,
                Failed(
                    _(
                        "There was not enough memory for this. Lower context_tokens in the settings or close "
                        "other programs."
                    )
                ),
            )
        except Exception as error:  # the boundary of the process: the traceback is in its log
            log.exception("%s failed", message.get("do"))
            self._leave_if_lost(error)
            words = _("The engine made a mistake ({error}). The log has the details.")
            self._send_event(number, Failed(words.format(error=f"{type(error).__name__}: {error}")))

    def _send_event(self, number: int, event: Event) -> None:
        self._send(id=number, event=pack(event))

    def _send(self, **message: Any) -> None:
        with self._send_lock:
            try:
                self._events.write(to_line(message))
                self._events.flush()
            except OSError:  # the app is gone
                self._leave()


def watch_parent(parent: int) -> None:
    """End this process when its parent changes: a second way to notice, should a pipe be held open by someone
    else.
    """

    def check() -> None:
        while os.getppid() == parent:
            time.sleep(_ORPHAN_CHECK_S)
        os._exit(0)

    # on Windows the number stays when the parent is gone, and the pipe is enough
    if os.name == "posix":
        threading.Thread(target=check, name="parent", daemon=True).start()


def private_stdout() -> BinaryIO:
    """The stream for events. What any library prints goes to stderr from now on, so that it cannot break a
    message.
    """
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return events


def main(arguments: list[str] | None = None, *, open_session: Open = open_session) -> None:
    """The process. `--parent` is the id of the process that must stay alive."""
    parser = argparse.ArgumentParser(prog="core.worker")
    parser.add_argument("--parent", type=int, required=True)
    given = parser.parse_args(arguments)
    said = logging.StreamHandler(sys.stderr)
    said.setFormatter(DiscreetFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[said])
    log_what_nobody_caught()
    bound_spinning()
    bound_products()
    events = private_stdout()
    watch_parent(given.parent)
    Worker(sys.stdin.buffer, events, open_session).run()


if __name__ == "__main__":
    main()
