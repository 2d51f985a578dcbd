"""Whether a text is made of words. Letters that mean nothing (a font that does not say what it shows, a wrong
encoding) are told by how often each of them comes. Knows no format and no words of any language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

# The letters that make up half of a text or more, in every language of the alphabet that was tried: 0.50
# (Welsh, Vietnamese) to 0.66 (Finnish). Letters that stand for others come to about 0.31, the share of eight.
_COMMON = {"LATIN": "aeinorst", "CYRILLIC": "оеаинтср", "GREEK": "αιοετσνρ"}
_LEAST_COMMON = 0.41
_LEAST_LETTERS = 150  # fewer say nothing
# private use, replacement characters and controls: what is left of glyphs without a meaning
_MEANINGLESS = re.compile(r"[\ue000-\uf8ff\ufffd\x00-\x08\x0e-\x1f\x7f-\x9f\U000f0000-\U0010fffd]")
# not the dots, dashes and lines that lead to a page number or rule a table
_ODD_SIGNS = re.compile(r"[!\"#$%&'()*+/:;<=>?@\[\\\]^`{|}~]")
_MOST_MEANINGLESS = 0.2
_MOST_ODD_SIGNS = 0.4


def is_legible(text: str) -> bool:
    """False when the letters of `text` make no words. A text too short to say is legible."""
    dense = re.sub(r"\s+", "", text)
    if len(dense) < _LEAST_LETTERS:
        return True
    if len(_MEANINGLESS.findall(dense)) > _MOST_MEANINGLESS * len(dense):
        return False
    if len(_ODD_SIGNS.findall(dense)) > _MOST_ODD_SIGNS * len(dense):
        return False
    return _usual_letters(dense)


def _usual_letters(text: str) -> bool:
    """The commonest letters of the alphabet come as often as in any language; True for other scripts."""
    letters: Counter[str] = Counter()
    for char, count in Counter(text).items():  # each sign once: a book has a hundred of them
        for part in unicodedata.normalize("NFD", char.casefold()):
            letters[part] += count if part.isalpha() else 0
    for alphabet, common in _COMMON.items():
        own = {
            char: count for char, count in letters.items() if unicodedata.name(char, "").startswith(alphabet)
        }
        total = sum(own.values())
        if total > 0.6 * sum(letters.values()):
            few = total < _LEAST_LETTERS
            return few or sum(own.get(char, 0) for char in common) >= _LEAST_COMMON * total
    return True
