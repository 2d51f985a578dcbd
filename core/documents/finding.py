"""Every place in a book where some words stand: letter by letter, or whatever the case, accents, quotes and
dashes are. White space is white space, line breaks too.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

_ACCENT = 10  # combining classes from here on are marks on letters; below them they make other letters (が)
_ALIKE = str.maketrans(
    dict.fromkeys("‘’‚‛ʼ`´", "'")
    | dict.fromkeys("“”„‟«»", '"')
    | dict.fromkeys("‐‑‒–—―−", "-")
    | {"\u00ad": ""}
)


@dataclass(frozen=True, slots=True)
class Places:
    """(start, end) of all places, in characters of the text, and how many there are."""

    places: tuple[tuple[int, int], ...] = ()
    count: int = 0


class Finder:
    """A text prepared for being searched. Folding takes about a second for three million characters, and is
    done when it is first asked for.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._folded: tuple[str, array] | None = None

    def find(self, words: str, *, exact: bool = False) -> Places:
        """Where `words` stand, in the order of the text. Nothing stands nowhere."""
        wanted = (words if exact else folded(words)).split()
        if not wanted:
            return Places()
        matches = re.compile(r"\s+".join(map(re.escape, wanted)))
        if exact:
            spans = [match.span() for match in matches.finditer(self._text)]
        else:
            text, starts = self._fold_once()
            found = (_unfolded(starts, *match.span()) for match in matches.finditer(text))
            spans = list(dict.fromkeys(found))  # both letters of a folded ß are one place
        return Places(tuple(spans), len(spans))

    def _fold_once(self) -> tuple[str, array]:
        """The text folded, and where each of its characters begins there."""
        if self._folded is None:
            known = {letter: folded(letter) for letter in set(self._text)}
            starts = array("I", accumulate((len(known[letter]) for letter in self._text), initial=0))
            self._folded = "".join(map(known.__getitem__, self._text)), starts
        return self._folded


def folded(text: str) -> str:
    """Without case, accents and kinds of quotes and dashes. What stands beside a letter does not change it: a
    text may be folded letter by letter.
    """
    apart = unicodedata.normalize("NFKD", text.casefold().translate(_ALIKE))
    return unicodedata.normalize("NFC", "".join(one for one in apart if unicodedata.combining(one) < _ACCENT))


def _unfolded(starts: array, start: int, end: int) -> tuple[int, int]:
    """Characters of the text whose folding holds those from `start` to `end`, and the accents behind."""
    first, after = bisect_right(starts, start) - 1, bisect_right(starts, end - 1)
    while after + 1 < len(starts) and starts[after] == starts[after + 1]:
        after += 1
    return first, after
