"""A book cut into passages: short stretches on paragraph borders, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.documents.document import Document, Section
from core.documents.structure.headings import read_heading

LEAST_WORDS, MOST_WORDS = 250, 400  # a passage a person reads in two minutes and a small model reads well
_PARAGRAPH = re.compile(r"\n\s*\n\s*")
_NOTE = r"(?:\[(?:\d{1,4}|[*†‡§])\]|[⁰¹²³⁴-⁹]{1,4})"  # the number of a note: "the gate.[4] He went"
# a full stop is none behind a title, an initial or the number of an item, nor where a small letter follows;
# „German“ and »German« quotations close with what opens English and French ones, « French » and what was
# taken apart into words (. ”) behind a space
_SENTENCE = re.compile(
    r"(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bRev)(?<!\bCapt)(?<!\bProf)(?<!\bMessrs)"
    r"(?<!\bCol)(?<!\bGen)(?<!\bLt)(?<!\bSgt)(?<!\bMaj)(?<!\bAdm)(?<!\bHon)(?<!\bGov)"
    r"(?<!\b[A-Z])(?<!^\d)(?<!^\d\d)"
    rf"[.!?…]+(?:[\"'”’“‘»«)\]]|[ \xa0\u202f][»”]|{_NOTE})*\s+(?![a-z])"
    rf"|[。！？]+[」』”’]*(?P<straight>\"?){_NOTE}*\s*",
    re.M,
)
_LABEL_WORDS = 4
_DIRECTION = re.compile(r"\[[^\]]*\]|\([^)]*\)")  # how it is said: "VEY. [Without.] Harrow, ahoy!"
_NOTE_BEHIND = re.compile(rf"(?<=[.!?…。！？\"”’“‘»«)」』]){_NOTE}+\Z")
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
    """The sentences of text[start:end] that have a word, as offsets without the white space around them and
    the number of a note behind them.

    A paragraph's end ends a sentence, too.
    """
    found = []
    for low, high in _cut(text, start, end, _PARAGRAPH):
        for left, right in _sentences(text, low, high):
            stripped = _NOTE_BEHIND.sub("", text[left:right].strip())
            at = left + text[left:right].index(stripped)
            if _WORD.search(stripped):
                found.append((at, at + len(stripped)))
    return found


def unlabelled(text: str, span: tuple[int, int]) -> tuple[int, int]:
    """One of these sentences without who speaks it in a play, or the number that it stands behind."""
    return _cut(text, *span, _SENTENCE)[-1]


def speech_start(text: str, at: int) -> int:
    """Where the speech of a play that `at` stands in begins, with who speaks; `at` where there is none."""
    paragraph = text.rfind("\n\n", 0, at)
    begins = paragraph + 2 if paragraph >= 0 else 0
    first = next(iter(_cut(text, begins, at, _SENTENCE)), (at, at))
    return begins if _is_label(text, *first) and read_heading(text[slice(*first)]) is None else at


def _grains(text: str, section: Section) -> Iterator[_Span]:
    """Paragraphs, and sentences of a paragraph that is longer than a passage."""
    for start, end in _cut(text, section.start, section.end, _PARAGRAPH):
        words = _count(text, start, end)
        if words <= MOST_WORDS:
            yield _Span(start, end, words)
            continue
        for left, right in _sentences(text, start, end):
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


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """A paragraph cut into sentences, each with the label that it stands behind."""
    found: list[tuple[int, int]] = []
    for left, right in _cut(text, start, end, _SENTENCE):
        labelled = bool(found) and _is_label(text, *found[-1])
        found.append((found.pop()[0] if labelled else left, right))
    return found


def _is_label(text: str, start: int, end: int) -> bool:
    """Whether a line begins so with who speaks in a play, or with a chapter's number: "VEY.", "XII."."""
    said = _DIRECTION.sub("", text[start:end]).strip()
    begins = not text[text.rfind("\n", 0, start) + 1 : start].strip()
    return begins and said.isupper() and said.endswith(".") and len(said.split()) <= _LABEL_WORDS


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
