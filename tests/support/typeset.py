"""Sets a text as a printed book in PDF, so that tests and benchmarks know exactly what a reader of it must
find.

Justified lines, hyphenation, running heads, page numbers, footnotes with raised marks, drop capitals, one or
more columns. They can be drawn row by row, as some programs do: then the file's own order runs across the
page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import reportlab
from reportlab.pdfbase.pdfmetrics import registerFont, stringWidth
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

_NOTE = re.compile(r"\{(\d+)\}")
_VOWELS = "aeiouy"
_NOTES_PER_PAGE = 3  # room kept under several columns
_SYLLABLES = ["ba", "ke", "lo", "mi", "nu", "pra", "stel", "tor", "vig", "wen", "xan", "yor", "zim"]


@dataclass(frozen=True, slots=True)
class Style:
    """How the book is set. Sizes in points."""

    columns: int = 1
    width: float = 420.0
    height: float = 595.0
    margin: float = 48.0
    gutter: float = 18.0
    size: float = 10.5
    leading: float = 13.0
    font: str = "Times-Roman"
    heads: bool = True
    hyphens: bool = True
    notes_every: int = 0  # a footnote in every n-th paragraph; 0 for none
    drop_capitals: bool = False
    ligatures: bool = False  # needs a TrueType font; Vera is used
    row_by_row: bool = False  # lines of both columns drawn in turn
    outline: bool = True


@dataclass(slots=True)
class _Chunk:
    """A line to be drawn: words, whether it is stretched, and the note marks it holds."""

    text: str
    indent: float
    full: bool
    notes: list[int]


def typeset(
    title: str, author: str, chapters: Sequence[tuple[str, Sequence[str]]], style: Style | None = None
) -> tuple[bytes, int]:
    """The PDF and its number of pages. `chapters`: (title, paragraphs); "{3}" in a paragraph refers to
    footnote 3.
    """
    style = style or Style()
    return _Book(title, author, style).run(chapters)


def note_text(number: int) -> str:
    """The text of footnote `number`: two lines that no book contains, different each time."""
    spell = "".join(_SYLLABLES[(number * factor) % len(_SYLLABLES)] for factor in (1, 3, 7))
    return (
        f"See {spell.title()} on this matter, who holds with {spell[::-1]} that a remark belongs to the foot "
        "of the page "
        f"and never to the sentence above it; {spell} agrees."
    )


def annotated(paragraphs: Sequence[str], every: int, first: int) -> tuple[list[str], int]:
    """The paragraphs with a "{n}" after the first sentence of every n-th one, and the next free number."""
    result, number = [], first
    for index, paragraph in enumerate(paragraphs):
        end = re.search(r"[a-z][.!?](?=\s[A-Z])", paragraph)
        if every and index % every == every - 1 and end:
            paragraph = f"{paragraph[: end.end()]}{{{number}}}{paragraph[end.end() :]}"
            number += 1
        result.append(paragraph)
    return result, number


class _Book:
    """One run of the press."""

    def __init__(self, title: str, author: str, style: Style) -> None:
        self._style, self._title = style, title
        self._buffer = io.BytesIO()
        self._canvas = Canvas(self._buffer, pagesize=(style.width, style.height), pageCompression=1)
        self._canvas.setTitle(title)
        self._canvas.setAuthor(author)
        self._font = style.font
        if style.ligatures:
            registerFont(TTFont("Vera", str(Path(reportlab.__file__).parent / "fonts" / "Vera.ttf")))
            self._font = "Vera"
        self._page = 0
        self._chapter = ""
        self._column_width = (
            style.width - 2 * style.margin - style.gutter * (style.columns - 1)
        ) / style.columns

    def run(self, chapters: Sequence[tuple[str, Sequence[str]]]) -> tuple[bytes, int]:
        for number, (title, paragraphs) in enumerate(chapters):
            self._chapter = title
            self._set_chapter(title, paragraphs, number)
        self._canvas.save()
        return self._buffer.getvalue(), self._page

    def _set_chapter(self, title: str, paragraphs: Sequence[str], number: int) -> None:
        style = self._style
        if style.outline:
            self._canvas.bookmarkPage(f"c{number}")
            self._canvas.addOutlineEntry(title, f"c{number}", level=0)
        top = style.height - style.margin - 60
        self._canvas.setFont("Times-Bold", 1.7 * style.size)
        self._canvas.drawCentredString(style.width / 2, top + 20, title)
        lines = [
            line for index, paragraph in enumerate(paragraphs) for line in self._lines(paragraph, index == 0)
        ]
        opening = True
        while lines:
            first_top = top - 10 if opening else style.height - style.margin - 2 * style.leading
            lines = self._page_of(lines, first_top, opening)
            opening = False

    def _page_of(self, lines: list[_Chunk], top: float, opening: bool) -> list[_Chunk]:
        """Draw one page and return what is left."""
        style = self._style
        columns: list[list[tuple[float, _Chunk]]] = []
        notes: list[int] = []
        for _ in range(style.columns):
            y, column = top, []
            while lines:
                added = notes + lines[0].notes
                room = len(added) if style.columns == 1 else _NOTES_PER_PAGE * bool(style.notes_every)
                if y < style.margin + style.leading + (room * 2 + 1) * 0.8 * style.leading * bool(
                    room
                ) or len(added) > max(room, len(lines[0].notes)):
                    break
                notes = added
                column.append((y, lines.pop(0)))
                y -= style.leading
            columns.append(column)
        if opening and style.drop_capitals and columns[0]:
            self._drop_capital(columns[0])
        self._draw(columns)
        self._draw_notes(notes)
        self._page += 1
        if style.heads:
            self._furniture(opening)
        self._canvas.showPage()
        return lines

    # ---- lines ----

    def _lines(self, paragraph: str, first: bool) -> list[_Chunk]:
        """The paragraph broken into lines: greedy, hyphenated where it helps."""
        style = self._style
        words = paragraph.split()
        lines: list[_Chunk] = []
        capital = 2 * style.size if first and style.drop_capitals else 0.0
        current: list[str] = []
        while words or current:
            indent = (0.0 if first else 1.4 * style.size) if not lines else 0.0
            if capital and len(lines) < 2:
                indent = capital
            room = self._column_width - indent
            if words and self._width(" ".join([*current, words[0]])) <= room:
                current.append(words.pop(0))
                continue
            if words and not current:
                current.append(words.pop(0))  # a word wider than the column sticks out
            elif words and style.hyphens:
                head = self._split(words[0], room - self._width(" ".join([*current, ""])))
                if head:
                    current.append(head)
                    words[0] = words[0][
                        len(head.rstrip("-")) if not words[0].startswith(head) else len(head) :
                    ]
            text = " ".join(current)
            lines.append(_Chunk(text, indent, bool(words), [int(mark) for mark in _NOTE.findall(text)]))
            current = []
        return lines

    def _split(self, word: str, room: float) -> str | None:
        """The longest beginning of the word that fits with a hyphen: at its own hyphen, else after a vowel
        and a consonant.
        """
        best = None
        for index in range(2, len(word) - 2):
            if word[index - 1] == "-" and word[index].isalpha():
                head = word[:index]
            elif (
                word[: index + 3].isalpha()
                and word[index - 1].lower() in _VOWELS
                and word[index].lower() not in _VOWELS
                and (index >= 3)
            ):
                head = word[:index] + "-"
            else:
                continue
            if self._width(head) <= room:
                best = head
        return best

    def _shown(self, text: str) -> str:
        return text.replace("fi", "\ufb01").replace("fl", "\ufb02") if self._style.ligatures else text

    def _width(self, text: str) -> float:
        return stringWidth(self._shown(_NOTE.sub("", text)), self._font, self._style.size) + 4 * len(
            _NOTE.findall(text)
        )

    # ---- drawing ----

    def _draw(self, columns: list[list[tuple[float, _Chunk]]]) -> None:
        style = self._style
        jobs = [
            (style.margin + index * (self._column_width + style.gutter), y, line)
            for index, column in enumerate(columns)
            for y, line in column
        ]
        if style.row_by_row:
            jobs.sort(key=lambda job: (-job[1], job[0]))
        for x, y, line in jobs:
            self._draw_line(x + line.indent, y, line)

    def _draw_line(self, x: float, y: float, line: _Chunk) -> None:
        text = self._canvas.beginText(x, y)
        spaces = line.text.count(" ")
        slack = self._column_width - line.indent - self._width(line.text)
        stretch = slack / spaces if line.full and spaces and 0 < slack < 0.35 * self._column_width else 0.0
        pieces = _NOTE.split(line.text)
        for index, piece in enumerate(pieces):
            if index % 2:
                text.setFont(self._font, 0.6 * self._style.size)
                text.setRise(0.35 * self._style.size)
                text.textOut(piece)
                text.setRise(0)
            elif piece:
                text.setFont(self._font, self._style.size)
                self._words_out(text, piece, stretch)
        self._canvas.drawText(text)

    def _words_out(self, text: object, piece: str, stretch: float) -> None:
        # word spacing has no effect on fonts of two-byte codes: with ligatures the lines stay ragged
        text.setWordSpace(0 if self._style.ligatures else stretch)
        text.textOut(self._shown(piece))

    def _drop_capital(self, column: list[tuple[float, _Chunk]]) -> None:
        """Take the first letter from the first line and draw it two lines high."""
        y, line = column[0]
        self._canvas.setFont("Times-Bold", 2 * self._style.leading)
        self._canvas.drawString(self._style.margin, y - self._style.leading, line.text[:1])
        column[0] = (y, replace(line, text=line.text[1:]))

    def _draw_notes(self, notes: list[int]) -> None:
        style = self._style
        size, leading = 0.78 * style.size, 0.8 * style.leading
        y = style.margin + (2 * len(notes) - 1) * leading
        for number in notes:
            text = self._canvas.beginText(style.margin, y)
            text.setFont(self._font, 0.6 * size)
            text.setRise(0.35 * size)
            text.textOut(str(number))
            text.setRise(0)
            text.setFont(self._font, size)
            for line in self._note_lines(number, size):
                text.textOut(line)
                text.setTextOrigin(style.margin, y - leading)
            self._canvas.drawText(text)
            y -= 2 * leading

    def _note_lines(self, number: int, size: float) -> list[str]:
        lines, current = [], " "
        for word in note_text(number).split():
            if stringWidth(current + word, self._font, size) > self._style.width - 2 * self._style.margin:
                lines.append(current)
                current = ""
            current += word + " "
        return [*lines, current]

    def _furniture(self, opening: bool) -> None:
        """Page number at the foot of a chapter's first page, else a running head with it."""
        style = self._style
        self._canvas.setFont(self._font, 0.9 * style.size)
        if opening:
            self._canvas.drawCentredString(
                style.width / 2, style.margin - 1.6 * style.leading, str(self._page)
            )
            return
        y = style.height - style.margin - 0.2 * style.leading
        if self._page % 2:
            self._canvas.drawRightString(style.width - style.margin, y, str(self._page))
            self._canvas.drawString(style.margin + 30, y, self._chapter.upper())
        else:
            self._canvas.drawString(style.margin, y, f"{self._page}   {self._title}")
