"""What a slip is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slip:
    """`text` of `file` becomes `wrong`; one of `tests` must fail. All paths from the root."""

    file: str
    text: str
    wrong: str
    tests: tuple[str, ...]
