"""What a book quotes from others under their names: mottos of its chapters, verses. No model here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_SMALL = (
    r"(?:of|the|and|in|on|at|to|from|for|by|a|an|de|du|la|le|von|van|aus|der|dem|den|des|act|scene|book|canto"
    r"|verse|chapter)"
)
_SOURCE = re.compile(  # "— Ines Moreau, Notebooks", "— Old proverb"; no "—Yes, said he."
    r"\s*(?:[—–―]|--)\s*[“\"‘'_*(]*(?=[^\n]{0,12}[A-ZÄÖÜ])"
    rf"(?:(?:(?:[A-ZÄÖÜ][\w’'.-]*|{_SMALL}\b|\d+)[\s,.:;“”\"‘’'_*()]*){{1,14}}"
    r"|(?:[\w’'-]+\b,?[ _*]*){1,6}\s*)"
)


def is_quotation(text: str, low: int) -> bool:
    """Whether the sentence that begins at `text[low]` stands above the name of a source, in the last line of
    its paragraph or in the next by itself.
    """
    end = _paragraph_end(text, low)
    line = max(text.rfind("\n", low, end), low)
    return is_source(text, line, end) or is_source(text, end, _paragraph_end(text, end + 2))


def is_source(text: str, start: int, end: int) -> bool:
    """Whether text[start:end] names a source and nothing else: "— Ines Moreau, Notebooks"."""
    return _SOURCE.fullmatch(text, start, end) is not None


def behind_source(text: str, start: int, end: int) -> int:
    """Where in a place that begins with a source, or with a motto above one, what follows begins; `end` where
    nothing does.
    """
    paragraphs = [start, *(at + 2 for at in _borders(text, start, end)), end]
    for low, high in list(pairwise(paragraphs))[:2]:
        if is_source(text, max(low, text.rfind("\n", low, high - 2) + 1), high):
            return high
    return start


def _borders(text: str, start: int, end: int) -> Iterator[int]:
    while (at := text.find("\n\n", start, end)) >= 0:
        yield at
        start = at + 2


def _paragraph_end(text: str, start: int) -> int:
    end = text.find("\n\n", start)
    return end if end >= 0 else len(text)
