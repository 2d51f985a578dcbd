"""Pairs of a passage and what a reader says happens in it, from stories and summaries of them. No torch.

Which sentences of a summary are about which passage is not written anywhere: it is the monotone assignment
with most idf-weighted words in common, found by dynamic programming.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_SENTENCE = re.compile(r"(?<=[.!?][\"'”’)\]])\s+|(?<=[.!?])\s+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'’]+")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+")
_NOTICE = re.compile(r"^\s*(\[Transcriber|Produced by|Distributed Proof|Online Distributed)", re.IGNORECASE)
_PRONOUNS = ("He", "She", "It", "They", "This", "That", "These", "Those", "His", "Her", "Their", "There")
_ABBREVIATED = ("Mr.", "Mrs.", "Dr.", "Ms.", "St.", "Prof.", "Capt.", "Lt.", "Col.", "Gen.", "Sgt.")


@dataclass(frozen=True, slots=True)
class Abstract:
    """Sentences of one summary that fall on the passages [first, last] of a story."""

    first: int
    last: int
    text: str


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a story as published: no hard line ends, no notices."""
    found = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return [part for part in found if part and not _NOTICE.match(part)]


def abstract_sentences(text: str) -> list[str]:
    """Sentences of a summary, in order."""
    found: list[str] = []
    for piece in _SENTENCE.split(" ".join(text.split())):
        if found and found[-1].endswith(_ABBREVIATED):
            found[-1] += " " + piece
        elif piece:
            found.append(piece)
    return found


def paragraph_passages(parts: Sequence[str], words: int) -> list[str]:
    """The paragraphs `parts` in passages of about `words` words."""
    found: list[list[str]] = [[]]
    count = 0
    for part in parts:
        length = len(part.split())
        if count and count + length / 2 > words:
            found.append([])
            count = 0
        found[-1].append(part)
        count += length
    return ["\n\n".join(part) for part in found if part]


def assigned(told: Sequence[str], texts: Sequence[str]) -> list[int]:
    """For each sentence of `told` the index in `texts`, never falling, with the highest sum of shared words
    weighted by idf.
    """
    known = [set(_words(text)) for text in texts]
    frequency = Counter(word for words in known for word in words)
    weight = {word: math.log(1 + len(texts) / count) for word, count in frequency.items()}
    # fsum: the order of a set differs from run to run, and with it the rounding of a sum
    gains = [
        [math.fsum(weight[word] for word in set(_words(sentence)) & words) for words in known]
        for sentence in told
    ]
    best, came = [0.0] * len(texts), []
    for gain in gains:
        row, where, top = [], [], 0
        for index in range(len(texts)):
            top = index if best[index] > best[top] else top
            row.append(best[top] + gain[index])
            where.append(top)
        best = row
        came.append(where)
    place = max(range(len(texts)), key=best.__getitem__)
    path = []
    for where in reversed(came):
        path.append(place)
        place = where[place]
    return path[::-1]


def abstracts(summary: str, texts: Sequence[str]) -> list[Abstract]:
    """What falls on each passage of `texts`, whatever it is like."""
    told = abstract_sentences(summary)
    by_passage: dict[int, list[str]] = {}
    for sentence, index in zip(told, assigned(told, texts), strict=True):
        by_passage.setdefault(index, []).append(sentence)
    return [Abstract(index, index, " ".join(said)) for index, said in sorted(by_passage.items())]


def stands_alone(text: str, passage: str, *, words: tuple[int, int], most: int) -> bool:
    """Whether `text` tells `passage` to somebody who knows nothing else: its length in words within `words`,
    two to `most` sentences, no pronoun at the beginning, and its names known to the passage.
    """
    if not words[0] <= len(text.split()) <= words[1] or not 2 <= len(abstract_sentences(text)) <= most:
        return False
    names = set(_NAME.findall(text))
    strange = sum(name not in passage for name in names)
    return text.split()[0] not in _PRONOUNS and strange <= len(names) // 5


def _words(text: str) -> list[str]:
    return [word.lower().removesuffix("'s").removesuffix("’s") for word in _WORD.findall(text)]
