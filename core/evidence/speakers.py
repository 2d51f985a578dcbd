"""Who speaks in a play: its speeches begin with a name in capitals. No model here."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from core.documents.structure.headings import read_heading

_WORD = re.compile(r"[A-ZÀ-Þ][A-ZÀ-Þ'’-]+")
_NAME = rf"{_WORD.pattern}(?:\.? {_WORD.pattern})*"
# a paragraph's beginning: "VEY.", "FIRST SAILOR [aside]:"
_SPEECH = re.compile(rf"(?:\A|\n\s*\n)\s*(?P<who>{_NAME})(?:\s*[\[(][^\])\n]*[\])])?[.:]\s")
_IN_CAPITALS = re.compile(rf"\b{_NAME}")
_LETTERS = re.compile(r"[A-ZÀ-Þ]+")
_PARAGRAPH = re.compile(r"\n\s*\n")
_LEAST_SPEECHES = 3  # of somebody whose name is learned from them
_LEAST_SHARE = 0.25  # of a play's paragraphs, that begin with such a name


@dataclass(frozen=True, slots=True)
class WrittenNames:
    """A play's `text`, of the same length, with the names of who speaks as a novel writes them, where each
    begins and where one begins a speech. Any other text as it is, without any.
    """

    text: str
    starts: frozenset[int] = frozenset()
    speeches: frozenset[int] = frozenset()


def written_names(text: str) -> WrittenNames:
    """The names of a play, "TARLE" and "EDMUND TARLE", as "Tarle" and "Edmund Tarle"."""
    speeches = [one for one in _SPEECH.finditer(text) if read_heading(one["who"]) is None]  # "SCENE II."
    times = Counter(one["who"] for one in speeches)
    speeches = [one for one in speeches if times[one["who"]] >= _LEAST_SPEECHES]
    if len(speeches) <= _LEAST_SHARE * len(_PARAGRAPH.findall(text)):
        return WrittenNames(text)
    cast = set(_WORD.findall(" ".join(one["who"] for one in speeches)))
    found = [one for one in _IN_CAPITALS.finditer(text) if not cast.isdisjoint(_WORD.findall(one[0]))]
    pieces, at = [], 0
    for one in found:
        pieces += [text[at : one.start()], _LETTERS.sub(lambda word: word[0].capitalize(), one[0])]
        at = one.end()
    return WrittenNames(
        "".join(pieces) + text[at:],
        frozenset(one.start() for one in found),
        frozenset(one.start("who") for one in speeches),
    )
