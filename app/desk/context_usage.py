"""How full the context is: asked of the engine in the background whenever the conversation has changed."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.desk.actions import make_wish
from core.ask import Ask
from core.errors import UserError

if TYPE_CHECKING:
    from app.desk.desk import Desk

log = logging.getLogger(__name__)


class Meter:
    """The newest answer stands until there is a newer one. Thread-safe enough for one thread that looks."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asked: object = None
        self._room: tuple[str, dict[str, Any]] | None = None

    def room(self) -> dict[str, Any] | None:
        """Turns.room of the next question of the open conversation; None until the engine has said it."""
        desk, engine = self._desk, self._desk.engine
        if desk.book is None:
            return None
        if engine.state == "ready" and not desk.busy:
            wish = make_wish(desk)
            key = (
                desk.book_id,
                desk.conversation_id,
                desk.until,
                desk.history.version,
                engine.model_name,
                replace(wish, params={**wish.params, "seed": 0}),  # each wish has another
            )
            if key != self._asked:
                self._asked, ask = key, desk.asking.whole(wish)
                threading.Thread(target=self._fetch, args=(ask,), name="meter", daemon=True).start()
        return self._room[1] if self._room and self._room[0] == desk.book_id else None

    def _fetch(self, ask: Ask) -> None:
        try:
            self._room = ask.book_id, self._desk.engine.room(ask)
        except UserError as error:
            log.info("the context's room is not known: %s", error)
        except Exception:  # a background thread's boundary: the page goes on without the meter
            log.exception("the context's room is not known")
        else:
            self._desk.change()
