"""Decides how a book is read: whole when it fits, else in parts along chapter borders. Names what is read and
what is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from core.config import FITS
from core.documents.document import Document, Section
from core.errors import UserError

# a chapter up to so many times the part length is read in one go
_STRETCH = 1.3


class Counter(Protocol):
    """Anything that can count tokens: the real tokenizer, or an estimate."""

    def count(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ReadingStyle:
    """How one model reads best; part of its catalogue entry, chosen by measurement. Lengths in tokens."""

    part_tokens: int = 6000
    # longest text read in one go by default; None: whatever the context holds
    whole_tokens: int | None = None
    note_tokens: int = 160  # longest summary of a part
    system: str = "You read books and answer from them."
    # so many tokens of part summaries are told in one go; more by stretches of the book
    join_tokens: int = 8192
    by_stretches: bool = False  # by stretches also where all of them could be told in one go
    # a part's summary that keeps less to its text (core.text.grounding) is tried again
    grounded: float = 0.0
    # tried in turn
    part_prompts: tuple[str, ...] = ("Write a short summary of this passage in your own words.",)
    join_prompts: tuple[str, ...] = (
        "Write a short summary of the whole book from these notes, in your own words.",
    )
    whole_prompt: str = "Write a short summary of this book in your own words."
    answer_prompt: str = "{question}"
    # follows a question about text that is before the model; "" where it cannot quote
    quote_prompt: str = ""
    temperature: float = 0.3
    top_p: float = 0.9
    repetition_penalty: float = 1.0

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> ReadingStyle:
        """The style a catalogue entry describes; keys that are missing keep their defaults."""
        known = {field.name for field in fields(cls)}
        unknown = set(record or {}) - known
        assert not unknown, f"unknown keys in the catalogue's reading record: {sorted(unknown)}"
        return cls(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in (record or {}).items()
            }
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of the book that is read in one go: `document.text[start:end]`."""

    label: str
    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """What is read, in which pieces, and what is not."""

    mode: str  # "whole" | "sections"
    parts: tuple[Part, ...]
    tokens: int  # of everything that is read
    left_out: tuple[str, ...] = ()  # in the reader's words
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch that is not cut further: a short chapter, or one piece of a long one."""

    chapter: int  # index into the book's chapters
    start: int
    end: int
    tokens: int
    piece: int = 0
    pieces: int = 1


def book_chapters(document: Document) -> tuple[Section, ...]:
    """The chapters a reader would count, in order; a heading that opens a part of the book belongs to the
    chapter after it.

    A document without chapters is taken as it is.
    """
    chapters = document.chapters or tuple(
        s for s in document.sections if document.text[s.start : s.end].strip()
    )
    openings = {section.end: section.start for section in document.sections if section.kind == "part"}
    return tuple(replace(section, start=openings.get(section.start, section.start)) for section in chapters)


def plan_reading(
    document: Document,
    counter: Counter,
    *,
    context_tokens: int,
    style: ReadingStyle,
    fit: str = "auto",
    chapters: tuple[int, int] | None = None,
    reserve: int = 768,
) -> ReadingPlan:
    """How to read `document` (or its chapters first..last, 1-based) with `reserve` tokens kept free for
    question and answer.

    Raises UserError when there is nothing to read, the chapters do not exist, or `fit` is "whole" and it does
    not fit.
    """
    assert fit in FITS, fit
    book = book_chapters(document)
    names = _names(document, book)
    chosen = _chosen(book, chapters)
    sections = book[chosen.start : chosen.stop]
    if not any(document.text[s.start : s.end].strip() for s in sections):
        raise UserError(
            f"There is no text to read in {document.title or 'this file'}. Choose other chapters or another "
            "file."
        )
    left_out = _left_out(document, book, names, chosen)
    room = context_tokens - reserve
    spans = _spans(sections)
    tokens = sum(counter.count(document.text[start:end].strip()) for start, end in spans)
    longest_whole = room if fit == "whole" else min(room, style.whole_tokens or room)
    if fit == "whole" and (tokens > room or len(spans) > 1):
        raise UserError(_does_not_fit(tokens, room, reserve, context_tokens, len(spans)))
    if fit != "sections" and tokens <= longest_whole and len(spans) == 1:
        label = "the whole book" if chapters is None else _label(names, chosen)
        return ReadingPlan("whole", (Part(label, *spans[0], tokens),), tokens, left_out)
    parts = _parts(document, counter, book, names, chosen, limit=min(style.part_tokens, room))
    why = (
        (
            f"The text has {tokens:,} tokens; this model reads up to {min(longest_whole, room):,} in one go, "
            f"so it is read in {len(parts)} parts."
        )
        if fit == "auto" and len(parts) > 1
        else ""
    )
    return ReadingPlan("sections", parts, tokens, left_out, (why,) if why else ())


def place_name(document: Document, parts: Sequence[Part]) -> str:
    """A name for consecutive parts of a book by the chapters they lie in."""
    book = book_chapters(document)
    inside = [
        i for i, section in enumerate(book) if section.start < parts[-1].end and section.end > parts[0].start
    ]
    return _label(_names(document, book), inside) if inside else parts[0].label


def _chosen(book: Sequence[Section], chapters: tuple[int, int] | None) -> range:
    if chapters is None:
        return range(len(book))
    first, last = chapters
    if not 1 <= first <= last <= len(book):
        raise UserError(
            f"Chapters {first}-{last} were asked for, but this book has {len(book)}. Choose between 1 and "
            f"{len(book)}; "
            "the extract command lists them."
        )
    return range(first - 1, last)


def _left_out(
    document: Document, book: Sequence[Section], names: Sequence[_Name], chosen: range
) -> tuple[str, ...]:
    """What is not read, in the order of the book."""

    def around(section: Section) -> str:
        return (
            f"{section.title or 'untitled pages'} "
            f"({'before' if section.start < book[0].start else 'after'} the book itself)"
        )

    outside = [
        section
        for section in document.sections
        if section.kind in ("front", "back")
        and document.chapters
        and document.text[section.start : section.end].strip()
    ]
    before, after = range(chosen.start), range(chosen.stop, len(book))
    return (
        *(around(s) for s in outside if s.kind == "front"),
        *(_label(names, r) for r in (before, after) if r),
        *(around(s) for s in outside if s.kind == "back"),
    )


def _spans(chosen: Sequence[Section]) -> list[tuple[int, int]]:
    """The chosen sections joined where they touch, as character ranges."""
    spans: list[tuple[int, int]] = []
    for section in chosen:
        if spans and spans[-1][1] == section.start:
            spans[-1] = (spans[-1][0], section.end)
        else:
            spans.append((section.start, section.end))
    return spans


def _does_not_fit(tokens: int, room: int, reserve: int, context_tokens: int, num_spans: int) -> str:
    if tokens <= room and num_spans > 1:
        return (
            "These chapters are not next to each other in the file, so they cannot be read in one go. "
            "Use --fit sections, or choose chapters that follow each other."
        )
    return (
        f"The text has {tokens:,} tokens; {room:,} fit at once (the context of {context_tokens:,} less "
        f"{reserve:,} for the "
        "question and the answer). Use --fit sections to read it in parts, or --chapters to read less of it."
    )


def _parts(
    document: Document,
    counter: Counter,
    book: Sequence[Section],
    names: Sequence[_Name],
    chosen: range,
    *,
    limit: int,
) -> tuple[Part, ...]:
    units = [unit for i in chosen for unit in _units(document.text, counter, i, book[i], limit)]
    groups: list[list[_Unit]] = []
    for unit in units:
        previous = groups[-1] if groups else None
        if previous and _joins(previous[-1], unit) and sum(u.tokens for u in previous) + unit.tokens <= limit:
            previous.append(unit)
        else:
            groups.append([unit])
    return tuple(
        Part(_group_label(names, group), group[0].start, group[-1].end, sum(u.tokens for u in group))
        for group in groups
    )


def _joins(left: _Unit, right: _Unit) -> bool:
    """Whole chapters that touch are merged with each other; a piece of a long chapter stands alone."""
    return left.end == right.start and left.pieces == right.pieces == 1


def _units(text: str, counter: Counter, index: int, section: Section, limit: int) -> list[_Unit]:
    tokens = counter.count(text[section.start : section.end])
    if not text[section.start : section.end].strip():
        return []
    if tokens <= limit * _STRETCH:
        return [_Unit(index, section.start, section.end, tokens)]
    pieces = -(-tokens // limit)
    borders = _borders(text, counter, section.start, section.end, pieces=pieces, limit=limit)
    return [
        _Unit(index, start, end, counter.count(text[start:end]), i, len(borders) - 1)
        for i, (start, end) in enumerate(zip(borders, borders[1:], strict=False))
    ]


def _borders(text: str, counter: Counter, start: int, end: int, *, pieces: int, limit: int) -> list[int]:
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


def _grains(text: str, counter: Counter, start: int, end: int, limit: int) -> list[tuple[int, int]]:
    """The smallest stretches a cut may separate: paragraphs; sentences, then words, of a paragraph that is
    itself too long.
    """
    grains = [(start, end)]
    for border in (r"\n\s*\n\s*", r"\n", r"(?<=[.!?…。])\s+", r"\s+", ""):
        grains = [small for grain in grains for small in _cut(text, counter, *grain, limit // 4, border)]
    return grains


def _cut(text: str, counter: Counter, start: int, end: int, small: int, border: str) -> list[tuple[int, int]]:
    if end - start <= small or counter.count(text[start:end]) <= small:
        return [(start, end)]
    if border:
        cuts = [match.end() for match in re.compile(border).finditer(text, start, end)]
    else:
        cuts = list(range(start + small, end, small))
    offsets = [start, *[cut for cut in cuts if start < cut < end], end]
    return list(zip(offsets, offsets[1:], strict=False))


_NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen "
    "nineteen twenty"
).replace(" ", "|")
_NUMBERED = re.compile(
    rf"^(?:(?P<word>chapter|chap\.|kapitel|chapitre|cap[ií]tulo)\s+)?(?P<number>(?-i:[IVXLC]+)|\d+|"
    rf"(?:{_NUMBERS})(?(word)(?=\W|$)|(?=[.:]|$)))"
    r"(?:[.:)\s\u2013\u2014-]+(?P<title>.*))?$",
    re.IGNORECASE,
)
_LABEL_CHARS = 72


@dataclass(frozen=True, slots=True)
class _Name:
    """A chapter's title and, where the book has several parts, the part it stands in."""

    title: str
    part: str = ""


