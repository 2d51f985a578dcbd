"""An answer's text as HTML, and its structure: blocks, lists, emphasis, levels, quotations (block.html)."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from app.render.templating import render
from core.text.words import Message

LEVELS = ("draft", "ngram", "retrieval", "target")
LIST_ITEM = re.compile(r"^\s{0,3}(?:[-*•]|(\d{1,3})[.)])\s+(?=\S)")
QUOTED = re.compile(r"^\s{0,3}>[ \t]?")
HEADING = re.compile(r"^#{1,6}\s+")
_BETWEEN_QUOTATIONS, _OMITTED = "” “", " … "
_NEXT_CHARS = 2  # white space between sentences that follow one another
EMPHASIS = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=\S)\*(?![\w*])")


@dataclass(frozen=True, slots=True)
class Citation:
    """A quotation: `text[start:end]` of the answer; `offset` in the book, None when it is not there.

    With `kind` it is a sign behind this sentence: "quoted", "agrees" or "nothing" (see
    core.evidence.support.SentenceMark). `short` is what is to be read of `where`.
    """

    start: int
    end: int
    offset: int | None
    length: int = 0
    where: str = ""  # "Chapter 4, page 31"
    kind: str = ""
    short: str = ""

    @property
    def shown_from(self) -> int:
        """Where in the answer it begins to be seen."""
        return self.end if self.kind else self.start


@dataclass(frozen=True, slots=True)
class StyledRun:
    """Text of one level and one emphasis."""

    text: str
    level: str = ""
    kind: str = ""  # "" | "strong" | "em" | "ins" (told, and not held to the book yet)


@dataclass(frozen=True, slots=True)
class QuotedSpan:
    """Runs inside one quotation, or between quotations."""

    runs: tuple[StyledRun, ...]
    citation: Citation | None = None


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A paragraph or heading (one item), or a list. `start`: the number of the first item of an "ol"."""

    tag: str  # "p" | "h3" | "blockquote" | "ul" | "ol"
    items: tuple[tuple[QuotedSpan, ...], ...]
    start: int = 1


@dataclass(frozen=True, slots=True)
class _Line:
    """`text[start:end]`: a paragraph, a heading or a list's item with its number."""

    tag: str
    start: int
    end: int
    number: int = 1


class _Tile(NamedTuple):
    """`text[start:end]` of one level and one emphasis: "" | "strong" | "em" | "hide" (the asterisks).
    `said`: the message that it is all of.
    """

    start: int
    end: int
    level: str
    kind: str
    said: Message | None = None


def answer_html(
    pieces: Sequence[tuple[str, str]], citations: tuple[Citation, ...] = (), telling: tuple[int, int] = (0, 0)
) -> Markup:
    """An answer's text, given as (text, level) in a row; `telling`: what of it is not settled yet."""
    made = blocks(pieces, citations, telling)
    return Markup("").join(render("block.html", block=block) for block in made)


def blocks(
    pieces: Sequence[tuple[str, str]], citations: Sequence[Citation] = (), telling: tuple[int, int] = (0, 0)
) -> tuple[MarkdownBlock, ...]:
    """The blocks of an answer, given as (text, level) in a row, with its quotations; `telling`: what of it is
    not settled yet.
    """
    text = "".join(piece for piece, _level in pieces)
    tiles = _tiles(text, pieces)
    if telling[0] < telling[1]:
        tiles = [cut for tile in tiles for cut in _unsettled(tile, *telling)]
    quoted = sorted(citations, key=lambda one: (one.shown_from, one.end))
    return tuple(
        MarkdownBlock(
            rows[0].tag, tuple(_stretches(text, row, tiles, quoted) for row in rows), rows[0].number
        )
        for rows in _grouped(_lines(text))
    )


def without_marks(text: str) -> str:
    """The words of an answer on one line, without the marks that lay them out."""
    items = (item for block in blocks([(text, "")]) for item in block.items)
    return " ".join("".join(run.text for span in item for run in span.runs) for item in items)


def _lines(text: str) -> list[_Line]:
    """Every paragraph, heading and item, in order. Text right below a line belongs to it."""
    found: list[_Line] = []
    at, joins = 0, False
    for line in text.splitlines(keepends=True):
        start, end = at, at + len(line.rstrip())
        at += len(line)
        if end <= start:
            joins = False
        elif match := LIST_ITEM.match(line):
            tag = "ol" if match[1] else "ul"
            found.append(_Line(tag, start + match.end(), end, int(match[1] or 1)))
            joins = True
        elif match := QUOTED.match(line):
            found.append(_Line("blockquote", start + match.end(), end))
            joins = False
        elif match := HEADING.match(line):
            found.append(_Line("h3", start + match.end(), end))
            joins = False
        elif joins:
            last = found.pop()
            found.append(_Line(last.tag, last.start, end, last.number))
        else:
            found.append(_Line("p", start, end))
            joins = True
    return [line for line in found if line.end > line.start]


