"""How full the context is: asked of the engine in the background whenever the conversation has changed."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from app.desk.books import OpenBooks
from app.desk.requests import Requests
from app.desk.store import Store
from core.errors import UserError
from core.request import Request

if TYPE_CHECKING:
    from app.engine.client import Runtime

log = logging.getLogger(__name__)


class ContextUsage:
    """The newest answer stands until there is a newer one. Thread-safe enough for one thread that looks."""

    def __init__(self, store: Store, engine: Runtime, books: OpenBooks, requests: Requests) -> None:
        self._store, self._engine = store, engine
        self._books, self._requests = books, requests
        self._asked: object = None
        self._room: tuple[str, dict[str, Any]] | None = None

    def room(self, version: object) -> dict[str, Any] | None:
        """Turns.room of the next question of the open conversation; None until the engine has said it.
        `version`: what it depends on beside the state.
        """
        state, engine = self._store.state, self._engine
        if not state.book_id:
            return None
        if engine.state == "ready" and not state.busy:
            key = (
                state.book_id,
                state.conversation_id,
                state.spoiler_limit,
                state.chapters,
                state.selected_chapters,
            )
            key += (state.notebook.instructions, state.notebook.reading_mode, engine.model_name, version)
            if key != self._asked:
                self._asked, ask = key, self._requests.make(None, self._books.turns)
                threading.Thread(target=self._fetch, args=(ask,), name="context usage", daemon=True).start()
        return self._room[1] if self._room and self._room[0] == state.book_id else None

    def _fetch(self, ask: Request) -> None:
        try:
            self._room = ask.book_id, self._engine.room(ask)
        except UserError as error:
            log.info("the context's room is not known: %s", error)
        except Exception:  # a background thread's boundary: the page goes on without the meter
            log.exception("the context's room is not known")
        else:
            self._store.tell()