def _names(document: Document, book: Sequence[Section]) -> list[_Name]:
    parts = [section for section in document.sections if section.kind == "part"]
    names = []
    for i, section in enumerate(book):
        above = [part for part in parts if part.start <= section.start]
        title = _calm(section.title) or f"Section {i + 1}"
        names.append(_Name(title, _part_name(above[-1].title) if len(parts) > 1 and above else ""))
    return names


def _part_name(title: str) -> str:
    """ "BOOK ONE. THE COMING OF THE MARTIANS" is Book One, "I In Norway" is In Norway."""
    first = _calm(re.split(r"[.:]\s", title)[0])
    numbered = _NUMBERED.match(first)
    return _short(numbered["title"] if numbered and numbered["title"] and not numbered["word"] else first)


def _calm(title: str) -> str:
    """A title on one line, without its full stop, and as one would write it where it is printed in
    capitals.
    """
    title = re.sub(r"(?<![.\s].)(?<!\.\.)\.$", "", " ".join(title.split()))
    if not title.isupper() or len(title) <= 4:
        return title
    small = {"a", "an", "and", "at", "by", "for", "in", "of", "on", "or", "the", "to", "with"}
    words = [word.lower() if word.lower() in small else word.capitalize() for word in title.split(" ")]
    text = " ".join(words)
    return re.sub(r"(^|[.:\u2014-]\s*|[\"\u201c(])([a-z])", lambda match: match[1] + match[2].upper(), text)


