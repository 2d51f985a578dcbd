"""Decides how a book is read: whole when it fits, else in parts along chapter borders. Names what is read and what is not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from core.documents.document import Document, Section
from core.errors import UserError

FITS = ("auto", "whole", "sections")
_STRETCH = 1.3                                 # a chapter up to so many times the part length is read in one go


class Counter(Protocol):
    """Anything that can count tokens: the real tokenizer, or an estimate."""

    def count(self, text: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ReadingStyle:
    """How one model reads best; part of its catalogue entry, chosen by measurement. Lengths in tokens."""

    part_tokens: int = 6000
    whole_tokens: int | None = None            # longest text read in one go by default; None: whatever the context holds
    note_tokens: int = 160                     # longest summary of a part
    summary_tokens: int = 512                  # longest summary of a book
    system: str = "You read books and answer from them."
    part_prompt: str = "Write a short summary of this passage in your own words."
    join_prompt: str = "Write a short summary of the whole book from these notes, in your own words."
    whole_prompt: str = "Write a short summary of this book in your own words."
    answer_prompt: str = "{question}"
    temperature: float = 0.3
    top_p: float = 0.9
    repetition_penalty: float = 1.0

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> ReadingStyle:
        """The style a catalogue entry describes; keys that are missing keep their defaults."""
        known = {field.name for field in fields(cls)}
        unknown = set(record or {}) - known
        assert not unknown, f"unknown keys in the catalogue's reading record: {sorted(unknown)}"
        return cls(**dict(record or {}))


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

    mode: str                                  # "whole" | "sections"
    parts: tuple[Part, ...]
    tokens: int                                # of everything that is read
    left_out: tuple[str, ...] = ()             # in the reader's words
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch that is not cut further: a short chapter, or one piece of a long one."""

    chapter: int                               # index into the book's chapters
    start: int
    end: int
    tokens: int
    piece: int = 0
    pieces: int = 1


def book_chapters(document: Document) -> tuple[Section, ...]:
    """The chapters a reader would count, in order.

    A section that only opens the next level ("Book One" above its chapters) counts as part of the chapter after it.
    A document without chapters counts as one.
    """
    chapters = document.chapters or tuple(s for s in document.sections if document.text[s.start:s.end].strip())
    merged: list[Section] = []
    opening: Section | None = None
    for section, following in zip(chapters, [*chapters[1:], None], strict=True):
        start = opening.start if opening and opening.end == section.start else section.start
        if following and following.level > section.level and following.start == section.end and _is_heading(document, section):
            opening = opening if opening and opening.end == section.start else section
            continue
        merged.append(Section(section.title, start, section.end, section.level, section.kind))
        opening = None
    return tuple(merged)


def plan_reading(
    document: Document, counter: Counter, *, context_tokens: int, style: ReadingStyle,
    fit: str = "auto", chapters: tuple[int, int] | None = None, reserve: int = 768,
) -> ReadingPlan:
    """How to read `document` (or its chapters first..last, 1-based) with `reserve` tokens kept free for question and answer.

    Raises UserError when there is nothing to read, the chapters do not exist, or `fit` is "whole" and it does not fit.
    """
    assert fit in FITS, fit
    book = book_chapters(document)
    chosen = _chosen(book, chapters)
    if not any(document.text[s.start:s.end].strip() for s in chosen):
        raise UserError(f"There is no text to read in {document.title or 'this file'}. Choose other chapters or another file.")
    left_out = _left_out(document, book, chapters)
    room = context_tokens - reserve
    spans = _spans(chosen)
    tokens = sum(counter.count(document.text[start:end].strip()) for start, end in spans)
    longest_whole = room if fit == "whole" else min(room, style.whole_tokens or room)
    if fit == "whole" and (tokens > room or len(spans) > 1):
        raise UserError(_does_not_fit(tokens, room, reserve, context_tokens, len(spans)))
    if fit != "sections" and tokens <= longest_whole and len(spans) == 1:
        label = "the whole book" if chapters is None else _label(book, range(chapters[0] - 1, chapters[0] - 1 + len(chosen)))
        return ReadingPlan("whole", (Part(label, *spans[0], tokens),), tokens, left_out)
    parts = _parts(document, counter, book, chosen, limit=min(style.part_tokens, room))
    why = (f"The text has {tokens:,} tokens; this model reads {min(longest_whole, room):,} at once at its best, "
           f"so it is read in {len(parts)} parts.") if len(parts) > 1 else ""
    return ReadingPlan("sections", parts, tokens, left_out, (why,) if why else ())


def _is_heading(document: Document, section: Section) -> bool:
    return len(document.text[section.start:section.end].split()) <= 40


def _chosen(book: Sequence[Section], chapters: tuple[int, int] | None) -> Sequence[Section]:
    if chapters is None:
        return book
    first, last = chapters
    if not 1 <= first <= last <= len(book):
        raise UserError(
            f"Chapters {first}-{last} were asked for, but this book has {len(book)}. Choose between 1 and {len(book)}; "
            "the extract command lists them."
        )
    return book[first - 1:last]


