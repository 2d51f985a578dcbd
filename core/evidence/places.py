"""Where an English text names a place. No model, no torch.

Of the words with capitals that are no person's (core.evidence.names), those that somebody is in, at or near,
or that say what they are ("Saltby Road"). All mentions of a name together decide.
benchmarks/quality/people.py measures what is found; the weights were chosen on every other book of its list.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.names import (
    ARTICLES,
    DAYS,
    IS_WHERE,
    LANDS,
    NO_NAMES,
    PEOPLES,
    PLACE_NOUNS,
    PLACE_PREPOSITIONS,
    SPEAKS,
    TITLES,
    Mention,
    word_set,
)

_NO_PLACES = word_set(
    """
    east west north south church court high society company sabbath scripture catechism vicinity deuce duke
    parliament government states
    """
)
_SMALL_WORD = re.compile(r"\b[^\W\d_A-Z]+\b")
_BEFORE = re.compile(r"([^\W\d_]+)[ \n]+\Z")
_SIDE = re.compile(r"([^\W\d_]+)[ \n]+(?:the|old|upper|lower|north|south|east|west|all)[ \n]+\Z", re.I)
_BEHIND = re.compile(r"[ \n]+([^\W\d_]+)")
_AND = re.compile(r"(?:,|\band|\bor)\s+\Z")  # in a list of places
_AROUND = 40  # characters before a name
_PRIOR = -0.2  # what speaks for a place where nothing else does, as one mention
_LEAST = 0.3  # on the mean
_STAYED = 2  # mentions


@dataclass(frozen=True, slots=True)
class Place:
    """`name`: as the text writes it most. `mentions`: every (start, end) in order."""

    name: str
    mentions: tuple[tuple[int, int], ...]


def places(text: str, others: Sequence[Mention]) -> tuple[Place, ...]:
    """The places of an English text, those it names most first. `others`: what it writes with capitals and
    names no person by (core.evidence.names.names_and_others).
    """
    named: dict[tuple[str, ...], list[Mention]] = defaultdict(list)
    for one in others:
        named[one.words].append(one)
    small = frozenset(_SMALL_WORD.findall(text))
    found = [_place(text, of) for words, of in named.items() if _is_place(text, words, of, small)]
    return tuple(sorted(found, key=lambda one: (-len(one.mentions), one.mentions[0])))


def stayed_in(text: str, place: Place) -> bool:
    """Whether more than one mention has somebody in, at or near it: it is no place by chance then."""
    ahead = (_BEFORE.search(text[max(0, start - _AROUND) : start]) for start, _end in place.mentions)
    return sum(bool(one) and one[1].lower() in PLACE_PREPOSITIONS for one in ahead) >= _STAYED


def _is_place(
    text: str, words: tuple[str, ...], mentions: Sequence[Mention], written_small: frozenset[str]
) -> bool:
    small = {word.lower() for word in words}
    if small & NO_NAMES or small <= DAYS | TITLES or any(one.title for one in mentions):
        return False
    kind = 2.0 * bool(small & PLACE_NOUNS and len(words) > 1) + 2.0 * bool(small & LANDS)
    kind -= 3.0 * (small <= _NO_PLACES or words[-1].lower() in ("society", "company"))
    kind -= 0.7 * (len(words) == 1 and words[0].lower() in written_small)
    kind -= 2.0 * bool(PEOPLES.search(words[-1]) and not small & LANDS)
    evidence = [_evidence(text, one) + kind for one in mentions]
    return (_PRIOR + sum(evidence)) / (1 + len(evidence)) > _LEAST


def _evidence(text: str, mention: Mention) -> float:
    """What stands around a name for a place's."""
    ahead = text[max(0, mention.start - _AROUND) : mention.start]
    before = found[1].lower() if (found := _BEFORE.search(ahead)) else ""
    beyond = found[1].lower() if (found := _SIDE.search(ahead)) else ""
    behind = found[1].lower() if (found := _BEHIND.match(text, mention.end)) else ""
    return (
        1.2 * bool({before, beyond} & PLACE_PREPOSITIONS)
        + 0.8 * (before in ("to", "from") or beyond in ("to", "from"))
        + 0.6 * (before == "of" or beyond == "of")
        + 0.2 * bool(_AND.search(ahead))
        + 1.2 * bool(IS_WHERE.match(text, mention.end))
        - 1.5 * (before in ARTICLES and before != "the")
        - 0.2 * (before == "the" and not beyond)
        - 1.0 * bool({before, behind} & SPEAKS)
    )


def _place(text: str, mentions: Sequence[Mention]) -> Place:
    spans = tuple((one.start, one.end) for one in mentions)
    return Place(" ".join(text[slice(*spans[0])].split()), spans)
