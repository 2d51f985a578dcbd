"""The engine beside the settings: which of them wait for its next start; starting it again."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from app.desk.models import ModelChoice
from app.desk.state import AppState
from app.desk.store import Store
from app.store.preferences import Preferences, differ

if TYPE_CHECKING:
    from app.engine.client import Runtime


class EngineSettings:
    """Knows what the engine was started with."""

    def __init__(
        self, store: Store, engine: Runtime, preferences: Preferences, model_choice: ModelChoice
    ) -> None:
        self._store, self._engine, self._preferences = store, engine, preferences
        self._model_choice = model_choice
        self._settings = preferences.settings

    @property
    def unapplied(self) -> list[str]:
        """The settings that the engine will know when it is started again."""
        return differ(self._settings, self._preferences.settings)

    def apply(self) -> None:
        """Starts the engine again with the settings as they are now."""
        if self._store.refuse_while_busy() or not self.unapplied:
            return
        self._settings = self._preferences.settings
        given = (self._settings,)
        threading.Thread(target=self._engine.renew, args=given, name="settings", daemon=True).start()
        self._store.tell()

    def restart(self) -> None:
        """Starts an engine again that failed or stands still; a message that offers it is answered."""
        if self._engine.state == "failed":
            self._engine.start()
        elif self._engine.still:
            threading.Thread(target=self._engine.restart, name="restart", daemon=True).start()
        else:
            return
        self._store.update(answered)

    def cancel_loading(self) -> None:
        """Goes back to the model and the settings before."""
        before = self._engine.cancel_loading()
        if before is not None:
            self._settings = before
            self._model_choice.went_back(before)
        self._store.tell()


def answered(now: AppState) -> AppState:
    """Without the message whose button starts the engine again."""
    offers = now.notice is not None and any(one.act == "restart" for one in now.notice.remedies)
    return replace(now, notice=None) if offers else now
