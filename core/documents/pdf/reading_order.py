"""How well lines go on in an order, and the order in which the file has them. Pure functions on lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from core.documents.pdf.page import NOTE_CLOSE, NOTE_OPEN, LinePiece, merged_pieces

_FEWEST_PAIRS = 8
_BETTER = 0.12  # share of line ends; less is chance
_FEWEST_LINES = 8  # of a column of a list
_LEVEL = 0.7  # of its lines; more stand level with the column beside it in a table
_BROKEN = re.compile(r"([^\W\d_]+)[-\u00ad\u2010]\Z")
_WORD = re.compile(r"[^\W\d_]+")
_ENDS = re.compile(rf"[.!?:;…][”’\"')\]»{NOTE_OPEN}{NOTE_CLOSE}\d]*\Z")
_MID_SENTENCE = re.compile(r"(?:[a-zà-öø-ÿ]|,)\Z")


def file_order(pieces: Sequence[LinePiece]) -> list[list[LinePiece]]:
    """The lines of a page as the file has them, cut where they jump up or aside: a column, a table."""
    runs: list[list[LinePiece]] = []
    left = right = 0.0
    for piece in pieces:
        last = runs[-1][-1] if runs else None
        beside = last is not None and abs(last.y - piece.y) < 0.45 * max(last.size, piece.size)
        below = last is not None and piece.y < last.y and piece.x0 < right and piece.x1 > left
        if beside or below:
            runs[-1].append(piece)
            left, right = min(left, piece.x0), max(right, piece.x1)
        else:
            runs.append([piece])
            left, right = piece.x0, piece.x1
    return [merged_pieces(run) for run in runs]


def lists_side_by_side(runs: Sequence[Sequence[LinePiece]]) -> bool:
    """Two runs of the file in a row are columns of an index or another list of short lines: the second stands
    right of the first, and their lines at heights of their own. The cells of a table share theirs.
    """
    return any(_beside(left, right) for left, right in zip(runs, runs[1:], strict=False))


def _beside(left: Sequence[LinePiece], right: Sequence[LinePiece]) -> bool:
    if len(right) < _FEWEST_LINES:
        return False
    top, bottom = max(line.y for line in right) + 2, min(line.y for line in right) - 2
    heights = [line.y for line in left if bottom <= line.y <= top]
    margin = min(line.x0 for line in right)
    if len(heights) < _FEWEST_LINES or any(line.x1 > margin for line in left if bottom <= line.y <= top):
        return False
    level = sum(any(abs(line.y - height) < 2 for height in heights) for line in right)
    return level < _LEVEL * len(right)


def reads_better(
    order: Sequence[Sequence[LinePiece]], other: Sequence[Sequence[LinePiece]], known: Counter[str]
) -> bool:
    """The lines of `order` go on clearly better than those of the `other`. `known`: the book's words."""
    ours, pairs = _going_on([line.text for run in order for line in run], known)
    theirs, others = _going_on([line.text for run in other for line in run], known)
    return min(pairs, others) >= _FEWEST_PAIRS and ours / pairs > theirs / others + _BETTER


def _going_on(texts: Sequence[str], known: Counter[str]) -> tuple[float, int]:
    """(line ends that fit to the line after, less those that do not; line ends that tell)."""
    fit, told = 0.0, 0
    for text, following in zip(texts, texts[1:], strict=False):
        lower = following[:1].islower()
        broken, rest = _BROKEN.search(text), _WORD.match(following)
        if broken:
            whole = bool(rest) and (broken.group(1) + rest.group()).lower() in known
            fit, told = fit + (1 if whole and lower else -0.5), told + 1
        elif _ENDS.search(text):
            fit, told = fit - lower, told + 1
        elif _MID_SENTENCE.search(text):
            fit, told = fit + lower, told + 1
    return fit, told
