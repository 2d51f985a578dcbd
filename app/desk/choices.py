"""Settings that are chosen on the page in another way than key by key, or not without a word."""

from __future__ import annotations

import json

from app.desk.reader import Reader
from app.desk.store import Store
from app.desk.values import RefusedSetting
from app.errors import in_words
from app.store.allowed_folders import ticked
from app.store.preferences import Preferences
from core.config import RULES
from core.errors import UserError
from core.text.words import translated as _


class Choices:
    """Changes the preferences. All of it raises UserError for what is not allowed, but `set`, which has it
    said at the field.
    """

    def __init__(self, store: Store, preferences: Preferences, reader: Reader) -> None:
        self._store, self._preferences, self._reader = store, preferences, reader

    def set(self, key: str, value: str) -> None:
        """Sets a key. One that lets text of books leave this computer says so when it is switched on."""
        before = self._preferences.settings.mcp
        try:
            self._preferences.choose(key, value)
        except UserError as error:
            if key not in RULES or self._preferences.fixed(key):
                raise
            self._store.update(refused_setting=RefusedSetting(key, value, in_words(error)))
            return
        self._store.update(refused_setting=None)
        if self._preferences.settings.mcp and not before:
            words = _(
                "Assistants on this computer may now ask about every book on the shelf. One that runs in the "
                "cloud gets the passages and answers it asks for: they leave this computer. Settings, mcp, "
                "ends it."
            )
            self._store.say(words, "info")

    def reset(self, key: str) -> None:
        """Back to the default."""
        self._preferences.reset(key)
        self._store.update(refused_setting=None)

    def reading(self, mode: str) -> None:
        """How the open book is read; another one is read as it was chosen for that."""
        self._preferences.check_free("reading_mode")
        self._reader.read_as(mode)

    def summary(self, value: str) -> None:
        """How long a summary is to be, or "own": in the book's own sentences, as long as before."""
        wanted = "own" if value == "own" else "auto"
        if wanted != self._preferences.settings.summaries:
            self._preferences.choose("summaries", wanted)
        if value != "own":
            self._preferences.choose("summary_length", value)

    def tick_folder(self, folder: str) -> None:
        """Lets assistants open the books of a folder, or no longer."""
        chosen = ticked(folder, self._preferences.settings.mcp_folders)
        self._preferences.choose("mcp_folders", json.dumps(chosen))
