"""A book cut into passages: short stretches on paragraph borders, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.documents.document import Document, Section

LEAST_WORDS, MOST_WORDS = 250, 400  # a passage a person reads in two minutes and a small model reads well
_PARAGRAPH = re.compile(r"\n\s*\n\s*")
# a full stop is none behind a title, an initial or the number of an item or a chapter, nor where a small
# letter follows; „German“ and »German« quotations close with what opens English and French ones, « French »
# and what was taken apart into words (. ”) behind a space
_NUMBER = "".join(f"(?<!^[IVXLC]{{{letters}}})" for letters in range(2, 8))
_SENTENCE = re.compile(
    rf"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])(?<!^\d)(?<!^\d\d){_NUMBER}"
    r"[.!?…]+(?:[\"'”’“‘»«)\]]|[ \xa0\u202f][»”])*\s+(?![a-z])|[。！？]+[」』”’]*(?P<straight>\"?)\s*",
    re.M,
)
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\W぀-ヿ㐀-鿿]+")  # a CJK character counts as a word


@dataclass(frozen=True, slots=True)
class Passage:
    """`document.text[start:end]` in the section titled `chapter`, from `page` on (None without pages)."""

    start: int
    end: int
    chapter: str
    page: str | None


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    words: int


def book_passages(document: Document) -> tuple[Passage, ...]:
    """The passages of the book itself, in order; of everything where no chapters are known.

    They cover every word of their sections, do not overlap and end where a paragraph does, or a sentence
    where a paragraph is longer than a passage. None has more than `MOST_WORDS` unless a single sentence has.
    """
    sections = document.chapters or document.sections
    found = []
    for section in sections:
        for span in _merged(list(_grains(document.text, section))):
            found.append(Passage(span.start, span.end, section.title, document.page_at(span.start)))
    return tuple(found)


def sentence_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences of text[start:end] that have a word, as offsets without the white space around them.

    A paragraph's end ends a sentence, too.
    """
    found = []
    for low, high in _cut(text, start, end, _PARAGRAPH):
        for left, right in _cut(text, low, high, _SENTENCE):
            stripped = text[left:right].strip()
            at = left + text[left:right].index(stripped)
            if _WORD.search(stripped):
                found.append((at, at + len(stripped)))
    return found


def _grains(text: str, section: Section) -> Iterator[_Span]:
    """Paragraphs, and sentences of a paragraph that is longer than a passage."""
    for start, end in _cut(text, section.start, section.end, _PARAGRAPH):
        words = _count(text, start, end)
        if words <= MOST_WORDS:
            yield _Span(start, end, words)
            continue
        for left, right in _cut(text, start, end, _SENTENCE):
            yield _Span(left, right, _count(text, left, right))


def _merged(grains: Sequence[_Span]) -> list[_Span]:
    """Neighbours joined: a passage ends as soon as it has enough words, or before it would have too many."""
    found: list[_Span] = []
    for grain in grains:
        last = found[-1] if found else None
        if last is not None and last.words < LEAST_WORDS and last.words + grain.words <= MOST_WORDS:
            found[-1] = _Span(last.start, grain.end, last.words + grain.words)
        else:
            found.append(grain)
    if len(found) > 1 and found[-1].words + found[-2].words <= MOST_WORDS:
        rest = found.pop()
        found[-1] = _Span(found[-1].start, rest.end, found[-1].words + rest.words)
    return [span for span in found if span.words]


def _cut(text: str, start: int, end: int, border: re.Pattern[str]) -> list[tuple[int, int]]:
    """text[start:end] cut behind every border."""
    ends = (_border_end(text, start, match) for match in border.finditer(text, start, end))
    cuts = [at for at in ends if start < at < end]
    return list(pairwise([start, *cuts, end])) if start < end else []


def _border_end(text: str, start: int, match: re.Match[str]) -> int:
    """Its end; in Chinese before a straight quotation mark that opens the next sentence."""
    straight = match.groupdict().get("straight")
    opens = bool(straight) and text.count('"', start, match.start("straight")) % 2 == 0
    return match.start("straight") if opens else match.end()


def _count(text: str, start: int, end: int) -> int:
    return sum(1 for _ in _WORD.finditer(text, start, end))
