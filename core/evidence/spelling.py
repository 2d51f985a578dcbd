"""Names that are written much alike: what somebody may have meant who has only heard one. No model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from core.documents.finding import folded

_ALIKE = 0.8  # by difflib's ratio; "Balthasr" and "Balthasar" have .94, "Marius" and "Maria" .73


def written_like(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """For each of these words the name that is written most like it, if one is: "Grün" for "Grun". Case
    and accents make no difference. Each name once.
    """
    known = {folded(name): name for name in sorted(names)}
    found = (get_close_matches(folded(one), known, n=1, cutoff=_ALIKE) for one in words)
    return list(dict.fromkeys(known[close[0]] for close in found if close))
