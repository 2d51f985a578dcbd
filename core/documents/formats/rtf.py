"""Rich text (RTF) to a manuscript: its words by striprtf, headings, rows and notes by marks in its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from core.documents.files.clean import one_line, paragraph, without_emphasis
from core.documents.formats.plain import manuscript_of, manuscript_of_blocks
from core.documents.formats.rtf_marks import NOTE_CLOSE, NOTE_OPEN, PARAGRAPH, ROW, marked_source
from core.documents.structure.blocks import CUT_OFF, Block, Manuscript
from core.documents.structure.headings import CELL_END
from core.errors import DocumentError
from core.text.words import translated as _

_MOST_BYTES = 64 << 20
# pictures as hexadecimal digits: nothing to read, and most of such a file
_PICTURE = re.compile(rb"(?:[0-9a-fA-F]{2}){64,}\s*(?:(?:[0-9a-fA-F]{2})+\s+)*")
_FIELD = r"\{\\%s ((?:[^{}\\]|\\'[0-9a-f]{2}|\\u-?\d+ ?\??)*)\}"
_END = re.compile(f"[{PARAGRAPH}-{ROW}]")
_NOTE = re.compile(f"{NOTE_OPEN}([^{NOTE_OPEN}{NOTE_CLOSE}]*){NOTE_CLOSE}")
_MARKS = re.compile(f"[{PARAGRAPH}-{NOTE_CLOSE}]")
_LONG_CHARS = 120  # paragraphs that usually are shorter are the lines of a wrapped text


def read_rtf(data: bytes, name: str) -> Manuscript:
    """Title and author by its own data. Raises DocumentError for damaged files and those without text."""
    from striprtf.striprtf import rtf_to_text

    source = _PICTURE.sub(b"", data).decode("latin-1")
    if len(source) > _MOST_BYTES:
        raise DocumentError(_("{name} is too large for a rich text file (RTF).").format(name=name))
    try:
        text = rtf_to_text(marked_source(source), errors="ignore")
        title, author = (_field(source, field) for field in ("title", "author"))
    except (ValueError, LookupError, IndexError, OverflowError, RecursionError) as error:
        raise DocumentError(
            _("{name} is a damaged rich text file (RTF). Open it and save it as DOCX or PDF.").format(
                name=name
            )
        ) from error
    if not _MARKS.sub("", text).strip():
        raise DocumentError(_("{name} is a rich text file (RTF) without text.").format(name=name))
    if _is_wrapped(text):
        whole = _of_lines(text, title, author)
    else:
        whole = manuscript_of_blocks(list(_blocks(text)), "rtf", title=title, author=author)
    return whole if source.rstrip("\0\r\n ").endswith("}") else replace(whole, warnings=(_(CUT_OFF),))


def _is_wrapped(text: str) -> bool:
    """No headings, and paragraphs as short as lines: a text wrapped by hand or by another program."""
    ends = set(_END.findall(text))
    lengths = [len(part) for part in _END.split(_NOTE.sub("", text)) if part.strip()] or [0]
    return ends <= {PARAGRAPH} and median(lengths) <= _LONG_CHARS and max(lengths) <= 4 * _LONG_CHARS


def _of_lines(text: str, title: str, author: str) -> Manuscript:
    """The paragraphs of a wrapped text as those of any text; its notes stand at the end, numbered."""
    plain, notes = _without_notes(text, 1)
    end = "".join(f"\n\n{note}" for note in notes)
    return manuscript_of(_MARKS.sub("", plain) + end, "rtf", title=title, author=author)


def _blocks(text: str) -> Iterator[Block]:
    """A block for each paragraph, its notes after it; the rows of a table are the lines of one block."""
    number, position = 1, 0
    rows: list[str] = []
    for found in [*_END.finditer(_hidden_ends(text)), None]:
        part = text[position : found.start() if found else len(text)]
        position = found.end() if found else len(text)
        plain, notes = _without_notes(part, number)
        number += len(notes)
        end = found.group() if found else PARAGRAPH
        if end == ROW:
            rows.append(CELL_END.join(cell.strip() for cell in plain.rstrip().rstrip("|").split("|")))
            continue
        if plain.strip() or notes:
            yield from _blocks_of("\n".join(rows), 0, [])
            rows.clear()
        yield from _blocks_of(plain, ord(end) - ord(PARAGRAPH), notes)
    yield from _blocks_of("\n".join(rows), 0, [])


def _hidden_ends(text: str) -> str:
    """As long as the text, without the ends of paragraphs inside notes."""
    return _NOTE.sub(lambda found: " " * len(found.group()), text)


def _blocks_of(text: str, level: int, notes: list[str]) -> Iterator[Block]:
    clean = without_emphasis(paragraph(_MARKS.sub("", text)))
    if clean:
        yield Block(clean, heading=min(6, level))
    for note in notes:
        yield Block(note)


def _without_notes(text: str, first: int) -> tuple[str, list[str]]:
    """The text with "[3]" in the place of its notes, and these with their numbers, which begin at `first`."""
    notes: list[str] = []

    def number(found: re.Match[str]) -> str:
        notes.append(f"[{first + len(notes)}] {one_line(_MARKS.sub(' ', found.group(1)))}")
        return f"[{first + len(notes) - 1}]"

    return _NOTE.sub(number, text), notes


def _field(source: str, field: str) -> str:
    from striprtf.striprtf import rtf_to_text

    found = re.search(_FIELD % field, source[:20_000])
    return one_line(rtf_to_text("{\\rtf1 " + found.group(1) + "}", errors="ignore")) if found else ""