def _grouped(lines: list[_Line]) -> list[list[_Line]]:
    """Items in a row made one list. A number out of order begins another, so that it is shown as written."""
    groups: list[list[_Line]] = []
    for line in lines:
        if groups and _goes_on(groups[-1], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _goes_on(rows: list[_Line], line: _Line) -> bool:
    if line.tag != rows[0].tag or line.tag in ("p", "h3", "blockquote"):
        return False
    # Markdown may number every item with the same number and means a count
    same = all(row.number == line.number for row in rows)
    return line.tag == "ul" or same or line.number == rows[0].number + len(rows)


def _tiles(text: str, pieces: Sequence[tuple[str, str]]) -> list[_Tile]:
    """The whole text, cut wherever its level or its emphasis changes."""
    levels, at = [], 0
    for piece, level in pieces:
        at += len(piece)
        levels.append((at, level if level in LEVELS else "", piece))
    marks = [*_emphasis(text), (len(text), "")]
    found, at = [], 0
    level, mark = 0, 0
    while at < len(text):
        end = min(levels[level][0], marks[mark][0])
        if end > at:
            _end, of, piece = levels[level]
            whole = isinstance(piece, Message) and end - at == len(piece)
            found.append(_Tile(at, end, of, marks[mark][1], piece if whole else None))
        at = end
        level += levels[level][0] == at
        mark += marks[mark][0] == at
    return found


def _unsettled(tile: _Tile, start: int, end: int) -> Iterator[_Tile]:
    """A tile cut at what is not settled."""
    borders = sorted({tile.start, tile.end, *(at for at in (start, end) if tile.start < at < tile.end)})
    for left, right in pairwise(borders):
        yield _Tile(left, right, tile.level, "ins" if start <= left < end else tile.kind)


def _emphasis(text: str) -> Iterator[tuple[int, str]]:
    """(end, kind) of each stretch up to the last emphasis, in a row."""
    for match in EMPHASIS.finditer(text):
        strong = match.group(1) is not None
        start, end = match.span(1 if strong else 2)
        yield match.start(), ""
        yield start, "hide"
        yield end, "strong" if strong else "em"
        yield match.end(), "hide"


def _stretches(
    text: str, line: _Line, tiles: list[_Tile], citations: Sequence[Citation]
) -> tuple[QuotedSpan, ...]:
    """The line in stretches; a quotation that crosses its border is cut at it, a sign stands between two.
    Of quotations in a row, in the order of the book, the marks between two become one of omission, or none
    where the second follows the first there.
    """
    found, at = [], line.start
    for citation in citations:
        left, right = max(at, citation.shown_from), min(line.end, citation.end)
        if left < right or (citation.kind and left == right):
            between = _runs(text, at, left, tiles)
            if found and text[at:left] == _BETWEEN_QUOTATIONS:
                between = _between(found[-1].citation, citation) or between
            found.append(QuotedSpan(between))
            found.append(QuotedSpan(_runs(text, left, right, tiles), citation))
            at = right
    found.append(QuotedSpan(_runs(text, at, line.end, tiles)))
    return tuple(found)


def _between(first: Citation | None, second: Citation) -> tuple[StyledRun, ...]:
    """What stands between two quotations in place of their marks; nothing where these stay."""
    if first is None or first.offset is None or second.offset is None:
        return ()
    gap = second.offset - first.offset - first.length
    return (StyledRun(" " if gap <= _NEXT_CHARS else _OMITTED),) if gap >= 0 else ()


def _runs(text: str, start: int, end: int, tiles: list[_Tile]) -> tuple[StyledRun, ...]:
    first = bisect_right(tiles, start, key=lambda tile: tile.end)
    last = bisect_left(tiles, end, lo=first, key=lambda tile: tile.start)
    return tuple(
        StyledRun(_words(text, start, end, tile), tile.level, tile.kind)
        for tile in tiles[first:last]
        if tile.kind != "hide"
    )


def _words(text: str, start: int, end: int, tile: _Tile) -> str:
    """What of the tile stands there: text, or a message where it is whole."""
    if tile.said is not None and start <= tile.start and tile.end <= end:
        return tile.said
    return text[max(start, tile.start) : min(end, tile.end)]
