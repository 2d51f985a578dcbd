"""The drawer of settings: every key of config.yaml by group. Values in, HTML out."""

from __future__ import annotations

import os
from collections.abc import Mapping

from app.desk.values import ReadingsUsage, RefusedSetting
from app.render.templating import render
from app.store.allowed_folders import offered
from app.store.preferences import AT_ONCE, ELSEWHERE, NEXT_START, as_typed
from app.store.settings_docs import program_entries
from core import paths
from core.config import RULES, Settings
from core.text.words import LANGUAGES
from core.text.words import translated as _

ABBREVIATIONS = {
    name.lower(): name
    for name in ["API", "MCP", "CPU", "KV", "RAM", "VRAM", "PCIe", "CUDA", "GiB", "MiB", "GB", "MB"]
}
TITLES = {"stop": "Stop texts"}  # of keys that another word of the page is called like
FOLDERS = {"mcp_folders": "tick-folder", "book_folders": "watch-folder"}  # and what ticks one
OPEN = ("Answers",)  # the group that is unfolded at first


def settings_html(
    settings: Settings,
    origins: Mapping[str, str],
    unapplied: list[str],
    kept: ReadingsUsage | None = None,
    refused_setting: RefusedSetting | None = None,
) -> tuple[str, ...]:
    """The blocks of the drawer; `origins`: see app.store.preferences; `unapplied`: keys that the engine does
    not know yet; `kept`: of books that were read; `refused_setting`: what was typed last, where it is not
    allowed.
    """
    folder = paths.data_dir()
    top = render(
        "settings_top.html",
        path=folder / "settings.json",
        waiting=unapplied,
        kept=kept,
        folder=folder,
        named=paths.named_dir() if "TRIFORCE_HOME" in os.environ else None,
    )
    groups = [
        render(
            "settings.html",
            group=group,
            open=group in OPEN,
            spoken=LANGUAGES,
            refused=refused_setting,
            keys=[_shown(one.key, one.explained, settings, origins[one.key]) for one in entries],
        )
        for group, entries in program_entries()
    ]
    return (top, *groups)


def _shown(key: str, explained: str, settings: Settings, origin: str) -> dict[str, object]:
    rule = RULES[key]
    origins = {
        "command line": _("set on the command line"),
        "config.yaml": _("set in config.yaml"),
        "app": _("set here"),
        "default": _("default"),
    }
    if key == "data_dir":
        origins["default"] = _("moved above, or set in config.yaml")
    elif key == "model":
        origins["default"] = _("chosen in the list of models")
    return {
        "key": key,
        "name": titled(key),
        "value": as_typed(getattr(settings, key)),
        "names": (*(("auto",) if rule.auto else ()), *rule.names) if rule.names else (),
        "allowed": rule.allowed,
        "explained": explained,
        "origin": origins[origin],
        "locked": origin in ("command line", "config.yaml") or key in ELSEWHERE,
        "mine": origin == "app",
        "when": _when(key),
        "folders": offered(getattr(settings, key)) if key in FOLDERS else (),
        "tick": FOLDERS.get(key),
    }


def titled(key: str) -> str:
    """A key as a title: "ram_gib" is "RAM GiB"."""
    if key in TITLES:
        return TITLES[key]
    words = [ABBREVIATIONS.get(word, word) for word in key.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _when(key: str) -> str:
    if key in AT_ONCE:
        return ""
    return _("from the next start of the app") if key in NEXT_START else _("when the engine starts")
