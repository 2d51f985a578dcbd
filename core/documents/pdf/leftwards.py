"""The lines of a page that reads from right to left, from the places of its characters alone.

PDFium hands such lines on partly in the order of reading and partly as they look, and takes brackets for
their mirror images in some of them. So its order counts for nothing here: characters are laid out from left
to right as they look, and turned into the order of reading by the rules of the Unicode bidirectional
algorithm (UAX 9) read backwards, as far as a printed line needs them. Pure functions on values.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

RTL = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
# sizes of the font
_SPACE = 0.2  # a wider gap parts words
_WIDE_SPACE = 0.6  # beside pointed letters, whose boxes PDFium tells too narrow
_COLUMN_GAP = 1.15  # a wider one may be that between columns
_SAME_PLACE = 0.1
_SAME_LINE = 0.45
_TOUCHES = 0.02
_NEAR = 1.0
_NUMBER_SIGNS = ".,:/-+"  # between the digits of one number
_UNITS = "%‰°$€£₪"  # beside them
_OPENS, _CLOSES = "([{«‹", ")]}»›"
_BRACKETS = _OPENS + _CLOSES
_ENDS = ".,;:!?،؛؟" + _CLOSES
_ALEFS = "اأإآٱ"


@dataclass(frozen=True, slots=True)
class Glyph:
    """Characters at one place of the page. `x0`, `x1`: left and right as seen, in points; `y`: the baseline;
    `order`: its place in the file.
    """

    text: str
    x0: float
    x1: float
    y: float
    size: float
    order: int


def leftward_pieces(glyphs: Sequence[Glyph]) -> list[list[Glyph]]:
    """The pieces of the page's lines, cut where a gap may be that between columns, in the file's order: the
    glyphs of each in the order of reading, with the spaces between words.
    """
    pieces = [piece for row in _rows(glyphs) for piece in _cut(_joined(row))]
    pieces.sort(key=lambda piece: min(glyph.order for glyph in piece))
    return [_in_reading_order(_spaced(piece)) for piece in pieces]


# ---- as the page shows them ----


def _rows(glyphs: Sequence[Glyph]) -> list[list[Glyph]]:
    """Glyphs of one height each, from left to right."""
    rows: list[list[Glyph]] = []
    for glyph in sorted(glyphs, key=lambda one: -one.y):
        if rows and rows[-1][-1].y - glyph.y < _SAME_LINE * max(rows[-1][-1].size, glyph.size):
            rows[-1].append(glyph)
        else:
            rows.append([glyph])
    return [sorted(row, key=lambda one: (one.x0, one.order)) for row in rows]


def _joined(row: Sequence[Glyph]) -> list[Glyph]:
    """The row with points and accents behind their letters, the letters of a ligature together, and what is
    drawn twice for weight once.
    """
    letters: list[Glyph] = []
    for glyph in row:
        if _is_mark(glyph.text):
            continue
        before = letters[-1] if letters else None
        if (
            before is None
            or abs(glyph.x0 - before.x0) > _SAME_PLACE * glyph.size
            or " " in (glyph.text, before.text)
        ):
            letters.append(glyph)
        elif glyph.text not in before.text:
            letters[-1] = replace(
                before, text=_ligature(before.text + glyph.text), x1=max(before.x1, glyph.x1)
            )
    return _pointed(letters, [glyph for glyph in row if _is_mark(glyph.text)])


def _pointed(letters: list[Glyph], marks: Sequence[Glyph]) -> list[Glyph]:
    """The letters with the marks that touch them, or touch one that does; then with those that are near."""
    starts = [letter.x0 for letter in letters]
    for reach in (_TOUCHES, _TOUCHES, _TOUCHES, _NEAR):
        rest = []
        for mark in marks:
            at = bisect_right(starts, (mark.x0 + mark.x1) / 2)
            near = min(
                range(max(0, at - 1), min(len(letters), at + 1)),
                key=lambda n: _distance(letters[n], mark),
                default=None,
            )
            if near is None or _distance(letters[near], mark)[0] > reach * mark.size:
                rest.append(mark)
                continue
            letter = letters[near]
            text = letter.text if mark.text in letter.text else letter.text + mark.text
            x0, x1 = min(letter.x0, mark.x0), max(letter.x1, mark.x1)
            letters[near] = replace(letter, text=text, x0=x0, x1=x1)
        marks = rest
    return letters


def _ligature(text: str) -> str:
    """Lam and alef, which print draws as one, in the order of spelling."""
    return text[::-1] if len(text) == 2 and text[0] in _ALEFS and text[1] == "ل" else text


def _is_mark(text: str) -> bool:
    return bool(text) and all(map(unicodedata.combining, text))


def _distance(letter: Glyph, mark: Glyph) -> tuple[float, float]:
    """Between the two and between their middles; far for what bears no marks."""
    apart = max(0.0, letter.x0 - mark.x1, mark.x0 - letter.x1)
    middles = abs(letter.x0 + letter.x1 - mark.x0 - mark.x1) / 2
    return (apart if letter.text[:1].isalpha() else math.inf), middles


def _cut(row: Sequence[Glyph]) -> list[list[Glyph]]:
    """The row in pieces, without spaces at their ends."""
    pieces: list[list[Glyph]] = []
    end = 0.0
    for glyph in row:
        if glyph.text.isspace():
            if pieces:
                pieces[-1].append(glyph)
            continue
        if not pieces or glyph.x0 - end > _COLUMN_GAP * glyph.size:
            pieces.append([])
        pieces[-1].append(glyph)
        end = glyph.x1
    for piece in pieces:
        while piece[-1].text.isspace():
            piece.pop()
    return pieces


def _spaced(piece: Sequence[Glyph]) -> list[Glyph]:
    """The piece with one space between words, where the file has one or a gap."""
    result: list[Glyph] = []
    for glyph in piece:
        before = result[-1] if result else glyph
        loose = any(_is_mark(one.text[1:]) for one in (before, glyph))
        gap = glyph.x0 - before.x1 > (_WIDE_SPACE if loose else _SPACE) * glyph.size
        if glyph.text.isspace():
            if not before.text.isspace():
                result.append(replace(glyph, text=" "))
            continue
        if gap and not before.text.isspace():
            result.append(replace(glyph, text=" ", x0=before.x1, x1=glyph.x0))
        result.append(glyph)
    return result


# ---- as they are read ----


def _in_reading_order(seen: Sequence[Glyph]) -> list[Glyph]:
    """From right to left, but words of a left-to-right script and numbers as they stand."""
    rightward = _rightward(seen)
    result: list[Glyph] = []
    end = len(seen)
    while end:
        start = end - 1
        while rightward[end - 1] and start and rightward[start - 1] == rightward[end - 1]:
            start -= 1
        result += seen[start:end]
        end = start
    return _with_brackets(result)


def _rightward(seen: Sequence[Glyph]) -> list[int]:
    """For each glyph the number of the run that reads from left to right and holds it; 0 for none."""
    runs = [0] * len(seen)
    number, start = 0, 0
    while start < len(seen):
        end = _run_end(seen, start)
        if end > start:
            number += 1
            runs[start:end] = [number] * (end - start)
        start = max(end, start + 1)
    return runs


def _run_end(seen: Sequence[Glyph], start: int) -> int:
    """Where the run that begins here ends: behind a number, or behind the last word of its script before one
    of the other direction; `start` where none begins.
    """
    end = _number_end(seen, start)
    if end == start and not _is_word(seen[start]):
        return start
    worded = end == start
    end = max(end, start + 1)
    at = end
    while at < len(seen) and not RTL.search(seen[at].text):
        if _is_word(seen[at]):
            worded = worded or seen[at - 1].text != " "  # "1948 John": two runs
            if not worded:
                break
            end = at + 1
        elif worded and (past := _number_end(seen, at)) > at:
            at = end = past
            continue
        at += 1
    brackets = sum(glyph.text in _BRACKETS for glyph in seen[start:end])
    closes = brackets % 2 == 1 and end < len(seen) and seen[end].text in _BRACKETS
    return end + closes


def _is_word(glyph: Glyph) -> bool:
    """A letter of a left-to-right script."""
    return glyph.text[:1].isalpha() and not RTL.match(glyph.text)


def _number_end(seen: Sequence[Glyph], start: int) -> int:
    """Where the number that begins at `start` ends; `start` where none does."""
    at = start
    while at < len(seen) and seen[at].text in _UNITS:
        at += 1
    if at == len(seen) or not seen[at].text.isdigit():
        return start
    while at < len(seen):
        text = seen[at].text
        more = at + 1 < len(seen) and seen[at + 1].text.isdigit()
        if not (text.isdigit() or text in _UNITS or (text in _NUMBER_SIGNS and more)):
            break
        at += 1
    return at


def _with_brackets(read: Sequence[Glyph]) -> list[Glyph]:
    """Brackets open before what they hold and close behind it, without a gap, whichever of the two the file
    names.
    """
    result: list[Glyph] = []
    depth = 0
    for at, glyph in enumerate(read):
        kind = max(_OPENS.find(glyph.text), _CLOSES.find(glyph.text))
        if kind < 0:
            if not (glyph.text == " " and result and result[-1].text in _OPENS):
                result.append(glyph)
            continue
        before = read[at - 1].text if at else " "
        after = read[at + 1].text if at + 1 < len(read) else " "
        loose, tight = before == " " or before in _OPENS, after == " " or after in _ENDS
        opens = loose if loose != tight else depth == 0
        depth += 1 if opens else -1
        if not opens and result and result[-1].text == " ":
            result.pop()
        result.append(replace(glyph, text=(_OPENS if opens else _CLOSES)[kind]))
    return result
