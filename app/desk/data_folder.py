"""The data folder on its way to another place."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.state import AppState
from app.desk.store import Store
from app.desk.values import FolderMove
from app.errors import in_words
from app.store import relocation
from app.store.history import History
from core.text.words import translated as _

if TYPE_CHECKING:
    from app.engine.client import Runtime

log = logging.getLogger(__name__)
_SHOWN_S = 0.2


class DataFolder:
    """Moves it when the person says so. Thread-safe."""

    def __init__(self, store: Store, engine: Runtime, history: History) -> None:
        self._store, self._engine, self._history = store, engine, history
        self._stop = threading.Event()
        self._moved: Callable[[], None] = lambda: None

    def when_moved(self, told: Callable[[], None]) -> None:
        """`told` lets the app begin again in the new place."""
        self._moved = told

    def propose(self, folder: str) -> None:
        """Asks for a yes to a move. Raises UserError for a place that will not do."""
        if not self._store.refuse_while_busy():
            self._store.update(moving=FolderMove(relocation.planned_move(folder)))

    def decline(self) -> None:
        """No move; one under way is broken off, and everything is as it was."""
        if self._store.state.is_moving:
            self._stop.set()
        else:
            self._store.update(moving=None)

    def begin(self) -> None:
        """Moves, as was proposed, in the background."""
        moving = self._store.state.moving
        if moving is None or self._store.refuse_while_busy():
            return
        self._stop.clear()
        self._store.update(moving=replace(moving, done=0))
        threading.Thread(target=self._run, args=(moving.move,), name="move", daemon=True).start()

    def _run(self, move: relocation.Relocation) -> None:
        self._engine.rest()
        try:
            whole = relocation.copied(
                move,
                copy_database=self._history.copy_to,
                progress=self._pace(move.bytes),
                should_stop=self._stop.is_set,
            )
            if whole:
                relocation.switch(move)
        except Exception as error:  # the thread's boundary: the old folder is whole, and in use
            words = _("The data was not moved, and nothing is lost. {reason}")
            self._store.say(words.format(reason=in_words(error)))
            whole = False
        if whole:
            log.info("the data folder was moved")
            self._moved()
        else:
            self._store.update(moving=None)
            self._engine.start()

    def _pace(self, total: int) -> Callable[[int], None]:
        began, shown = time.monotonic(), 0.0

        def progress(done: int) -> None:
            nonlocal shown
            now = time.monotonic()
            if now - shown < _SHOWN_S:
                return
            shown = now
            left_s = (now - began) * (total - done) / max(1, done)

            def further(state: AppState) -> AppState:
                return replace(state, moving=replace(state.moving, done=done, left_s=left_s))

            if self._store.state.is_moving:
                self._store.update(further)

        return progress
