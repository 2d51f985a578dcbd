"""The lines of a page in reading order: columns, drop capitals, footnotes. Pure functions on lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from core.documents.pdf.page import NOTE_CLOSE, NOTE_OPEN, LinePiece, merged_pieces
from core.documents.pdf.reading_order import file_order, lists_side_by_side, reads_better

_MIN_COLUMN_LINES = 4
_FEWEST_LETTERS = 8  # of a line of text
_FEWEST_ENTRIES, _ENTRIES = 8, 0.4  # of a column of an index, and of its lines: an entry may take several
_PAGES_END = re.compile(r",\s?\d{1,4}(?:\s?[–—-]\s?\d{1,4})?[nf]{0,2}\.?\Z")
_NOTE_START = re.compile(
    rf"\A(?:{NOTE_OPEN}([^{NOTE_CLOSE}]+){NOTE_CLOSE}|(\d{{1,3}}|[*†‡§])(?=[\s.)\]]))[.)\]]?\s*"
)


@dataclass(frozen=True, slots=True)
class Region:
    """Lines of one column, top to bottom, with its margins. `hanging`: a paragraph's first line alone begins
    at the margin. `listed`: they are entries of an index, most of which end with page numbers.
    """

    lines: tuple[LinePiece, ...]
    left: float
    right: float
    leading: float
    hanging: bool = False
    listed: bool = False


@dataclass(frozen=True, slots=True)
class PageLayout:
    """A page's regions in reading order and its footnotes, each as (mark, lines)."""

    regions: tuple[Region, ...]
    notes: tuple[tuple[str, tuple[LinePiece, ...]], ...] = ()
    gutter: float | None = None  # where the page's right column begins


def body_size(pages: Sequence[list[LinePiece]]) -> float:
    """The font size most of the text is set in."""
    weights: Counter[float] = Counter()
    for lines in pages:
        for line in lines:
            weights[round(line.size * 2) / 2] += len(line.text)
    return weights.most_common(1)[0][0] if weights else 10.0


def page_layout(
    pieces: list[LinePiece],
    *,
    body: float,
    known: Counter[str],
    width: float = 0.0,
    gutters: Sequence[float] = (),
) -> PageLayout:
    """Regions and footnotes of one page without furniture.

    `known`: the book's words; `width`: the usual width of a column, 0 if unknown; `gutters`: where other
    pages have theirs, for a page whose second column holds too few lines to be sure.
    """
    pieces, notes = _footnotes(pieces, body)
    gutter = _gutter(pieces)
    if gutter is None and pieces and _begins_inside(pieces) >= _MIN_COLUMN_LINES:
        own = file_order(pieces)
        if lists_side_by_side(own) and not all(map(_like_text, own)):
            return PageLayout(tuple(_region(column, 0.0) for column in own), notes)
        gutter = _gutter(
            [piece for piece in pieces if abs(piece.size - body) < 0.08 * body and _has_words(piece)]
        )
    if gutter is None:
        gutter = next((hint for hint in gutters if _fits_gutter(pieces, hint)), None)
    columns = [merged_pieces(column) for column in _columns(pieces, gutter) if column]
    if gutter is not None or gutters:
        own = file_order(pieces)
        if reads_better(own, columns, known):
            columns = own
    return PageLayout(tuple(_region(column, width) for column in columns), notes, gutter)


# ---- columns ----


def _fits_gutter(pieces: list[LinePiece], gutter: float) -> bool:
    """Some lines begin just right of the gutter, others end before it, none but a title crosses."""
    right = [line for line in pieces if line.x0 > gutter - 3]
    usual = median(line.size for line in pieces) if pieces else 0.0
    return (
        0 < len(right) < len(pieces)
        and not any(_crosses(line, gutter) and line.size < 1.15 * usual for line in pieces)
        and sum(line.x0 < gutter + 6 for line in right) * 2 >= len(right)
    )


