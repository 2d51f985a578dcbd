"""Text layers that an OCR program laid under the pictures of pages: every line has a size and margins of its
own, as measured in the picture. They are made even, so that paragraphs show. Pure functions on lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from core.documents.pdf.page import LinePiece

_LEAST_LINES = 8  # of a page that shows how even its lines are
_MOST_LINES = 300  # of a page that is no list of single words
_UNEVEN = (0.02, 0.5)  # of the size: by how much neighbours differ that print sets alike
_MOSTLY = 0.35  # of all neighbours
_ALIKE = (0.65, 1.45)  # of the usual size: still running text
_LEFT_SIZES, _RIGHT_SIZES = 0.6, 1.2  # how far from a margin a line may begin and end by mistake
_MARGINS = 4  # of up to two columns, and of lists


def straightened(pages: Sequence[list[LinePiece]]) -> list[list[LinePiece]]:
    """The pages, those of a text layer by OCR with lines of one size that begin and end at the margins."""
    if not _is_uneven(pages):
        return list(pages)
    sizes = [line.size for lines in pages for line in lines for _letter in line.text]
    return [
        _straightened_page(lines, median(sizes)) if len(lines) <= _MOST_LINES else lines for lines in pages
    ]


def _is_uneven(pages: Sequence[list[LinePiece]]) -> bool:
    """On most of the pages' lines the size is another than on the line before, by a little."""
    uneven = total = 0
    for lines in pages:
        if len(lines) < _LEAST_LINES:
            continue
        for line, following in zip(lines, lines[1:], strict=False):
            apart = abs(line.size - following.size) / max(line.size, following.size)
            uneven += _UNEVEN[0] < apart < _UNEVEN[1]
            total += 1
    return total > 0 and uneven > _MOSTLY * total


def _straightened_page(lines: list[LinePiece], usual: float) -> list[LinePiece]:
    text = [line for line in lines if _ALIKE[0] * usual <= line.size <= _ALIKE[1] * usual]
    lefts = _margins([line.x0 for line in text], _LEFT_SIZES * usual)
    rights = _margins([line.x1 for line in text], _RIGHT_SIZES * usual)
    even = {
        id(line): replace(line, size=usual, x0=_snapped(line.x0, lefts), x1=_snapped(line.x1, rights))
        for line in text
    }
    return [even.get(id(line), line) for line in lines]


Margin = tuple[float, float]  # its place, and how far lines may be off


def _margins(places: list[float], reach: float) -> list[Margin]:
    """Where many lines begin or end together."""
    left, margins = sorted(places), []
    least = max(3, len(places) // 6)
    for _margin in range(_MARGINS):
        near = max(
            ([other for other in left if abs(other - place) <= reach] for place in left), key=len, default=[]
        )
        if len(near) < least:
            break
        margins.append((median(near), reach))
        left = [place for place in left if abs(place - median(near)) > reach]
    return margins


def _snapped(place: float, margins: list[Margin]) -> float:
    return next((margin for margin, reach in margins if abs(place - margin) <= reach), place)
