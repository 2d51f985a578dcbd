"""Who and what of one text occurs in another, by name: in the volumes before it. No model, no torch.

Names that are equal are one's; of two that are not, the longer holds the shorter, and the shorter has no
title that the other lacks: "Mrs. Rudd" is not Isaac Rudd. Nobody is known again who is called by what he is
alone ("the Inspector"): every volume may have its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from core.evidence.names import TITLES
from core.evidence.occurrences import Occurrence
from core.evidence.people import told_apart, words_within

_MOST = 3  # that somebody may be


@dataclass(frozen=True, slots=True)
class _Named:
    """A person by the `words` of the name and the `titles` of all its forms, in small letters."""

    words: tuple[str, ...]
    titles: frozenset[str]

    def may_be(self, other: _Named) -> bool:
        """Whether both may be one."""
        if any(told_apart(mine, theirs) for mine in self.titles for theirs in other.titles):
            return False
        if self.words == other.words:
            return True
        short, long = sorted((self, other), key=lambda one: len(one.words))
        return words_within(short.words, long.words) and (
            not short.titles or bool(short.titles & long.titles)
        )


class SameNames:
    """The occurrences of a text, to be found by those of another."""

    def __init__(self, others: Sequence[Occurrence]) -> None:
        self._people: dict[str, list[tuple[Occurrence, _Named]]] = defaultdict(list)
        self._others: dict[str, list[Occurrence]] = defaultdict(list)
        for one in others:
            if one.kind != "person":
                self._others[one.name.casefold()].append(one)
                continue
            named = _named(one)
            for word in dict.fromkeys(named.words):
                self._people[word].append((one, named))

    def of(self, one: Occurrence) -> tuple[Occurrence, ...]:
        """Which of them it is by name: several, up to three, where the name may be several people's there;
        one alone where it is equal.
        """
        if one.kind != "person":
            return tuple(self._others.get(one.name.casefold(), ()))
        named = _named(one)
        near = {other.mentions: (other, theirs) for word in named.words for other, theirs in self._with(word)}
        fitting = [(other, theirs) for other, theirs in near.values() if named.may_be(theirs)]
        equal = [other for other, theirs in fitting if theirs.words == named.words]
        found = equal or [other for other, _theirs in fitting]
        return tuple(sorted(found, key=lambda other: -len(other.mentions)))[:_MOST]

    def _with(self, word: str) -> Sequence[tuple[Occurrence, _Named]]:
        return self._people.get(word, ())


def _named(person: Occurrence) -> _Named:
    parts = [_parted(form) for form in (person.name, *person.forms)]
    return _Named(parts[0][1], frozenset(title for title, _words in parts if title))


def _parted(form: str) -> tuple[str, tuple[str, ...]]:
    """The title of a form, or "", and the words of the name; none of what somebody is."""
    words = form.split()
    title = words[0].rstrip(".").lower()
    if title == "the":
        return "", ()
    titled = title in TITLES and len(words) > 1
    return (title, tuple(words[1:])) if titled else ("", tuple(words))
