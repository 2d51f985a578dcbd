"""Binds a manuscript into a Document: one text, sections that cover it, page starts, front and back matter
marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from core.documents.blocks import Block, Manuscript, Mark
from core.documents.chapters import find_marks, join_title, title_key
from core.documents.document import READER_VERSION, Document, Section
from core.documents.headings import read_heading
from core.documents.legible import is_legible
from core.documents.matter import gutenberg_cuts, gutenberg_fields, kind_by_title, opens_the_book
from core.text.words import translated as _

_GAP = "\n\n"  # between blocks
_EVEN_SECTION_WORDS = 2500
_SAMPLE_CHARS = 200_000
_DIVIDER_WORDS = 60  # a part's title page holds no more than this


@dataclass(frozen=True, slots=True)
class _Part:
    """A section to be: from block `start` to the next one's start."""

    title: str
    level: int
    start: int
    kind: str


def bind(manuscript: Manuscript, *, sha256: str, fallback_title: str) -> Document:
    """The finished Document. `fallback_title` is used when neither the file nor its text names one."""
    blocks = [block for block in manuscript.blocks if block.text]
    starts = list(accumulate((len(block.text) + len(_GAP) for block in blocks), initial=0))
    text = _GAP.join(block.text for block in blocks)
    fields = gutenberg_fields(blocks)
    # "The Project Gutenberg eBook of ..."
    own = "" if "project gutenberg" in manuscript.title.lower() else manuscript.title
    title = own or fields.get("title", "") or manuscript.title or fallback_title
    parts = _parts(manuscript, blocks, title)
    ends = [part.start for part in parts[1:]] + [len(blocks)]
    sections = tuple(
        Section(part.title, starts[part.start], min(starts[end], len(text)), part.level, part.kind)
        for part, end in zip(parts, ends, strict=True)
    )
    author = manuscript.author or fields.get("author", "")
    return Document(
        title=title,
        author=author,
        format=manuscript.format,
        text=text,
        sections=sections,
        page_starts=_page_starts(manuscript, blocks, starts, len(text)),
        page_labels=manuscript.page_labels,
        warnings=manuscript.warnings + _doubts(text),
        sha256=sha256,
        reader_version=READER_VERSION,
        pictures=manuscript.pictures,
    )


def _doubts(text: str) -> tuple[str, ...]:
    """What to tell of a text that is none."""
    if is_legible(text[:_SAMPLE_CHARS]):
        return ()
    return (
        _("The letters of this text make no words: its encoding is unknown, or it is no text. ")
        + _("Save the book anew from the program it comes from, or take another format of it."),
    )


def _page_starts(
    manuscript: Manuscript, blocks: Sequence[Block], starts: Sequence[int], length: int
) -> tuple[int, ...]:
    """One offset per page; a page without text begins where the next one with text does."""
    if not manuscript.pages:
        return ()
    known: dict[int, int] = {}
    for index, block in enumerate(blocks):
        for offset, page in block.breaks:
            known.setdefault(page, starts[index] + offset)
    result = [length] * manuscript.pages
    following = length
    for page in range(manuscript.pages - 1, -1, -1):
        following = min(following, known.get(page, following))
        result[page] = following
    result[0] = 0
    return tuple(result)


def _parts(manuscript: Manuscript, blocks: Sequence[Block], title: str) -> list[_Part]:
    if not blocks:
        return [_Part(title, 1, 0, "chapter")]
    first, last = gutenberg_cuts(blocks)
    marks = _settled(manuscript.marks, blocks, first, last)
    if len(marks) < 2:
        found = _settled(find_marks(blocks, first, last), blocks, first, last)
        marks = found if len(found) > len(marks) else marks
    parts = _classified(_chosen_levels(marks, blocks, last), blocks, last)
    if not any(part.kind == "chapter" for part in parts):
        parts = _even_parts(blocks, first, last, title)
    if not parts or parts[0].start > first:
        parts.insert(0, _opening(blocks, first, parts[0].start if parts else last, title))
    if first:
        parts.insert(0, _Part("Project Gutenberg header", 1, 0, "front"))
    if last < len(blocks):
        parts.append(_Part("Project Gutenberg licence", 1, last, "back"))
    return parts


def _opening(blocks: Sequence[Block], start: int, end: int, title: str) -> _Part:
    """What stands before the first mark: a title page, or a large part of the book."""
    words, total = _words(blocks, start, end), _words(blocks, 0, len(blocks))
    large = words > 300 and words > 0.15 * total
    return _Part(title if large else "Front matter", 1, start, "chapter" if large else "front")


def _words(blocks: Sequence[Block], start: int, end: int) -> int:
    return sum(len(block.text.split()) for block in blocks[start:end])


# ---- marks ----


