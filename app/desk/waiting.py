"""Questions that wait, for their turn or for a choice, on disk: the end of the app does not lose them.

They are asked by nobody at the next start: each stands in its conversation as one that was not asked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from app.desk.store import Store
from app.desk.values import Notice, Remedy
from app.store.history import History
from app.store.library import Library
from app.store.turns import StoredTurn, asked_again, choices, in_short
from core import paths
from core.paths import write_whole
from core.request import Request
from core.text.packing import from_json, to_json_text
from core.text.words import joined_sentences
from core.text.words import translated as _

log = logging.getLogger(__name__)
NOT_ASKED = "waited"  # the reason of an answer that never began


class WaitingQuestions:
    """Keeps them in waiting.json of the data folder, and puts them back. Thread-safe."""

    def __init__(self, store: Store, library: Library, history: History) -> None:
        self._store, self._library, self._history = store, library, history
        self._lock = threading.Lock()

    def keep(self) -> None:
        """Writes down what waits now. Where that cannot be done, the app's end loses it, as the log says."""
        with self._lock:
            state, path = self._store.state, paths.data_dir() / "waiting.json"
            crowded = state.overflow.ask if state.overflow and not state.overflow.instead_of else None
            asks = [ask for ask in (crowded, state.queued) if ask is not None]
            try:
                if asks:
                    write_whole(path, to_json_text([_stored(ask) for ask in asks]))
                    path.chmod(0o600)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("what waits could not be written down: %s", error)

    def restore(self) -> Notice | None:
        """Puts what waited when the app ended into its conversations, unasked; what is to be said of others
        than the open one.
        Raises sqlite3.Error where the history cannot be written; it is tried again at the next start.
        """
        path = paths.data_dir() / "waiting.json"
        try:
            stored = [_read(one) for one in from_json(path.read_text(encoding="utf-8"))]
        except FileNotFoundError:
            return None
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            log.exception("what waited cannot be read")
            stored = []
        there = {entry.id for entry in self._library.entries()}
        back = [(book_id, ask) for book_id, ask in stored if book_id in there]
        with self._history.together():
            for book_id, ask in back:
                self._put_back(book_id, ask)
        path.unlink(missing_ok=True)
        here = self._store.state.conversation_id  # where it stands before the person's eyes
        elsewhere = [one for one in back if one[1].conversation_id != here]
        return _told(elsewhere) if elsewhere else None

    def _put_back(self, book_id: str, ask: Request) -> None:
        talk = ask.conversation_id
        if not self._history.title(talk):
            self._history.create(book_id, ask.spoiler_limit, talk)
        self._history.ask(talk, ask)
        self._history.add(talk, "assistant", "", state="stopped", extra={"reason": NOT_ASKED})


def _told(back: Sequence[tuple[str, Request]]) -> Notice:
    words = _("“{question}” waited when the app ended, and was not asked.")
    told = joined_sentences(*(words.format(question=in_short(ask)) for _book, ask in back))
    book_id, newest = back[-1]
    way = Remedy(_("Go there"), act="said", id=newest.conversation_id, book=book_id)
    return Notice(told, "info", remedies=(way,))


def _stored(ask: Request) -> dict[str, Any]:
    return {
        "book": ask.book_id,
        "conversation": ask.conversation_id,
        "question": ask.question or "",
        "choices": choices(ask),
    }


def _read(stored: dict[str, Any]) -> tuple[str, Request]:
    """The book and the question, without the book's text."""
    chosen = stored["choices"]
    turn = StoredTurn(0, "user", stored["question"], "finished", chosen)
    limits = {"spoiler_limit": chosen["spoiler_limit"], "instructions": chosen["instructions"]}
    ask = Request(conversation_id=stored["conversation"], **asked_again(turn), **limits)
    return stored["book"], ask
