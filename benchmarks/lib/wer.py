"""How far a text is from the truth, in words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher


def words_of(text: str) -> list[str]:
    """Words as compared: NFKC, split at white space."""
    return unicodedata.normalize("NFKC", text).split()


def word_error(truth: str, found: str) -> tuple[float, list[tuple[str, str]]]:
    """Changed, lost and added words per word of the truth, and the places (truth, found) of all three."""
    wanted, got = words_of(truth), words_of(found)
    errors, places = 0, []
    for start, end, begin, stop in _differences(wanted, got):
        errors += max(end - start, stop - begin)
        places.append((" ".join(wanted[start:end]), " ".join(got[begin:stop])))
    return errors / max(1, len(wanted)), places


def _differences(wanted: Sequence[str], got: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Stretches that differ. Long texts are first aligned by words that are rare in both, which keeps it
    fast.
    """
    result = []
    matcher = SequenceMatcher(None, wanted, got, autojunk=len(wanted) > 5000)
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        if tag == "replace" and len(wanted) > 5000 and end - start < 5000:
            result += [
                (start + a, start + b, begin + c, begin + d)
                for a, b, c, d in _differences(wanted[start:end], got[begin:stop])
            ]
        else:
            result.append((start, end, begin, stop))
    return result