def _columns(pieces: list[LinePiece], gutter: float | None, depth: int = 0) -> list[list[LinePiece]]:
    """Pieces grouped by column in reading order; lines across both columns divide the page into bands."""
    if gutter is None:
        return [pieces]
    result: list[list[LinePiece]] = []
    left: list[LinePiece] = []
    right: list[LinePiece] = []

    def close_band() -> None:
        for side in (left, right):
            if side:
                result.extend(_columns(list(side), _gutter(side) if depth < 2 else None, depth + 1))
                side.clear()

    across: list[LinePiece] | None = None
    for row in _rows(pieces):
        if not any(_crosses(piece, gutter) for piece in row):
            across = None
            for piece in row:
                (left if piece.x1 <= gutter + 3 else right).append(piece)
            continue
        close_band()
        if across is None:
            across = []
            result.append(across)
        across += row
    close_band()
    return result


def _rows(pieces: list[LinePiece]) -> list[list[LinePiece]]:
    """The pieces on one baseline each, from top to bottom: what stands beside one that crosses the gutter is
    a cell of its row.
    """
    rows: list[list[LinePiece]] = []
    for piece in sorted(pieces, key=lambda line: (-line.y, line.x0)):
        if rows and rows[-1][0].y - piece.y < 0.2 * piece.size:
            rows[-1].append(piece)
        else:
            rows.append([piece])
    return rows


def _crosses(line: LinePiece, gutter: float) -> bool:
    return line.x0 < gutter - 3 and line.x1 > gutter + 3


def _gutter(pieces: list[LinePiece]) -> float | None:
    """The x of an empty band between two columns of text, or None for a page of one column."""
    if len(pieces) < 2 * _MIN_COLUMN_LINES:
        return None
    low, high = min(line.x0 for line in pieces), max(line.x1 for line in pieces)
    starts = Counter(
        round(line.x0 / 4)
        for line in pieces
        if low + 0.25 * (high - low) < line.x0 < low + 0.78 * (high - low)
    )
    for bucket, count in starts.most_common(4):
        if count < _MIN_COLUMN_LINES:
            return None
        gutter = min(line.x0 for line in pieces if abs(round(line.x0 / 4) - bucket) <= 1) - 2
        left = [line for line in pieces if line.x1 <= gutter]
        right = [line for line in pieces if line.x0 >= gutter - 3]
        crossing = len(pieces) - len(left) - len(right)
        if min(len(left), len(right)) < _MIN_COLUMN_LINES or crossing > 0.3 * len(pieces):
            continue
        if _side_by_side(left, right) and _like_text(left) and _like_text(right):
            return gutter
    return None


def _begins_inside(pieces: list[LinePiece]) -> int:
    """How many pieces begin right of the page's first quarter: with few of them there is no second column."""
    low, high = min(line.x0 for line in pieces), max(line.x1 for line in pieces)
    return sum(line.x0 > low + 0.25 * (high - low) for line in pieces)


def _side_by_side(left: list[LinePiece], right: list[LinePiece]) -> bool:
    top = min(max(line.y for line in left), max(line.y for line in right))
    bottom = max(min(line.y for line in left), min(line.y for line in right))
    beside = [line for line in right if bottom - 2 <= line.y <= top + 2]
    return top > bottom and len(beside) >= _MIN_COLUMN_LINES


def _like_text(lines: list[LinePiece]) -> bool:
    """Lines of words, not the numbers of a table or the page numbers of a contents list."""
    return median(_letters(line) for line in lines) >= _FEWEST_LETTERS


def _has_words(line: LinePiece) -> bool:
    """No cell of a table, no label of a figure."""
    return _letters(line) >= _FEWEST_LETTERS


def _letters(line: LinePiece) -> int:
    return sum(map(str.isalpha, line.text))


# ---- margins ----


