"""Names that are written much alike: what somebody may have meant who has only heard one. No model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from core.documents.finding import folded
from core.evidence.names import NO_NAMES, word_set

# of German books; Chinese has no capitals
_DAYS_AND_MONTHS = NO_NAMES | word_set(
    """
    januar jänner februar märz mai juni juli oktober dezember montag dienstag mittwoch donnerstag freitag
    samstag sonnabend sonntag weihnachten ostern pfingsten
    """
)
_ALIKE = 0.8  # by difflib's ratio; "Balthasr" and "Balthasar" have .94, "Marius" and "Maria" .73


def written_like(words: Sequence[str], question: str, names: Iterable[str]) -> list[str]:
    """For each of these words of a question the name that is written most like it, if one is: "Grün" for
    "Grun"; of words in a row, which are one name, if all have one. Case and accents make no difference. Each
    name once, no months and days.
    """
    if not words:
        return []
    known = {folded(name): name for name in sorted(names) if name.lower() not in _DAYS_AND_MONTHS}
    found: list[str] = []
    for whole in _in_a_row(words, question):
        close = [get_close_matches(folded(one), known, n=1, cutoff=_ALIKE) for one in whole]
        if all(close):
            found += [known[name] for (name,) in close]
    return list(dict.fromkeys(found))


def _in_a_row(words: Sequence[str], question: str) -> Iterator[list[str]]:
    """The words, cut where more than a space stands between two in the question."""
    whole: list[str] = []
    for word in words:
        if whole and f"{whole[-1]} {word}" not in question:
            yield whole
            whole = []
        whole.append(word)
    if whole:
        yield whole
