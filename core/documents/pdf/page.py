"""One PDF page to lines of text with their places. Speaks to PDFium; knows nothing of paragraphs or columns'
order.

PDFium gives a page's characters in one call and a character's place in one call each, so places are asked for
only at the ends of a line and where something depends on them (a raised note mark, a gap that may be the
space between columns).

Places are those of the page as it is shown, turned by its own /Rotate. Text that lies in another direction is
counted and left to `pdf_turned`.

A page written from right to left is handed on as in a mirror: x grows in the direction of reading. So
margins, indents and the order of columns mean the same in every script, and nothing behind this module knows
of directions. `leftwards` puts the characters of its lines into the order of reading.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby

import pypdfium2
import pypdfium2.raw as pdfium_c

from core.documents.files.clean import POWER
from core.documents.pdf.leftwards import RTL, Glyph, leftward_pieces

NOTE_OPEN, NOTE_CLOSE = "\ue000", "\ue001"  # around a raised note mark until its note is found
_BREAK = re.compile(r"\r\n|\r|\n|\ufffe|\x02")
_RAISED = re.compile(r"(?<=[^\s\d])(?:\d{1,3}|[*†‡§])(?=[\s.,;:!?)”’\"']|\Z)|\A(?:\d{1,3}|[*†‡§])(?=\s?\S)")
_LETTERS = re.compile(r"[^\W\d_]+")
# old TeX and Ghostscript fonts without a Unicode table leave ligatures at these codes
_TEX_LIGATURES = {
    0x0B: "ff",
    0x0C: "fi",
    0x0E: "ffi",
    0x0F: "ffl",
    0x1B: "ff",
    0x1C: "fi",
    0x1D: "fl",
    0x1E: "ffi",
    0x1F: "ffl",
}
# words of a left-to-right script in a row: between words of the other direction PDFium gives them last word
# first
_LTR_WORDS = re.compile(r"[A-Za-z\u00c0-\u024f][\w'’-]*(?: [A-Za-z\u00c0-\u024f][\w'’-]*)+")
# Chinese and Japanese, which are written without spaces
CJK = r"[\u3001-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
_CJK_SPACE = re.compile(f"(?<={CJK}) (?={CJK})")
# a space between such characters that is meant is at least one of them wide
_CJK_GAP_SIZES = 1.0
# a space this many times the font size may be the gap between columns
_GAP_SIZES = 1.15
# a crop box that leaves out less than this hides nothing
_CUT_POINTS = 2.0
# scanned lines are never quite level; a watermark across the page is far from it
_SLANT_DEGREES = 25


@dataclass(frozen=True, slots=True)
class LinePiece:
    """A piece of a printed line. x to the right, y upwards, in points; `y` is the baseline."""

    text: str
    x0: float
    x1: float
    y: float
    size: float
    page: int


class PageText:
    """The characters of one page and where they stand."""

    def __init__(self, page: pypdfium2.PdfPage, number: int, glued: dict[str, int] | None = None) -> None:
        """`glued`: words that may be two, and where the second would begin; they are parted where the page
        shows a gap.
        """
        self._number = number
        self._glued = glued or {}
        self._rotation = page.get_rotation()
        self.width, self.height = page.get_size()
        # letters of other lines, by their quarter turns against the clock; None is at a slant
        self.turned: Counter[int | None] = Counter()
        self._crop = self._shown_part(page)
        self._text_page = page.get_textpage()
        self._raw = self._text_page.raw  # asked some hundred times a page, without the wrapper's look-up
        self._chars = self._characters()
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._left, self._right, self._bottom, self._top = (ctypes.c_double() for _ in range(4))
        self._matrix = pdfium_c.FS_MATRIX()

    def _shown_part(self, page: pypdfium2.PdfPage) -> tuple[float, float, float, float] | None:
        """Left, bottom, right and top of what the page shows; None where that is all of it."""
        media, crop = page.get_mediabox(), page.get_cropbox()
        left, bottom = max(media[0], crop[0]), max(media[1], crop[1])
        right, top = min(media[2], crop[2]), min(media[3], crop[3])
        cut = max(left - media[0], bottom - media[1], media[2] - right, media[3] - top) > _CUT_POINTS
        if not cut or left >= right or bottom >= top:
            return None
        (x0, y0), (x1, y1) = self._shown(left, bottom), self._shown(right, top)
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    def close(self) -> None:
        """Free PDFium's copy of the page's text."""
        self._text_page.close()

    @property
    def chars(self) -> int:
        """How many it holds."""
        return len(self._chars)

    def lines_parted(self, glued: dict[str, int]) -> list[LinePiece]:
        """`lines` once more, with `glued` as in the beginning."""
        self._glued = glued
        return self.lines()

    def lines(self, *, mixed: bool = False) -> list[LinePiece]:
        """All upright lines in the file's own order; x runs in reading direction.

        `mixed`: the page holds lines in several directions, at which PDFium loses count of where lines end.
        """
        if _reads_leftwards(self._chars):
            return mirrored(self._leftward_lines(), self.width)
        spans: list[tuple[int, int]] = []
        start = 0
        for found in _BREAK.finditer(self._chars):
            hyphen = found.group() in ("\ufffe", "\x02")
            spans.append((start, found.end() if hyphen else found.start()))
            start = found.end()
        spans.append((start, len(self._chars)))
        if mixed:
            spans = [piece for span in spans for piece in self._level(*span)]
        spans = self._without_gaps(spans)
        if self._crop:
            spans = [self._cropped(*span) for span in spans]
        return [line for begin, end in spans if (line := self._line(begin, end))]

    def _leftward_lines(self) -> list[LinePiece]:
        """The lines of a page that reads from right to left."""
        return [
            self._leftward_line(piece)
            for piece in leftward_pieces(self._glyphs())
            if any(g.text for g in piece)
        ]

    def _glyphs(self) -> list[Glyph]:
        """The upright characters that the page shows; spaces and line ends that PDFium adds are none."""
        glyphs = []
        box = pdfium_c.FS_RECTF()
        for index, char in enumerate(self._chars):
            if pdfium_c.FPDFText_IsGenerated(self._raw, index) == 1 or char in "\r\n":
                continue
            direction = self._direction(index)
            if direction != 0:
                self.turned[direction] += char.isalpha()
                continue
            if self._crop and not self._is_shown(index):
                continue
            size = self._size(index)
            if size <= 0 or not pdfium_c.FPDFText_GetLooseCharBox(self._raw, index, box):
                continue
            (x0, _y0), (x1, _y1) = self._shown(box.left, box.bottom), self._shown(box.right, box.top)
            if box.right - box.left < 0.01 and char.isspace():  # inside a glyph of several characters
                continue
            text = _hyphens(unicodedata.normalize("NFKC", char) if RTL.match(char) else char)
            glyphs.append(Glyph(text, min(x0, x1), max(x0, x1), self._origin(index)[1], size, index))
        return glyphs

    def _leftward_line(self, piece: list[Glyph]) -> LinePiece:
        """Raised note marks between NOTE_OPEN and NOTE_CLOSE."""
        size = max(glyph.size for glyph in piece)
        y = min(glyph.y for glyph in piece if glyph.size == size)
        text = ""
        for raised, glyphs in groupby(
            piece, lambda glyph: glyph.size < 0.85 * size and glyph.y > y + 0.1 * size
        ):
            said = "".join(glyph.text for glyph in glyphs)
            mark = raised and re.fullmatch(r"\d{1,3}|[*†‡§]", said)
            text += _raised(text, said) if mark else said
        x0, x1 = min(glyph.x0 for glyph in piece), max(glyph.x1 for glyph in piece)
        return LinePiece(text, x0, x1, y, size, self._number)

    # ---- characters ----

    def _characters(self) -> str:
        count = self._text_page.count_chars()
        text = self._text_page.get_text_range() if count > 0 else ""
        if len(text) == count:
            return text
        codes = (pdfium_c.FPDFText_GetUnicode(self._raw, index) for index in range(count))
        return "".join(chr(code) if 0 < code < 0x110000 else " " for code in codes)

    def _origin(self, index: int) -> tuple[float, float]:
        pdfium_c.FPDFText_GetCharOrigin(self._raw, index, self._x, self._y)
        return self._shown(self._x.value, self._y.value)

    def _shown(self, x: float, y: float) -> tuple[float, float]:
        """A place of the page as it is stored, where the reader sees it."""
        if self._rotation == 90:
            return y, self.height - x
        if self._rotation == 180:
            return self.width - x, self.height - y
        return (self.width - y, x) if self._rotation == 270 else (x, y)

    def _right_edge(self, index: int) -> float:
        pdfium_c.FPDFText_GetCharBox(self._raw, index, self._left, self._right, self._bottom, self._top)
        if self._rotation:
            corners = ((self._left, self._bottom), (self._right, self._top))
            return max(self._shown(x.value, y.value)[0] for x, y in corners)
        return self._right.value

    def _size(self, index: int) -> float:
        """The size as printed: the nominal one times the text's own scale."""
        size = pdfium_c.FPDFText_GetFontSize(self._raw, index)
        if not pdfium_c.FPDFText_GetMatrix(self._raw, index, self._matrix):
            return size
        matrix = self._matrix
        return size * (abs(matrix.c if abs(matrix.b) > abs(matrix.a) else matrix.d) or 1.0)

    def _direction(self, index: int) -> int | None:
        """How many quarter turns against the clock a letter lies off the upright; None at a slant."""
        matrix = self._matrix
        if not pdfium_c.FPDFText_GetMatrix(self._raw, index, matrix):
            return 0
        angle = math.degrees(math.atan2(matrix.b, matrix.a)) - self._rotation
        if matrix.a * matrix.d < matrix.b * matrix.c:  # as in a mirror
            angle = 0.0 if abs(matrix.a) > abs(matrix.b) else angle
        quarter = round(angle / 90)
        return quarter % 4 if abs(angle - 90 * quarter) < _SLANT_DEGREES else None

    # ---- lines ----

    def _line(self, begin: int, end: int) -> LinePiece | None:
        raw = self._chars[begin:end]
        text = raw.strip()
        if not text:
            return None
        begin += len(raw) - len(raw.lstrip())
        end = begin + len(text)
        middle = self._letter(begin, end, (begin + end) // 2)
        direction = self._direction(middle)
        if direction != 0:
            self.turned[direction] += sum(map(str.isalpha, text))
            return None
        size = max(self._size(self._letter(begin, end, begin)), self._size(middle))
        if size <= 0:
            return None
        x0, y = self._origin(begin)
        if middle != begin:
            y = self._origin(middle)[1]
        x1 = self._right_edge(end - 1)
        if RTL.search(text):  # its last character is the leftmost one
            x0, x1 = min(x0, self._origin(end - 1)[0]), max(x1, self._right_edge(begin))
        return LinePiece(
            self._readable(text, begin, y, size), min(x0, x1), max(x0, x1), y, size, self._number
        )

    def _letter(self, begin: int, end: int, near: int) -> int:
        """The index of a letter at or after `near`, else of any character."""
        if self._chars[near].isalpha():
            return near
        return next((index for index in range(near, end) if self._chars[index].isalpha()), near)

    def _readable(self, text: str, begin: int, y: float, size: float) -> str:
        """Hyphens at line ends as "-", lost ligatures restored, raised note marks between NOTE_OPEN and
        NOTE_CLOSE.
        """
        edits: list[tuple[int, int, str]] = []
        for found in _RAISED.finditer(text):
            index = begin + found.start()
            if self._size(index) < 0.85 * size and self._origin(index)[1] > y + 0.1 * size:
                edits.append((found.start(), found.end(), _raised(text[: found.start()], found.group())))
        for found in _LETTERS.finditer(text) if self._glued else ():
            part = found.start() + self._glued.get(found.group().lower(), 0)
            if part > found.start() and self._apart(
                begin + found.start(), begin + found.end(), begin + part, size
            ):
                edits.append((part, part, " "))
        edits += [
            (space.start(), space.end(), "")
            for space in _CJK_SPACE.finditer(text)
            if not self._wide(begin + space.start(), size)
        ]
        if RTL.search(text):
            edits += [
                (run.start(), run.end(), " ".join(reversed(run.group().split(" "))))
                for run in _LTR_WORDS.finditer(text)
                if self._origin(begin + run.start())[0] > self._origin(begin + run.end() - 1)[0]
            ]
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return _hyphens(text).translate(_TEX_LIGATURES)

    def _wide(self, space: int, size: float) -> bool:
        """True for a space between full-width characters that was put there, not left over by stretching the
        line.
        """
        before, after = self._origin(space - 1)[0], self._origin(space + 1)[0]
        return abs(after - before) > (1 + _CJK_GAP_SIZES) * size

    def _apart(self, begin: int, end: int, part: int, size: float) -> bool:
        """True when the gap before `part` stands out among the gaps inside the word."""
        gaps = {
            index: self._origin(index)[0] - self._right_edge(index - 1) for index in range(begin + 1, end)
        }
        others = [gap for index, gap in gaps.items() if index != part]
        return gaps[part] > 0.08 * size and gaps[part] > max(others, default=0.0)

    def _cropped(self, begin: int, end: int) -> tuple[int, int]:
        """The span from its first to its last character inside the crop box; empty when there is none."""
        filled = [index for index in range(begin, end) if not self._chars[index].isspace()]
        if filled and self._is_shown(filled[0]) and self._is_shown(filled[-1]):
            return begin, end
        inside = [index for index in filled if self._is_shown(index)]
        if not inside:
            return begin, begin
        first, last = inside[0], inside[-1] + 1
        while begin < first < last and not self._chars[first - 1].isspace():
            first += 1  # the rest of a word that the edge parts
        while first < last < end and not self._chars[last].isspace():
            last -= 1
        return first, last

    def _is_shown(self, index: int) -> bool:
        left, bottom, right, top = self._crop
        x, y = self._origin(index)
        return left - 1 <= x <= right + 1 and bottom - 1 <= y <= top + 1

    # ---- gaps between columns ----

    def _without_gaps(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Spans cut where a line runs across the space between columns. Only pages where a sample shows a
        wide gap are searched; a cut in a line of one column does no harm, pieces on one baseline are joined
        again.
        """
        wide = [span for span in spans if span[1] - span[0] > 30]
        sample = wide[1 :: max(1, len(wide) // 7)]
        if len(wide) < 4 or not any(self._gaps(*span) for span in sample):
            return spans
        return [piece for span in spans for piece in self._cut(*span)]

    def _gaps(self, begin: int, end: int) -> list[int]:
        """Indices of spaces much wider than a space between words."""
        found = []
        size = self._size(self._letter(begin, end, begin)) or 10.0
        for index in range(begin + 1, end - 1):
            if self._chars[index] == " " and self._chars[index - 1] != " " and self._chars[index + 1] != " ":
                before, after = self._origin(index - 1)[0], self._origin(index + 1)[0]
                if after - before <= _GAP_SIZES * size:
                    continue  # with the width of the character before it, already
                gap = after - self._right_edge(index - 1)
                if gap > _GAP_SIZES * size:
                    found.append(index)
        return found

    def _level(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The span cut at spaces after which the text stands at another height or in another direction."""
        edges = [begin]
        for space in range(begin + 1, end - 1):
            if self._chars[space] != " ":
                continue
            before, after = space - 1, space + 1
            height = abs(self._origin(before)[1] - self._origin(after)[1])
            if self._direction(before) != self._direction(after) or height > 0.6 * self._size(after):
                edges.append(after)
        return list(zip(edges, [*edges[1:], end], strict=True))

    def _cut(self, begin: int, end: int) -> list[tuple[int, int]]:
        edges = [begin, *self._gaps(begin, end), end] if end - begin > 2 else [begin, end]
        return list(zip(edges, edges[1:], strict=False))


def _hyphens(text: str) -> str:
    """What PDFium has for a hyphen at the end of a line."""
    return text.replace("\ufffe", "-").replace("\x02", "-")


def _raised(before: str, mark: str) -> str:
    """A raised mark behind a word refers to a note; a number behind a symbol or a unit is a power."""
    if mark.isdigit() and POWER.search(before):
        return f"^{mark}"
    return f"{NOTE_OPEN}{mark}{NOTE_CLOSE}"


def mirrored(lines: list[LinePiece], width: float) -> list[LinePiece]:
    """The lines of a page as seen in a mirror."""
    return [replace(line, x0=width - line.x1, x1=width - line.x0) for line in lines]


def _reads_leftwards(text: str) -> bool:
    """True when most of the letters are of a right-to-left script."""
    found = len(RTL.findall(text))
    return found > 0 and 2 * found > sum(map(str.isalpha, text))


def merged_pieces(pieces: list[LinePiece]) -> list[LinePiece]:
    """Pieces on one baseline (a raised mark, a table cell) as one line, from top to bottom."""
    ordered = sorted(pieces, key=lambda line: -line.y)
    if not any(map(_level, ordered, ordered[1:])):
        return ordered
    result: list[list[LinePiece]] = []
    for piece in ordered:
        group = result[-1] if result else None
        if group and _same_line(group, piece):
            group.append(piece)
        else:
            result.append([piece])
    return [_as_one(group) for group in result]


def _level(line: LinePiece, other: LinePiece) -> bool:
    return abs(line.y - other.y) <= 0.45 * max(line.size, other.size)


def _same_line(group: list[LinePiece], piece: LinePiece) -> bool:
    largest = max(group, key=lambda line: line.size)
    if not _level(largest, piece):
        return False
    # beside each other, not one above the other in a tight setting
    return all(piece.x0 >= other.x1 - 2 or piece.x1 <= other.x0 + 2 for other in group)


def _as_one(group: list[LinePiece]) -> LinePiece:
    if len(group) == 1:
        return group[0]
    group = sorted(group, key=lambda line: line.x0)
    main = max(group, key=lambda line: (line.size, len(line.text)))
    text = ""
    for index, piece in enumerate(group):
        mark = re.fullmatch(r"\d{1,3}|[*†‡§]", piece.text) and piece.size < 0.85 * main.size
        shown = _raised(text, piece.text) if mark else piece.text
        gap = piece.x0 - group[index - 1].x1 if index else 0.0
        least = _CJK_GAP_SIZES if re.search(f"{CJK}\\Z", text) and re.match(CJK, shown) else 0.12
        text += (" " if index and gap > least * main.size else "") + shown
    return replace(main, text=text, x0=group[0].x0, x1=group[-1].x1)
