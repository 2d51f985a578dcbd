"""config.yaml as its own manual: its groups, and what stands above each key."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.config import DEFAULT_PATH


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
    for line in config.splitlines():
        if group := re.fullmatch(r"# -{2,} (.+?) -{2,}", line):
            groups.append((group[1], []))
            comment = []
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif match := re.fullmatch(r"(\w+): (.+)", line):
            explained, comment = " ".join(comment) or explained, []
            groups[-1][1].append(Entry(match[1], match[2], explained))
        elif not line:
            comment = []
    return groups


def program_entries() -> list[tuple[str, list[Entry]]]:
    """Those of the program's own file; none where it is missing."""
    try:
        return entries(DEFAULT_PATH.read_text(encoding="utf-8-sig"))
    except OSError:
        return []
