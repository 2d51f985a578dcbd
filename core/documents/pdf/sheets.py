"""Sheets that hold two pages each, as print shops want them and as scans of open books are: taken apart, and
put into the order of their printed numbers. Pure functions on lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from core.documents.pdf.page import LinePiece, merged_pieces
from core.documents.structure.headings import title_key

_FEWEST_SHEETS = 4
_LEAST_LINES = 8  # of a sheet that shows where its middle is
_MOST_CROSSING = 0.05  # of a sheet's lines: titles over both columns of one page
_NUMBERED = 0.6  # of the sheets show two numbers
_TWO_PAGES = 0.8  # of the sheets have text on both halves
_NUMBER = re.compile(r"\W*(\d{1,4})\W*")


@dataclass(frozen=True, slots=True)
class UnfoldedSheets:
    """`pages`: each half of a sheet as a page, in reading order; `halves`: the pages of every sheet;
    `labels`: printed numbers.
    """

    pages: list[list[LinePiece]]
    halves: list[tuple[int, ...]]
    labels: tuple[str, ...]

    def page_of(self, sheet: int, title: str) -> int:
        """The page of a sheet on which the outline's `title` stands, else its first."""
        pages = self.halves[sheet] if sheet < len(self.halves) else ()
        key = title_key(title)
        named = (page for page in pages if any(title_key(line.text) == key for line in self.pages[page]))
        return next(named, min(pages, default=0))


def unfolded(sheets: Sequence[list[LinePiece]]) -> UnfoldedSheets | None:
    """The pages of a file whose sheets hold two each, both with numbers of their own; None for any other."""
    middle = _middle(sheets)
    if middle is None:
        return None
    divided = [_divided(lines, middle) for lines in sheets]
    numbers = [tuple(_printed_number(half) for half in pair) if pair else (None, None) for pair in divided]
    numbered = sum(left is not None and right not in (None, left) for left, right in numbers)
    if numbered < _NUMBERED * sum(len(lines) >= _LEAST_LINES for lines in sheets):
        return None
    settled = _settled_numbers(numbers)
    if settled is None:
        return None
    return _in_order(sheets, divided, settled, middle)


def hold_two_pages(sheets: Sequence[list[LinePiece]]) -> bool:
    """Sheets wider than high, of which most have text to both sides of an empty middle."""
    middle = _middle(sheets)
    if middle is None:
        return False
    full = [lines for lines in sheets if len(lines) >= _LEAST_LINES]
    pairs = (_divided(lines, middle) for lines in full)
    filled = sum(pair is not None and min(map(len, pair)) >= _LEAST_LINES / 2 for pair in pairs)
    return filled > _TWO_PAGES * len(full)


def _middle(sheets: Sequence[list[LinePiece]]) -> float | None:
    """Half-way between the margins of sheets that are wider than high; None of other ones, and of few."""
    full = [lines for lines in sheets if len(lines) >= _LEAST_LINES]
    if len(full) < _FEWEST_SHEETS:
        return None
    left, right = median(_left(full)), median(_right(full))
    if right - left < median(max(line.y for line in page) - min(line.y for line in page) for page in full):
        return None  # one page, of one column or two
    return (left + right) / 2


def _left(pages: Iterable[list[LinePiece]]) -> list[float]:
    return [min(line.x0 for line in lines) for lines in pages]


def _right(pages: Iterable[list[LinePiece]]) -> list[float]:
    return [max(line.x1 for line in lines) for lines in pages]


def _divided(lines: list[LinePiece], middle: float) -> tuple[list[LinePiece], list[LinePiece]] | None:
    """The lines to either side of the middle; None where more than a title runs across."""
    crossing = sum(line.x0 < middle - 3 and line.x1 > middle + 3 for line in lines)
    if crossing > max(1, _MOST_CROSSING * len(lines)):
        return None
    left = [line for line in lines if (line.x0 + line.x1) / 2 <= middle]
    return left, [line for line in lines if (line.x0 + line.x1) / 2 > middle]


def _printed_number(half: list[LinePiece]) -> int | None:
    """The number that stands alone at the foot or the head of a page."""
    lines = merged_pieces(half)
    edges = [lines[-1], lines[0]] if lines else []
    found = next((match for line in edges if (match := _NUMBER.fullmatch(line.text))), None)
    return int(found.group(1)) if found else None


Numbers = tuple[int | None, int | None]


def _settled_numbers(printed: list[Numbers]) -> list[Numbers] | None:
    """The numbers without those that fit to no neighbour, the missing ones counted on; None when some page
    comes twice. Every second sheet shows the same side of a leaf, so its numbers count in even steps.
    """
    result: list[list[int | None]] = [[None, None] for _sheet in printed]
    for side in (0, 1):
        for parity in (0, 1):
            places = range(parity, len(printed), 2)
            settled = _counted([printed[place][side] for place in places])
            for place, number in zip(places, settled, strict=True):
                result[place][side] = number
    known = [number for pair in result for number in pair if number is not None]
    return [(left, right) for left, right in result] if len(set(known)) == len(known) else None


def _counted(numbers: list[int | None]) -> list[int | None]:
    """A row of numbers that grow or fall by one step: those that break it dropped, gaps and ends filled."""
    steps = Counter(
        later - earlier
        for earlier, later in zip(numbers, numbers[1:], strict=False)
        if earlier is not None and later is not None
    )
    if not steps:
        return list(numbers)
    step = steps.most_common(1)[0][0]
    starts = Counter(number - step * place for place, number in enumerate(numbers) if number is not None)
    start, count = starts.most_common(1)[0]
    if count >= 0.8 * sum(starts.values()):
        return [start + step * place for place in range(len(numbers))]
    fits = [
        number is not None and (number + step in numbers[place + 1 : place + 2] or number - step in before)
        for place, number in enumerate(numbers)
        for before in [numbers[max(0, place - 1) : place]]
    ]
    return [number if fit else None for number, fit in zip(numbers, fits, strict=True)]


def _in_order(
    sheets: Sequence[list[LinePiece]],
    divided: list[tuple[list[LinePiece], list[LinePiece]] | None],
    numbers: list[Numbers],
    middle: float,
) -> UnfoldedSheets:
    """All halves by number; one without goes after the half before it in the file."""
    halves: list[tuple[float, int, list[LinePiece], str]] = []  # key, sheet, lines, label
    last = float("-inf")
    for sheet, (lines, pair, own) in enumerate(zip(sheets, divided, numbers, strict=True)):
        if pair is None:
            halves.append((last + 0.5, sheet, lines, ""))
            continue
        right = [replace(line, x0=line.x0 - middle, x1=line.x1 - middle) for line in pair[1]]
        for number, half in ((own[0], pair[0]), (own[1], right)):
            last = last if number is None else number
            if half:
                label = str(number) if number is not None and number > 0 else ""
                halves.append((last if number is not None else last + 0.5, sheet, half, label))
    halves.sort(key=lambda half: half[0])
    pages_of: list[list[int]] = [[] for _sheet in sheets]
    for page, (_key, sheet, _lines, _label) in enumerate(halves):
        pages_of[sheet].append(page)
    return UnfoldedSheets(
        [[replace(line, page=page) for line in half[2]] for page, half in enumerate(halves)],
        [tuple(pages) for pages in pages_of],
        tuple(half[3] or f"({page + 1})" for page, half in enumerate(halves)),
    )
