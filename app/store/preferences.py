"""What was chosen in the app: settings.json in the data folder. config.yaml, the manual, is never written.

A key that the command line or config.yaml sets is fixed there; else the app's own choice holds, else the
default.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import yaml

from app.store.settings_docs import keys_set
from core import paths
from core.config import RULES, Settings, override
from core.errors import UserError
from core.paths import write_whole
from core.request import PER_QUESTION
from core.text.renamed import renamed
from core.text.words import translated as _

log = logging.getLogger(__name__)
ELSEWHERE = ("model", "data_dir")  # the list of models chooses the one, and the other is where this file lies
AT_ONCE = (
    *PER_QUESTION,
    "reading_mode",
    "summary_length",
    "summaries",
    "instructions",
    "language",
    "mcp",
    "mcp_folders",
    "book_folders",
    "when_closed",
    "start_at_login",
)
AS_TYPED = ("instructions",)  # plain texts: nothing in them is YAML
# everything else: when the engine starts
NEXT_START = ("max_upload_mb", "offline", "api", "api_hosts", "port", "open_browser", "open_in", "theme")


def fixed(options: Mapping[str, Any]) -> dict[str, str]:
    """{key: "command line" | "config.yaml"} of what the app may not change. `options`: those of the command
    line, None where not given.
    """
    found = dict.fromkeys(keys_set(), "config.yaml")
    return found | {key: "command line" for key in RULES if options.get(key) is not None}


class Preferences:
    """The settings in force, and the choices among them. Thread-safe.

    `given`: what config.yaml and the command line say; `fixed`: see there. `warning`: what the person is to
    be told of the file.
    """

    def __init__(self, given: Settings, fixed: Mapping[str, str] | None = None) -> None:
        self._lock = threading.RLock()
        self._given, self._fixed = given, dict(fixed or {})
        self._path = paths.data_dir() / "settings.json"
        self._chosen: dict[str, Any] = {}
        self.warning = ""
        self._before: Callable[[Settings], None] = lambda settings: None
        self._watcher: Callable[[], None] = lambda: None
        self._read()

    @property
    def settings(self) -> Settings:
        """What holds now."""
        return self._settings

    def before_change(self, told: Callable[[Settings], None]) -> None:
        """`told` is called with the settings that are about to hold; what it raises keeps them from doing
        so.
        """
        self._before = told

    def watch(self, told: Callable[[], None]) -> None:
        """`told` is called after every change, from any thread; it must only take notice."""
        self._watcher = told

    def origin(self, key: str) -> str:
        """Where its value is from: "command line" | "config.yaml" | "app" | "default"."""
        return self._fixed.get(key) or ("app" if key in self._chosen else "default")

    def fixed(self, key: str) -> bool:
        """Whether the app may not change it."""
        return key in self._fixed

    @property
    def origins(self) -> dict[str, str]:
        """`origin` of every key."""
        return {key: self.origin(key) for key in RULES}

    def choose(self, key: str, text: str) -> None:
        """Sets a key to what was typed, written as in config.yaml. Raises UserError for what is not allowed,
        and where the file cannot be written.
        """
        try:
            value = text if key in AS_TYPED else yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        self.keep(key, "auto" if value is None else value)

    def keep(self, key: str, value: Any) -> None:
        """Sets a key; "auto" is a value. Raises as `choose`."""
        if key not in RULES or key in ELSEWHERE:
            raise UserError(_("{key} is not set here.").format(key=key))
        self.check_free(key)
        with self._lock:
            self._become({**self._chosen, key: value})

    def check_free(self, key: str) -> None:
        """Raises UserError where the app may not change the key."""
        if key in self._fixed:
            words = _("{key} is fixed by {where}. Change it there.")
            raise UserError(words.format(key=key, where=self._fixed[key]))

    def reset(self, key: str) -> None:
        """Back to the default."""
        with self._lock:
            self._become({name: value for name, value in self._chosen.items() if name != key})

    def _become(self, chosen: dict[str, Any]) -> None:
        settings = override(self._given, chosen)
        plain = {key: settings.to_json()[key] for key in chosen}
        self._before(settings)
        if plain != self._chosen:
            write_whole(self._path, json.dumps(plain, indent=1, ensure_ascii=False))
            self._path.chmod(0o600)
        self._settings, self._chosen = settings, plain
        self._watcher()

    def _read(self) -> None:
        """The file's keys that are still allowed; what is not is left out, and said."""
        self._settings = self._given
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(stored, dict):
                raise ValueError(stored)
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            self._put_aside()
            return
        refused = [key for key, value in renamed(stored).items() if not self._take(key, value)]
        if refused:
            words = _("Left out of settings.json: {keys}. Their values are not allowed any more.")
            self.warning = words.format(keys=", ".join(map(str, refused)))

    def _take(self, key: str, value: Any) -> bool:
        if key in self._fixed:
            return True
        if key not in RULES or key in ELSEWHERE:
            return False
        try:
            self._settings = override(self._settings, {key: value})
        except UserError:
            return False
        self._chosen[key] = value
        return True

    def _put_aside(self) -> None:
        aside = self._path.with_name("settings.damaged.json")
        try:
            self._path.replace(aside)
        except OSError:
            log.exception("settings.json is damaged and cannot be moved")
        words = _("The app's settings.json was damaged. It is kept as {name}; the defaults hold.")
        self.warning = words.format(name=aside.name)


def as_typed(value: Any) -> str:
    """A setting's value as it is written in config.yaml."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(list(value), ensure_ascii=False) if isinstance(value, tuple) else str(value)


def differ(one: Settings, other: Settings) -> list[str]:
    """The keys that hold when the engine starts and are not the same."""
    later = {each.name for each in fields(Settings)}.difference(AT_ONCE, NEXT_START, ELSEWHERE)
    return sorted(key for key in later if getattr(one, key) != getattr(other, key))
