"""Marks of any contents list to the parts of a book: which are chapters, which stand above them, which are no
part of the story.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.documents.structure.blocks import ContentsEntry
from core.documents.structure.body import Body
from core.documents.structure.chapters import join_title
from core.documents.structure.headings import Heading, read_heading, title_key
from core.documents.structure.matter import kind_by_title, opens_the_book

_DIVIDER_WORDS = 60  # a part's title page holds no more than this
_LEAST_WORDS = 3  # between two entries that are not two names of one place
_PHANTOM_WORDS = 10  # a chapter with fewer is a line of a contents list
_SHORT_BOOK_WORDS = 3000
_LONG_PARTS = 12_000  # words; chapters that long have sections, parts have chapters
_SHORT_SECTIONS = 500
_EVEN_WORDS = 2500
_WHOLE_BOOK = 0.9  # an entry over so much of the text is the book's own title


@dataclass(frozen=True, slots=True)
class SectionStart:
    """A section to be: from block `start` to the next one's start."""

    title: str
    level: int
    start: int
    kind: str

    @property
    def mark(self) -> ContentsEntry:
        """Where it begins and what it is called."""
        return ContentsEntry(self.title, self.level, self.start)


def to_parts(marks: Sequence[ContentsEntry], body: Body) -> list[SectionStart]:
    """The parts that an account of the book names, in order and without double entries."""
    settled = _settled(marks, body)
    return _classified(_chosen_levels(settled, body), body)


def even_parts(body: Body, title: str) -> list[SectionStart]:
    """Parts of about equal length that end with a paragraph; a short text stays whole."""
    count = max(1, round(body.total / _EVEN_WORDS)) if body.total > 1.5 * _EVEN_WORDS else 1
    if count == 1:
        return [SectionStart(title, 1, body.first, "chapter")]
    parts, seen = [SectionStart("Section 1", 1, body.first, "chapter")], 0
    for index in range(body.first, body.last):
        if seen >= len(parts) * body.total / count:
            parts.append(SectionStart(f"Section {len(parts) + 1}", 1, index, "chapter"))
        seen += body.words(index, index + 1)
    return parts


# ---- double entries ----


def _settled(marks: Sequence[ContentsEntry], body: Body) -> list[ContentsEntry]:
    """Marks in reading order inside the book, a label and its name joined, double entries dropped."""
    inside = sorted(
        (mark for mark in marks if body.first <= mark.block < body.last and mark.title),
        key=lambda mark: mark.block,
    )
    result: list[ContentsEntry] = []
    for mark in inside:
        previous = result[-1] if result else None
        if previous and not body.has_text(previous, mark.block, _LEAST_WORDS):
            joined = _joined(previous, mark)
            if joined:
                result[-1] = joined
                continue
            if previous.block == mark.block and mark.level == previous.level:
                # one of them has nothing of its own to point at: a picture, as a cover or a plate
                result[-1] = mark if kind_by_title(previous.title) else previous
                continue
            if previous.block == mark.block and mark.level < previous.level:
                continue
        result.append(mark)
    return result


def _joined(previous: ContentsEntry, mark: ContentsEntry) -> ContentsEntry | None:
    """One mark for two entries with nothing between them, when they name the same place."""
    key, following = title_key(previous.title), title_key(mark.title)
    if following == key or (len(following) > 3 and following in key):
        return previous
    heading = read_heading(previous.title)
    own = read_heading(mark.title)
    if (
        heading
        and heading.is_bare
        and mark.level == previous.level
        and not (own and own.word not in ("", "special"))
    ):
        return replace(previous, title=join_title(previous.title, mark.title))
    return None


# ---- levels ----


def _chosen_levels(marks: list[ContentsEntry], body: Body) -> list[SectionStart]:
    """Which entries are chapters and which are the parts above them; finer entries are folded into their
    chapter.
    """
    children = _children(marks)
    divides = _dividers(marks, children, body)
    result: list[SectionStart] = []
    hidden: set[int] = set()
    for index, mark in enumerate(marks):
        if index in hidden:
            continue
        kind = kind_by_title(mark.title)
        below = _descendants(children, index)
        if below and kind:
            result.append(SectionStart(mark.title, min(mark.level, 3), mark.block, kind))
            result += [
                SectionStart(marks[i].title, min(marks[i].level, 3), marks[i].block, kind)
                for i in below
                if i not in hidden
            ]
            hidden.update(below)
            continue
        if below and not divides[index]:
            hidden.update(below)
        plain = "part" if divides[index] else "chapter"
        result.append(SectionStart(mark.title, min(mark.level, 3), mark.block, kind or plain))
    return _without_empty(result, body)


