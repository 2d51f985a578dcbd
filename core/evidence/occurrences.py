"""Who and what occurs in a text up to a place: people, places and terms, every mention, and the sentence that
introduces each.

Only the text up to the place is looked at, so nothing behind it can show: neither a fuller form of a name
nor a sentence. No model, no torch.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from core.evidence.names import DAYS, LANDS, NO_NAMES, PEOPLES, TITLES, Mention, names_and_others
from core.evidence.people import introduction, joined_people
from core.evidence.places import places
from core.text.language_detection import foreign

KINDS = ("person", "place", "term")
_LEAST_MENTIONS = 3  # of a term
_SMALL = 0.2  # of a term's capitals: it is not written small more often
_SMALL_WORD = re.compile(r"\b[^\W\d_A-Z]+\b")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """`kind`: one of KINDS. `mentions`: every (start, end) in characters, in order."""

    kind: str
    name: str
    forms: tuple[str, ...]
    mentions: tuple[tuple[int, int], ...]


def occurrences(text: str, end: int) -> tuple[Occurrence, ...]:
    """The people, the places and then the terms of `text[:end]`, of each those named most first; none of a
    text that is not English.
    """
    text = text[:end]
    if foreign(text):
        return ()
    persons, others = names_and_others(text)
    there = places(text, others)
    taken = {span for one in there for span in one.mentions}
    return (
        *(Occurrence("person", one.name, one.forms, one.mentions) for one in joined_people(persons)),
        *(Occurrence("place", one.name, (one.name,), one.mentions) for one in there),
        *(Occurrence("term", name, (name,), found) for name, found in _terms(text, others, taken)),
    )


def named_within(text: str, start: int, end: int) -> dict[str, list[tuple[str, int]]]:
    """Who and what `text[start:end]` names, by what was read up to its end: of each kind (name, times), those
    named most first.
    """
    found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in KINDS}
    for one in occurrences(text, end):
        if times := sum(at >= start for at, _end in one.mentions):
            found[one.kind].append((one.name, times))
    return {kind: sorted(named, key=lambda item: -item[1]) for kind, named in found.items()}


def introduced(text: str, end: int, one: Occurrence) -> tuple[int, int]:
    """The sentence of `text[:end]` that says who or what somebody is, (start, end): one with a mention in any
    case.
    """
    return introduction(text[:end], one.mentions)


def _terms(
    text: str, others: Sequence[Mention], taken: Collection[tuple[int, int]]
) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """What the text names often that is nobody and no place: ships, creatures, companies; (name, mentions),
    those named most first.
    """
    named: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for one in others:
        if (one.start, one.end) not in taken:
            named[one.words].append((one.start, one.end))
    written_small = Counter(_SMALL_WORD.findall(text))
    for words, spans in sorted(named.items(), key=lambda item: (-len(item[1]), item[1])):
        small = {word.lower() for word in words}
        lone = len(words) == 1 and written_small[words[0].lower()] > _SMALL * len(spans)
        common = small & NO_NAMES or small <= DAYS | TITLES | LANDS or PEOPLES.search(words[-1])
        if len(spans) >= _LEAST_MENTIONS and not lone and not common:
            yield " ".join(words), tuple(spans)
