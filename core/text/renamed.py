"""Earlier names of settings, of keys in stored JSON and of fields in other programs' requests: still read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {"fit": "reading_mode", "until": "spoiler_limit", "ticked": "selected_chapters"}
READING_MODES = {"whole": "full", "sections": "chunked", "passages": "retrieval"}


def reading_mode(value: Any) -> Any:
    """`value`, or today's name of the reading mode that it was the name of."""
    return READING_MODES.get(value, value) if isinstance(value, str) else value


def renamed(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """`values` under today's names. Where a value stands under both names, today's holds."""
    found = {NAMES.get(key, key): value for key, value in values.items() if NAMES.get(key) not in values}
    if "reading_mode" in found:
        found["reading_mode"] = reading_mode(found["reading_mode"])
    return found