def _without_empty(parts: list[SectionStart], body: Body) -> list[SectionStart]:
    """Chapters without a text are titles above the next one; a part with an introduction of its own is read.
    Where two begin at one place the later one stays.
    """
    result: list[SectionStart] = []
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        end = following.start if following else body.last
        heading = read_heading(part.title)
        phantom = _PHANTOM_WORDS if body.total > _SHORT_BOOK_WORDS else _LEAST_WORDS
        least = _DIVIDER_WORDS if heading and heading.is_part else phantom
        if part.kind == "chapter" and following and not body.has_text(part.mark, end, least):
            part = replace(part, kind="part")
        elif part.kind == "part" and body.has_text(part.mark, end, _DIVIDER_WORDS):
            part = replace(part, kind="chapter")
        if result and result[-1].start == part.start:
            result.pop()
        result.append(part)
    return result


def _dividers(marks: list[ContentsEntry], children: list[list[int]], body: Body) -> list[bool]:
    """For each mark whether it is a part that only divides. Marks of a level that do not say so themselves
    follow the others.
    """
    opinions = [_opinion(marks, children, index, body) for index in range(len(marks))]
    votes: dict[int, int] = {}
    for mark, below, opinion in zip(marks, children, opinions, strict=True):
        if below and not kind_by_title(mark.title):
            votes[mark.level] = votes.get(mark.level, 0) + opinion
    return [
        bool(below) and (opinion if abs(opinion) >= 3 else votes.get(mark.level, 0)) > 0
        for mark, below, opinion in zip(marks, children, opinions, strict=True)
    ]


def _opinion(marks: list[ContentsEntry], children: list[list[int]], index: int, body: Body) -> int:
    """How much an entry looks like a part above chapters (positive) or a chapter with sections (negative); 3
    and more is certain.
    """
    below = children[index]
    if not below:
        return 0
    own = read_heading(marks[index].title)
    end = next((i for i in range(index + 1, len(marks)) if marks[i].level <= marks[index].level), None)
    words = body.words(marks[index].block, marks[end].block if end is not None else body.last)
    if words > _WHOLE_BOOK * body.total and len(below) >= 3:
        return 4
    headings = [heading for child in below if (heading := read_heading(marks[child].title))]
    if own and own.is_part:
        return 4
    if _is_labelled(own):
        return -4
    if sum(_is_labelled(heading) for heading in headings) * 2 > len(below):
        return 4
    if own and own.word == "" and own.number and _numbered_below(own.number, marks, below) * 2 > len(below):
        return -4
    empty = not body.has_text(marks[index], marks[index + 1].block, _DIVIDER_WORDS)
    opinion = 1 if empty else -1
    opinion += _counts_on(marks, children, index) * 3
    opinion += any(children[child] for child in below)
    opinion += words > _LONG_PARTS
    opinion -= words < _SHORT_SECTIONS * len(below)
    return opinion - 2 * (len(below) < 2)


def _is_labelled(heading: Heading | None) -> bool:
    """ "Chapter 3" and its kind."""
    return heading is not None and heading.word not in ("", "special") and not heading.is_part


def _numbered_below(number: int, marks: list[ContentsEntry], below: list[int]) -> int:
    """How many of the children are called "3.1 ..." below 3."""
    return sum(marks[child].title.startswith(f"{number}.") for child in below)


def _counts_on(marks: list[ContentsEntry], children: list[list[int]], index: int) -> bool:
    """The children's numbers go on where those of the part before ended: 1 to 4, then 5 to 8."""
    level = marks[index].level
    before = next((i for i in range(index - 1, -1, -1) if marks[i].level == level and children[i]), None)
    if before is None:
        return False
    last, first = (read_heading(marks[i].title) for i in (children[before][-1], children[index][0]))
    return bool(last and first and last.number and first.number == last.number + 1)


def _children(marks: list[ContentsEntry]) -> list[list[int]]:
    """The direct children of every mark, by level."""
    children: list[list[int]] = [[] for _mark in marks]
    open_marks: list[int] = []
    for index, mark in enumerate(marks):
        while open_marks and marks[open_marks[-1]].level >= mark.level:
            open_marks.pop()
        if open_marks:
            children[open_marks[-1]].append(index)
        open_marks.append(index)
    return children


def _descendants(children: list[list[int]], index: int) -> list[int]:
    found, waiting = [], list(children[index])
    while waiting:
        current = waiting.pop(0)
        found.append(current)
        waiting = children[current] + waiting
    return found


# ---- front matter ----


def _classified(parts: list[SectionStart], body: Body) -> list[SectionStart]:
    """In a book that counts its chapters, what stands before the first one is front matter, unless it opens
    the book.
    """
    headings = [read_heading(part.title) for part in parts]
    counted = [
        index
        for index, heading in enumerate(headings)
        if heading
        and heading.number
        and heading.word != "special"
        and parts[index].kind in ("chapter", "part")
    ]
    if len(counted) < 3 or all(headings[index].number != 1 for index in counted[:2]):
        return parts
    first = counted[0]
    if body.words(parts[0].start, parts[first].start) > 0.1 * body.words(parts[0].start, body.last):
        return parts
    return [
        replace(part, kind="front")
        if index < first and part.kind != "back" and not opens_the_book(part.title)
        else part
        for index, part in enumerate(parts)
    ]
