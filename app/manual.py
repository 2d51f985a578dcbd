"""config.yaml as its own manual: its groups, and what stands above each key."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

import core.config


@dataclass(frozen=True, slots=True)
class Entry:
    """One key: the value as the file shows it, and the comment above it."""

    key: str
    value: str
    explained: str


def entries(config: str) -> list[tuple[str, list[Entry]]]:
    """(group, its keys) in the order of the file. A key without a comment shares that of the key before."""
    groups: list[tuple[str, list[Entry]]] = []
    comment: list[str] = []
    explained = ""
    for line in config.splitlines():  # a key that is not set stands behind a # without a space
        if group := re.fullmatch(r"# -{2,} (.+?) -{2,}", line):
            groups.append((group[1], []))
            comment = []
        elif match := re.fullmatch(r"#?(\w+): (.+)", line):
            explained, comment = " ".join(comment) or explained, []
            groups[-1][1].append(Entry(match[1], match[2], explained))
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif not line:
            comment = []
    return groups


def keys_set() -> tuple[str, ...]:
    """The keys that stand in the program's own file with a value, be it the default or `auto`."""
    path = core.config.DEFAULT_PATH
    values = yaml.safe_load(path.read_text("utf-8-sig")) if path.is_file() else {}
    return tuple(key for key in core.config.RULES if (values or {}).get(key) is not None)


def program_entries() -> list[tuple[str, list[Entry]]]:
    """Those of the program's own file; none where it is missing."""
    try:
        return entries(core.config.DEFAULT_PATH.read_text(encoding="utf-8-sig"))
    except OSError:
        return []
