"""What an English sentence denies. No model."""

from __future__ import annotations

import re

from core.text.ranking import NAME, terms

DENIES = re.compile(
    r"\b(?:not|never|no|nobody|nothing|none|nor|neither|nowhere|without|cannot)\b|n['’]t\b", re.IGNORECASE
)
_REACH = re.compile(r"(?:[^\w.,;:!?]+[\w'’]+){0,4}")  # the few words behind a denial that it speaks of


def denied(text: str) -> set[str]:
    """The content words that a denial speaks of: those in the few words behind it. A name is not denied."""
    behind = (_REACH.match(text, match.end()).group() for match in DENIES.finditer(text))
    return {word for words in behind for word in terms(NAME.sub("", words))}