def _left_out(document: Document, book: Sequence[Section], chapters: tuple[int, int] | None) -> tuple[str, ...]:
    kept = {(section.start, section.end) for section in document.chapters} or {(s.start, s.end) for s in book}
    names = [f"{section.title or 'Untitled'} ({'before' if section.kind == 'front' else 'after'} the book itself)"
             for section in document.sections
             if section.kind != "chapter" and (section.start, section.end) not in kept
             and document.text[section.start:section.end].strip()]
    if chapters and chapters[0] > 1:
        names.append(_label(book, range(chapters[0] - 1)))
    if chapters and chapters[1] < len(book):
        names.append(_label(book, range(chapters[1], len(book))))
    return tuple(names)


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
        return ("These chapters are not next to each other in the file, so they cannot be read in one go. "
                "Use --fit sections, or choose chapters that follow each other.")
    return (f"The text has {tokens:,} tokens; {room:,} fit at once (the context of {context_tokens:,} less {reserve:,} for the "
            "question and the answer). Use --fit sections to read it in parts, or --chapters to read less of it.")


def _parts(
    document: Document, counter: Counter, book: Sequence[Section], chosen: Sequence[Section], *, limit: int,
) -> tuple[Part, ...]:
    first = book.index(chosen[0])
    units = [unit for i, section in enumerate(chosen) for unit in _units(document.text, counter, first + i, section, limit)]
    groups: list[list[_Unit]] = []
    for unit in units:
        previous = groups[-1] if groups else None
        if (previous and previous[-1].end == unit.start and _same_depth(previous[-1], unit)
                and sum(u.tokens for u in previous) + unit.tokens <= limit):
            previous.append(unit)
        else:
            groups.append([unit])
    return tuple(Part(_group_label(book, group), group[0].start, group[-1].end, sum(u.tokens for u in group))
                 for group in groups)


def _same_depth(left: _Unit, right: _Unit) -> bool:
    """Whole chapters are merged with each other; a piece of a long chapter stands alone."""
    return left.pieces == right.pieces == 1


def _units(text: str, counter: Counter, index: int, section: Section, limit: int) -> list[_Unit]:
    tokens = counter.count(text[section.start:section.end])
    if not text[section.start:section.end].strip():
        return []
    if tokens <= limit * _STRETCH:
        return [_Unit(index, section.start, section.end, tokens)]
    pieces = -(-tokens // limit)
    borders = _borders(text, counter, section.start, section.end, target=-(-tokens // pieces), limit=limit)
    return [_Unit(index, start, end, counter.count(text[start:end]), i, len(borders) - 1)
            for i, (start, end) in enumerate(zip(borders, borders[1:], strict=False))]


def _borders(text: str, counter: Counter, start: int, end: int, *, target: int, limit: int) -> list[int]:
    """Offsets that cut text[start:end] at paragraph ends into pieces of about `target` tokens, none far over `limit`."""
    borders, size = [start], 0
    for piece_start, piece_end in _grains(text, counter, start, end, limit):
        tokens = counter.count(text[piece_start:piece_end])
        if size and size + tokens / 2 > target:
            borders.append(piece_start)
            size = 0
        size += tokens
    return [*borders, end]


def _grains(text: str, counter: Counter, start: int, end: int, limit: int) -> list[tuple[int, int]]:
    """The smallest stretches a cut may separate: paragraphs; sentences, then words, of a paragraph that is itself too long."""
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


_NUMBERED = re.compile(
    r"^(?:(?:chapter|chap\.|kapitel|chapitre|cap[ií]tulo)\s+)?([IVXLC]+|\d+)\b[.:)\s\u2013\u2014-]*(.*)$", re.IGNORECASE)
_LABEL_CHARS = 72


def _group_label(book: Sequence[Section], group: Sequence[_Unit]) -> str:
    if group[0].pieces > 1:
        return f"{_label(book, [group[0].chapter])}, part {group[0].piece + 1} of {group[0].pieces}"
    return _label(book, [unit.chapter for unit in group])


def _label(book: Sequence[Section], chapters: Sequence[int]) -> str:
    """A name for consecutive chapters, such as "Chapters III-V: The Traveller Returns to In the Golden Age"."""
    titles = [" ".join(book[i].title.split()) or f"Section {i + 1}" for i in chapters]
    numbered = [_NUMBERED.match(title) for title in titles]
    first, last = titles[0], titles[-1]
    if all(numbered):
        numbers = [match.group(1) for match in numbered]
        first, last = numbered[0].group(2), numbered[-1].group(2)
        head = f"Chapter {numbers[0]}" if len(titles) == 1 else f"Chapters {numbers[0]}\u2013{numbers[-1]}"
    else:
        head = ""
    tail = first if first == last else " to ".join(_short(name) for name in (first, last) if name)
    return ": ".join(text for text in (head, tail) if text)


def _short(name: str) -> str:
    return name if len(name) <= _LABEL_CHARS else name[:_LABEL_CHARS - 1].rsplit(" ", 1)[0] + "\u2026"
