"""The engine beside the settings: which of them wait for its next start; starting it again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from app.store.preferences import differ

if TYPE_CHECKING:
    from app.desk.desk import Desk


class Running:
    """Acts on a desk; knows what its engine was started with."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._settings = desk.preferences.settings

    @property
    def unapplied(self) -> list[str]:
        """The settings that the engine will know when it is started again."""
        return differ(self._settings, self._desk.preferences.settings)

    def apply(self) -> None:
        """Starts the engine again with the settings as they are now."""
        desk = self._desk
        if desk.refuse_while_busy() or not self.unapplied:
            return
        self._settings = desk.preferences.settings
        threading.Thread(
            target=desk.engine.renew, args=(self._settings,), name="settings", daemon=True
        ).start()
        desk.change()

    def restart(self) -> None:
        """Starts a failed engine again."""
        if self._desk.engine.state == "failed":
            self._desk.engine.start()
        self._desk.change()

    def cancel_loading(self) -> None:
        """Goes back to the model and the settings before."""
        before = self._desk.engine.cancel_loading()
        if before is not None:
            self._settings = before
            self._desk.used.went_back(before)
        self._desk.change()
