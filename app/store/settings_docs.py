"""config.yaml as its own manual: its groups, and what stands above each key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import core.config
from core.text.renamed import NAMES, renamed
from core.text.words import translated as _

NEWER = "config.new.yaml"  # what an update laid beside a file of one's own
# what earlier versions' files said that is no default any more; today they are auto
SAID_BEFORE = {"temperature": 0.3, "top_p": 0.9, "repetition_penalty": 1.1, "snapshot_quota_gb": 20}
_HEADING = re.compile(r"# -{2,} (.+?) -{2,}")
_KEY = re.compile(r"(#?)(\w+): (.+)")  # one that is not set stands behind a # without a space


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One key: the value as the file shows it, and the comment above it."""

    key: str
    value: str
    explained: str


def entries(config: str) -> list[tuple[str, list[SettingDoc]]]:
    """(group, its keys) in the order of the file. A key without a comment shares that of the key before; one
    before the first heading has no place in a manual.
    """
    groups: list[tuple[str, list[SettingDoc]]] = []
    comment: list[str] = []
    explained = ""
    for line in config.splitlines():
        if group := _HEADING.fullmatch(line):
            groups.append((group[1], []))
            comment = []
        elif groups and (match := _KEY.fullmatch(line)):
            explained, comment = " ".join(comment) or explained, []
            groups[-1][1].append(SettingDoc(NAMES.get(match[2], match[2]), match[3], explained))
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif not line:
            comment = []
    return groups


def keys_set() -> tuple[str, ...]:
    """The keys that a person has set in the program's own file, be it to the default or `auto`. The file of
    an earlier version named every key: there, what stands as it was shipped was not set by anybody.
    """
    config, values = _own_file()
    earlier = _of_earlier_version(config)
    found = ((key, values.get(key)) for key in core.config.RULES)
    return tuple(
        key for key, value in found if value is not None and not (earlier and _as_shipped(key, value))
    )


def no_default_any_more() -> tuple[str, ...]:
    """The keys that stand in the file of an earlier version as it was shipped, where that has become auto."""
    config, values = _own_file()
    if not _of_earlier_version(config):
        return ()
    return tuple(key for key, value in SAID_BEFORE.items() if values.get(key) == value)


def program_entries() -> list[tuple[str, list[SettingDoc]]]:
    """Those of the program's own file, or of the newer one that an update laid beside it; what neither
    explains stands last.
    """
    own = core.config.DEFAULT_PATH
    groups = entries(_text(own.with_name(NEWER))) or entries(_text(own))
    rules = core.config.RULES
    groups = [(group, [one for one in keys if one.key in rules]) for group, keys in groups]
    known = {one.key for _group, keys in groups for one in keys}
    others = [SettingDoc(key, "", "") for key in rules if key not in known]
    return [*groups, (_("Others"), others)] if others else groups


def _own_file() -> tuple[str, dict[str, Any]]:
    config = _text(core.config.DEFAULT_PATH)
    return config, renamed(yaml.safe_load(config) or {})


def _of_earlier_version(config: str) -> bool:
    """Whether it is the manual as it was when its keys stood without a #."""
    keys = [match[1] for line in config.splitlines() if (match := _KEY.fullmatch(line))]
    return any(map(_HEADING.fullmatch, config.splitlines())) and keys.count("") > keys.count("#")


def _as_shipped(key: str, value: object) -> bool:
    if key in SAID_BEFORE and value == SAID_BEFORE[key]:
        return True
    default = getattr(core.config.Settings(), key)
    return value == "auto" if default is None else core.config.checked(key, value) == default


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError:
        return ""
