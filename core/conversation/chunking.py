"""Cuts long chapters where a reader would: between paragraphs, sentences, words. No model here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from core.documents.document import Section

# a chapter up to so many times the part length is read in one go
_STRETCH = 1.3
_KEPT_COUNTS = 1 << 15  # of Moby-Dick 7,000 stretches are counted


class TokenCounter(Protocol):
    """Anything that can count tokens: the real tokenizer, or an estimate."""

    def count(self, text: str) -> int: ...


class KeptCounts:
    """Counts a text once: a plan asks for the same paragraph several times, and the next plan again."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[tuple[int, int], int] = {}  # by hash and length: texts themselves are large

    def count(self, text: str) -> int:
        """As the counter itself."""
        key = hash(text), len(text)
        tokens = self._known.get(key)
        if tokens is None:
            tokens = self._counter.count(text)
            if len(self._known) >= _KEPT_COUNTS:
                self._known.clear()
            self._known[key] = tokens
        return tokens


@dataclass(frozen=True, slots=True)
class ChunkingUnit:
    """A stretch that is not cut further: a short chapter, or one piece of a long one."""

    chapter: int  # index into the book's chapters
    start: int
    end: int
    tokens: int
    piece: int = 0
    pieces: int = 1


def units(text: str, counter: TokenCounter, index: int, section: Section, limit: int) -> list[ChunkingUnit]:
    """Chapter `index` whole where it has about `limit` tokens or fewer, else in pieces of equal length."""
    tokens = counter.count(text[section.start : section.end])
    if not text[section.start : section.end].strip():
        return []
    if tokens <= limit * _STRETCH:
        return [ChunkingUnit(index, section.start, section.end, tokens)]
    pieces = -(-tokens // limit)
    borders = _borders(text, counter, section.start, section.end, pieces=pieces, limit=limit)
    return [
        ChunkingUnit(index, start, end, counter.count(text[start:end]), i, len(borders) - 1)
        for i, (start, end) in enumerate(zip(borders, borders[1:], strict=False))
    ]


def _borders(text: str, counter: TokenCounter, start: int, end: int, *, pieces: int, limit: int) -> list[int]:
    """Offsets that cut text[start:end] at paragraph ends into so many pieces of about the same length."""
    grains = [
        (begin, counter.count(text[begin:finish]))
        for begin, finish in _grains(text, counter, start, end, limit)
    ]
    total = sum(tokens for _, tokens in grains)
    borders, read = [start], 0
    for begin, tokens in grains:
        due = total * len(borders) / pieces
        if read and len(borders) < pieces and read + tokens / 2 > due:
            borders.append(begin)
        read += tokens
    return [*borders, end]


def _grains(text: str, counter: TokenCounter, start: int, end: int, limit: int) -> list[tuple[int, int]]:
    """The smallest stretches a cut may separate: paragraphs; sentences, then words, of a paragraph that is
    itself too long.
    """
    grains = [(start, end)]
    for border in (r"\n\s*\n\s*", r"\n", r"(?<=[.!?…])\s+|[。！？]+[」』”’]*\s*", r"\s+", ""):
        grains = [small for grain in grains for small in _cut(text, counter, *grain, limit // 4, border)]
    return grains


def _cut(
    text: str, counter: TokenCounter, start: int, end: int, small: int, border: str
) -> list[tuple[int, int]]:
    if end - start <= small or counter.count(text[start:end]) <= small:
        return [(start, end)]
    if border:
        cuts = [match.end() for match in re.compile(border).finditer(text, start, end)]
    else:
        cuts = list(range(start + small, end, small))
    offsets = [start, *[cut for cut in cuts if start < cut < end], end]
    return list(zip(offsets, offsets[1:], strict=False))