def _group_label(names: Sequence[_Name], group: Sequence[_Unit]) -> str:
    if group[0].pieces > 1:
        return f"{_label(names, [group[0].chapter])}, part {group[0].piece + 1} of {group[0].pieces}"
    return _label(names, [unit.chapter for unit in group])


def _label(names: Sequence[_Name], chapters: Sequence[int]) -> str:
    """A name for consecutive chapters, such as "Chapters III\u2013V: The Traveller Returns to In the Golden
    Age".
    """
    first, last = names[chapters[0]], names[chapters[-1]]
    before = f"{first.part}, " if first.part else ""
    numbered = [_NUMBERED.match(name.title) for name in (first, last)]
    if not all(numbered) or first.part != last.part:
        ends = [_short(name.title) for name in (first, last)]
        return before + (
            ends[0]
            if first == last
            else f"{ends[0]} to {last.part + ', ' if first.part != last.part else ''}{ends[1]}"
        )
    numbers, titles = [match["number"] for match in numbered], [match["title"] or "" for match in numbered]
    word = "chapter" if before else "Chapter"
    head = before + (f"{word} {numbers[0]}" if first == last else f"{word}s {numbers[0]}\u2013{numbers[1]}")
    tail = " to ".join(dict.fromkeys(_short(title) for title in titles if title))
    return f"{head}: {tail}" if tail else head


def _short(name: str) -> str:
    return name if len(name) <= _LABEL_CHARS else name[: _LABEL_CHARS - 1].rsplit(" ", 1)[0] + "\u2026"
