"""A book's own list of chapters, for somebody who may not know yet what the later ones are called."""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_GAP_WORDS = 24  # between two that are listed: page numbers, a title that stands there in other words
_PASSED = 3  # titles among which the next one is looked for
_LISTED = 3  # titles that follow each other so: fewer may be words of a preface


def without_later(text: str, front: int, titles: Sequence[str], known: int) -> str:
    """`text` with "…" and white space, as long as it was, in place of what `text[:front]` lists of the
    chapters behind the first `known`. `titles`: of all sections behind the front matter, in their order.
    """
    found = list(_WORD.finditer(text, 0, front))
    words = [one[0].casefold() for one in found]
    listed = _listed(words, [_WORD.findall(title.casefold()) for title in titles])
    later = [span for number, span in listed if number >= known]
    if not later:
        return text
    start, end = found[later[0][0]].start(), found[later[-1][1] - 1].end()
    before = [behind for number, (_first, behind) in listed if number < known]
    if before:  # from the next line on, which may have a title in other words
        start = text.find("\n", found[before[-1] - 1].end(), start) + 1 or start
    line = text.find("\n", end, front)
    end = front if line < 0 else line
    return f"{text[:start]}…{' ' * (end - start - 1)}{text[end:]}"


def _listed(words: Sequence[str], titles: Sequence[Sequence[str]]) -> list[tuple[int, tuple[int, int]]]:
    """The titles that follow each other in the words, as (number, (first word, behind the last))."""
    chain: list[tuple[int, tuple[int, int]]] = []
    for at in range(len(words)):
        number, end = (chain[-1][0] + 1, chain[-1][1][1]) if chain else (0, 0)
        if chain and at - end > _GAP_WORDS:
            if len(chain) >= _LISTED:
                break
            chain, number = [], 0
        elif at < end:
            continue
        for near in range(number, min(number + _PASSED, len(titles))):
            title = titles[near]
            if title and words[at : at + len(title)] == title:
                chain.append((near, (at, at + len(title))))
                break
    return chain if len(chain) >= _LISTED else []
