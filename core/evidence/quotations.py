"""What a book quotes from others under their names: mottos of its chapters, verses. No model here."""

from __future__ import annotations

import re

_SMALL = (
    r"(?:of|the|and|in|on|at|to|from|for|by|a|an|de|du|la|le|von|van|aus|der|dem|den|des|act|scene|book|canto"
    r"|verse|chapter)"
)
_SOURCE = re.compile(  # "— Ines Moreau, Notebooks", with names alone; no "—Yes, said he."
    r"\s*(?:[—–―]|--)\s*[“\"‘'_*(]*(?=[^\n]{0,12}[A-ZÄÖÜ])"
    rf"(?:(?:[A-ZÄÖÜ][\w’'.-]*|{_SMALL}\b|\d+)[\s,.:;“”\"‘’'_*()]*){{1,14}}"
)


def is_quotation(text: str, low: int) -> bool:
    """Whether the sentence that begins at `text[low]` stands above the name of a source, in the last line of
    its paragraph or in the next by itself.
    """
    end = _paragraph_end(text, low)
    line = max(text.rfind("\n", low, end), low)
    return bool(
        _SOURCE.fullmatch(text, line, end) or _SOURCE.fullmatch(text, end, _paragraph_end(text, end + 2))
    )


def _paragraph_end(text: str, start: int) -> int:
    end = text.find("\n\n", start)
    return end if end >= 0 else len(text)