def _settled(marks: Sequence[Mark], blocks: Sequence[Block], first: int, last: int) -> list[Mark]:
    """Marks in reading order inside the book, a label and its name joined, double entries dropped."""
    inside = sorted(
        (mark for mark in marks if first <= mark.block < last and mark.title), key=lambda mark: mark.block
    )
    result: list[Mark] = []
    for mark in inside:
        previous = result[-1] if result else None
        if previous and not _has_body(blocks, previous, mark.block, 3):
            joined = _joined(previous, mark)
            if joined:
                result[-1] = joined
                continue
            if previous.block == mark.block and mark.level <= previous.level:
                continue
        result.append(mark)
    return result


def _joined(previous: Mark, mark: Mark) -> Mark | None:
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


def _has_body(blocks: Sequence[Block], mark: Mark, end: int, words: int) -> bool:
    """More than `words` words of running text between the mark and block `end`, its own heading not
    counted.
    """
    key = title_key(mark.title)
    count = 0
    for index in range(mark.block, end):
        block = blocks[index]
        if (block.heading and index < mark.block + 4) or (
            len(block.text) < 200 and title_key(block.text) in key
        ):
            continue
        count += len(block.text.split())
        if count > words:
            return True
    return False


def _chosen_levels(marks: list[Mark], blocks: Sequence[Block], last: int) -> list[_Part]:
    """Which entries are chapters and which are the parts above them; finer entries are folded into their
    chapter.
    """
    children = _children(marks)
    ends = [*(mark.block for mark in marks[1:]), last][: len(marks)]
    empty = [not _has_body(blocks, mark, end, _DIVIDER_WORDS) for mark, end in zip(marks, ends, strict=True)]
    parents = [index for index in range(len(marks)) if children[index]]
    mostly_empty = sum(empty[index] for index in parents) * 2 >= len(parents)
    result: list[_Part] = []
    hidden: set[int] = set()
    for index, mark in enumerate(marks):
        if index in hidden:
            continue
        kind = kind_by_title(mark.title)
        below = [marks[child] for child in children[index]]
        divides = bool(below) and mostly_empty and empty[index] and not _is_chapter(mark, below)
        if children[index] and not divides:
            hidden.update(_descendants(children, index))
        result.append(
            _Part(mark.title, min(mark.level, 3), mark.block, kind or ("part" if divides else "chapter"))
        )
        if kind and children[index]:
            result[-1:] = [
                result[-1],
                *(
                    _Part(marks[i].title, min(marks[i].level, 3), marks[i].block, kind)
                    for i in _descendants(children, index)
                    if i not in hidden
                ),
            ]
            hidden.update(_descendants(children, index))
    for index, (part, following) in enumerate(zip(result, result[1:], strict=False)):
        if part.kind == "chapter" and not _has_body(
            blocks, Mark(part.title, part.level, part.start), following.start, 3
        ):
            result[index] = replace(part, kind="part")
        elif part.kind == "part" and _has_body(
            blocks, Mark(part.title, part.level, part.start), following.start, _DIVIDER_WORDS
        ):
            # a part with an introduction of its own is read
            result[index] = replace(part, kind="chapter")
    return [part for index, part in enumerate(result) if index == 0 or part.start > result[index - 1].start]


def _children(marks: list[Mark]) -> list[list[int]]:
    """The direct children of every mark, by level."""
    children: list[list[int]] = [[] for _ in marks]
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


def _is_chapter(mark: Mark, children: list[Mark]) -> bool:
    """A parent that is a chapter itself: "Chapter 3" above "3.1 ...", or with a single child."""
    heading = read_heading(mark.title)
    if heading and heading.word not in ("", "special") and not heading.is_part:
        return True
    if len(children) < 2:
        return not (heading and heading.is_part)
    number = heading.number if heading and heading.word == "" else None
    return number is not None and sum(child.title.startswith(f"{number}.") for child in children) * 2 > len(
        children
    )


def _classified(parts: list[_Part], blocks: Sequence[Block], last: int) -> list[_Part]:
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
    before = _words(blocks, parts[0].start, parts[first].start)
    if before > 0.1 * _words(blocks, parts[0].start, last):
        return parts
    return [
        replace(part, kind="front")
        if index < first and part.kind != "back" and not opens_the_book(part.title)
        else part
        for index, part in enumerate(parts)
    ]


def _even_parts(blocks: Sequence[Block], first: int, last: int, title: str) -> list[_Part]:
    """Sections of about equal length that end with a paragraph; a short text stays whole."""
    total = _words(blocks, first, last)
    count = max(1, round(total / _EVEN_SECTION_WORDS)) if total > 1.5 * _EVEN_SECTION_WORDS else 1
    if count == 1:
        return [_Part(title, 1, first, "chapter")]
    parts, seen = [_Part("Section 1", 1, first, "chapter")], 0
    for index in range(first, last):
        if seen >= len(parts) * total / count:
            parts.append(_Part(f"Section {len(parts) + 1}", 1, index, "chapter"))
        seen += len(blocks[index].text.split())
    return parts
