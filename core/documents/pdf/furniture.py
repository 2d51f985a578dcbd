"""Running heads and page numbers: what stands on page after page and is not the text. Pure functions on
lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from core.documents.pdf.page import LinePiece
from core.documents.structure.headings import read_heading, title_key, to_number

_HEADING_CHARS = 60
_WINDOW = 12  # pages to either side that are compared
_END_NUMBER = re.compile(r"\A\W*(\d{1,4}|[ivxlc]{1,8})\b|\b(\d{1,4}|[ivxlc]{1,8})\W*\Z", re.I)
_FULL = 0.85  # of the width of the line beside it
_ENDS = re.compile(r"[.!?:…。！？]\W*\Z")


@dataclass(frozen=True, slots=True)
class _Edge:
    """An outermost line of a page. `numbers`: (is roman, value - page index) of the numbers at its ends;
    `label`: what it says if it may be the heading of a chapter ("chapter", 3). `flows`: it is set as a line
    of the paragraph beside it.
    """

    page: int
    side: str  # "top" | "bottom"
    line: LinePiece
    words: str
    numbers: tuple[tuple[bool, int], ...]
    label: tuple[str, int] | None
    flows: bool

    def says_as(self, other: _Edge) -> bool:
        """The same words; of two chapters' headings these are different ones."""
        if self.label or other.label:
            return self.label == other.label
        return bool(self.words) and self.words == other.words


def without_furniture(
    pages: Sequence[list[LinePiece]], body_size: float, named: Mapping[int, Collection[str]]
) -> tuple[list[list[LinePiece]], dict[int, str]]:
    """The pages without running heads and page numbers, and the printed page number of each page where one
    was found.

    `pages` hold merged lines from top to bottom. At most two lines are taken from either end. `named`: the
    titles that the outline has for a page, whose headings stay.
    """
    result = [list(lines) for lines in pages]
    printed: dict[int, str] = {}
    for _ in range(2):
        edges = [edge for number, lines in enumerate(result) for edge in _edges(lines, number)]
        counting = _counting(edges)
        removed = 0
        for edge in _furniture(edges, counting, body_size):
            lines = result[edge.page]
            if edge.line in lines and not _is_named(edge.line, lines, named.get(edge.page, ())):
                lines.remove(edge.line)
                removed += 1
            label = _label(edge, counting)
            if label:
                printed.setdefault(edge.page, label)
        if not removed:
            break
    return result, printed


def _edges(lines: list[LinePiece], page: int) -> list[_Edge]:
    ends = [("top", lines[:3]), ("bottom", lines[:-4:-1])] if lines else []
    return [
        _Edge(
            page,
            side,
            line,
            _words(line.text),
            _numbers(line.text, page),
            _heading_label(line.text),
            _flows(side, line, *inner),
        )
        for side, (line, *inner) in ends
        if len(line.text) <= 110
    ]


def _flows(side: str, line: LinePiece, *inner: LinePiece) -> bool:
    """Whether an outermost line is set as the two before it, by its size, its left end and its distance, and
    goes on from them: what says the same at the foot of several pages is else taken for no text. A head may
    stand so above the text, but not as wide.
    """
    if len(inner) < 2:
        return False
    near, next_one = inner
    gap, leading = abs(line.y - near.y), abs(near.y - next_one.y)
    alike = abs(line.size - near.size) < 0.03 * near.size and abs(line.x0 - near.x0) < 1
    if not alike or gap > 1.1 * leading:
        return False
    if side == "top":
        return line.x1 - line.x0 > _FULL * (near.x1 - near.x0) and not _ENDS.search(line.text)
    return not _ENDS.search(near.text)


def _heading_label(text: str) -> tuple[str, int] | None:
    heading = read_heading(text) if len(text) <= _HEADING_CHARS else None
    if heading is None or not heading.number or heading.word == "":
        return None
    return heading.word, heading.number


def _is_named(line: LinePiece, page: Sequence[LinePiece], titles: Collection[str]) -> bool:
    """The line, and no other of its page, is what the outline calls the page's heading."""
    key = title_key(line.text)
    mine = [
        title for title in map(title_key, titles) if key and (key == title or (len(key) > 8 and key in title))
    ]
    return any(
        not any(title_key(other.text) == title for other in page if other is not line) for title in mine
    )


def _words(text: str) -> str:
    """The line without numbers and punctuation, to be compared across pages."""
    return (
        re.sub(r"[\W\d_]+|\b[ivxlc]+\b", "", text.casefold())
        if not text.isalpha() or len(text) > 8
        else text.casefold()
    )


def _numbers(text: str, page: int) -> tuple[tuple[bool, int], ...]:
    found = []
    for match in _END_NUMBER.finditer(text):
        token = match.group(1) or match.group(2)
        value = to_number(token)
        if value:
            found.append((not token.isdigit(), value - page))
    return tuple(dict.fromkeys(found))


def _furniture(edges: list[_Edge], counting: set[tuple[bool, int]], body_size: float) -> list[_Edge]:
    on_page: dict[tuple[str, int], _Edge] = {(edge.side, edge.page): edge for edge in edges}
    result = []
    for edge in edges:
        if edge.line.size > 1.3 * body_size:
            continue  # a chapter's title, even if it stands in the head's place
        around = (on_page.get((edge.side, edge.page + step)) for step in range(-_WINDOW, _WINDOW + 1) if step)
        near = [other for other in around if other and abs(other.line.y - edge.line.y) < 6]
        same = sum(edge.says_as(other) for other in near)
        numbered = any(number in counting for number in edge.numbers)
        only_number = re.fullmatch(
            r"[\W_]*(?:\d{1,4}|[ivxlc]{1,8})[\W_]*|(?:page|p\.|seite)\s*\d+(?:\s*(?:of|/|von)\s*\d+)?",
            edge.line.text.strip(),
            re.I,
        )
        counted = numbered and sum(bool(set(other.numbers) & counting) for other in near) >= 2
        if (
            (only_number and (counted or (numbered and near)))
            or (same >= 2 and not edge.flows)
            or (counted and (same or len(edge.line.text) < 90))
        ):
            result.append(edge)
    return result


def _counting(edges: list[_Edge]) -> set[tuple[bool, int]]:
    """The differences between printed number and page index that hold for at least three pages."""
    pages_of: dict[tuple[bool, int], set[int]] = {}
    for edge in edges:
        for number in edge.numbers:
            pages_of.setdefault(number, set()).add(edge.page)
    counts = Counter({number: len(pages) for number, pages in pages_of.items() if len(pages) >= 3})
    return {number for number, _ in counts.most_common(4)}


def _label(edge: _Edge, counting: set[tuple[bool, int]]) -> str | None:
    for roman, difference in edge.numbers:
        if (roman, difference) in counting:
            value = edge.page + difference
            return str(value) if not roman else _roman(value)
    return None


def _roman(value: int) -> str:
    text = ""
    for amount, letters in (
        (100, "c"),
        (90, "xc"),
        (50, "l"),
        (40, "xl"),
        (10, "x"),
        (9, "ix"),
        (5, "v"),
        (4, "iv"),
        (1, "i"),
    ):
        text += letters * (value // amount)
        value %= amount
    return text