def _region(lines: list[LinePiece], width: float) -> Region:
    starts = Counter(round(line.x0) for line in lines)
    enough = max(1, len(lines) // 10) if len(lines) >= 8 else 1
    left = min(start for start in starts if starts[start] + starts[start + 1] + starts[start - 1] >= enough)
    ends = sorted(line.x1 for line in lines)
    right = ends[int(0.95 * (len(ends) - 1))]
    if len(lines) < 12 and width:
        right = max(right, left + 0.98 * width)
    gaps = [
        upper.y - lower.y
        for upper, lower in zip(lines, lines[1:], strict=False)
        if 0 < upper.y - lower.y < 3 * upper.size
    ]
    leading = median(gaps) if gaps else 1.2 * lines[0].size
    entries = sum(ends_with_pages(line) for line in lines)
    listed = entries >= max(_FEWEST_ENTRIES, _ENTRIES * len(lines))
    return Region(tuple(lines), left, right, leading, _hangs(lines, left, right), listed)


def ends_with_pages(line: LinePiece) -> bool:
    """Whether a line ends as an entry of an index does: "Ambergris, use of, 12, 45–47"."""
    return _PAGES_END.search(line.text) is not None


def _hangs(lines: list[LinePiece], left: float, right: float) -> bool:
    full = [
        (upper, lower)
        for upper, lower in zip(lines, lines[1:], strict=False)
        if abs(upper.x0 - left) < 3 and upper.x1 > right - 3 * upper.size
    ]
    indented = sum(lower.x0 > left + 0.7 * lower.size for _, lower in full)
    return indented >= 3 and indented > 0.75 * len(full)


# ---- drop capitals ----


def with_drop_capitals(pieces: list[LinePiece], body: float, known: Counter[str]) -> list[LinePiece]:
    """A large first letter joined to its word, the lines beside it moved back to the margin."""
    result = list(pieces)
    for capital in pieces:
        if len(capital.text) > 2 or not capital.text[-1:].isalpha() or capital.size < 1.7 * body:
            continue
        beside = [
            line
            for line in result
            if line is not capital
            and capital.x1 - 3 <= line.x0 <= capital.x1 + 2 * body
            and capital.y - 0.3 * body <= line.y <= capital.y + capital.size
            and line.size < capital.size
        ]
        if not beside:
            continue
        first = max(beside, key=lambda line: line.y)
        moved = {id(line): replace(line, x0=capital.x0) for line in beside}
        moved[id(first)] = replace(
            first, x0=capital.x0, text=_capital_joined(capital.text, first.text, known)
        )
        result = [moved.get(id(line), line) for line in result if line is not capital]
    return result


def _capital_joined(capital: str, text: str, known: Counter[str]) -> str:
    """ "K" + "ing" is one word; "A" + "long" are two when only the second is known."""
    word = re.match(r"[\w’']*", text).group().lower()
    alone = capital in ("A", "I", "O") and known[word] > known[(capital + word).lower()]
    return f"{capital} {text}" if alone and word else capital + text


# ---- footnotes ----


def _footnotes(
    pieces: list[LinePiece], body: float
) -> tuple[list[LinePiece], tuple[tuple[str, tuple[LinePiece, ...]], ...]]:
    """The small lines at the foot of the page that begin with a mark, cut off and grouped by mark."""
    lines = merged_pieces(pieces)
    foot = len(lines)
    while foot and lines[foot - 1].size < 0.93 * body:
        foot -= 1
    small = lines[foot:]
    while small and not _NOTE_START.match(small[0].text):
        small = small[1:]  # a caption above the notes stays where it is
    if not small or len(small) > 0.7 * len(lines):
        return pieces, ()
    top = small[0].y + 0.5 * small[0].size
    notes: list[tuple[str, list[LinePiece]]] = []
    for line in small:
        found = _NOTE_START.match(line.text)
        if found and (not notes or _next_mark(notes[-1][0], found.group(1) or found.group(2))):
            notes.append((found.group(1) or found.group(2), [replace(line, text=line.text[found.end() :])]))
        else:
            notes[-1][1].append(line)
    kept = [piece for piece in pieces if piece.y > top or piece.size >= 0.93 * body]
    return kept, tuple((mark, tuple(note)) for mark, note in notes)


def _next_mark(previous: str, mark: str) -> bool:
    """Numbered notes count on; a year at the start of a line does not begin one."""
    return not (previous.isdigit() and mark.isdigit()) or int(mark) == int(previous) + 1
