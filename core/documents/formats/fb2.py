"""FictionBook (FB2) to a manuscript: sections are chapters, notes follow their paragraph, no pictures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lxml import etree

from core.documents.files.decode import decode_markup
from core.documents.formats.markup import Collector, attribute, local, markup_events, text_of, tree_of
from core.documents.formats.series import series_name, volume_number
from core.documents.formats.tables import TableTags, rows_to_lines
from core.documents.structure.blocks import CUT_OFF, ContentsEntry, Manuscript
from core.documents.structure.notes import NoteReference, notes_in_place
from core.errors import DocumentError
from core.text.words import translated as _

_BINARY = re.compile(rb"<binary\b[^>]*>.*?(?:</binary\s*>|\Z)", re.S)
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>|<!DOCTYPE[^\[>]*(?:\[.*?\])?\s*>", re.S)
_MOST_CHARS = 100_000_000
_SKIPPED = frozenset({"description", "binary", "stylesheet", "image"})
_PARAGRAPHS = frozenset({"p", "stanza", "subtitle", "text-author", "date"})
_TABLES = TableTags("table", "tr", frozenset({"td", "th"}), "p", "v")


def read_fb2(data: bytes, name: str) -> Manuscript:
    """Title and author by its description. Raises DocumentError for damaged files and those without text."""
    text = decode_markup(_BINARY.sub(b"", data))[0]
    try:
        if len(text) > _MOST_CHARS:
            raise DocumentError(_("{name} is too large for a FictionBook.").format(name=name))
        root = tree_of(_DECLARATION.sub("", text).encode("utf-8"))
    except (etree.LxmlError, ValueError) as error:
        raise DocumentError(
            _("{name} is a damaged FictionBook (FB2). Download it again.").format(name=name)
        ) from error
    rows_to_lines(root, _TABLES)
    found = _walked(root)
    blocks, marks = notes_in_place(found.blocks, found.marks, found.references())
    if not found.blocks:
        raise DocumentError(_("{name} is a FictionBook (FB2) without text.").format(name=name))
    info = next((element for element in root.iter() if local(element) == "title-info"), None)
    series, volume = _series(info)
    return Manuscript(
        "fb2",
        blocks,
        title=_title(info),
        author=_author(info),
        marks=marks,
        warnings=(_(CUT_OFF),) if text.rfind("</body") < text.rfind("<body") else (),
        series=series,
        volume=volume,
    )


@dataclass(slots=True)
class _Book(Collector):
    """Its paragraphs, with the notes by their names and what refers to them: (block, mark, name)."""

    notes: dict[str, tuple[int, int]] = field(default_factory=dict)
    links: list[tuple[int, str, str]] = field(default_factory=list)

    def references(self) -> list[NoteReference]:
        """The notes that the text refers to."""
        return [
            NoteReference(block, mark, *self.notes[name])
            for block, mark, name in self.links
            if name in self.notes and mark
        ]


def _walked(root: etree._Element) -> _Book:
    found = _Book()
    opened: list[int] = []  # the first block of each section that is open
    depth, heading, notes = 0, 0, False
    for event, name, element in markup_events(root, _SKIPPED):
        if event == "start":
            if name == "body" and attribute(element, "name"):
                found.marks.append(ContentsEntry("Notes", 1, len(found.blocks)))
                depth, notes = 1, True
            if name == "section":
                depth += 1
                opened.append(len(found.blocks))
            if name == "title":
                heading = max(1, depth)
            note = name == "a" and attribute(element, "type") == "note"
            mark = text_of(element).strip("[]")
            found.add(f"[{mark}]" if note else element.text)
            if note:
                found.links.append((len(found.blocks), mark, attribute(element, "href").removeprefix("#")))
                for child in element.iter():
                    child.text = None
            continue
        if event == "end" and name == "v":
            found.put("\n")
        elif event == "end" and name in _PARAGRAPHS and not heading:
            found.close(heading=min(6, depth + 1) if name == "subtitle" else 0)
        elif event == "end" and name in _PARAGRAPHS:
            found.add(" ")
        elif event == "end" and name == "title":
            found.close(heading=min(6, heading), marked=heading if depth > notes else 0)
            heading = 0
        elif event == "end" and name in ("section", "body"):
            found.close()
            depth = max(0, depth - 1) if name == "section" else 0
            if name == "section" and opened:
                found.notes[attribute(element, "id")] = (opened.pop(), len(found.blocks))
        found.add(element.tail)
    found.close()
    return found


def _title(info: etree._Element | None) -> str:
    return next(
        (text_of(child) for child in (info if info is not None else ()) if local(child) == "book-title"), ""
    )


def _series(info: etree._Element | None) -> tuple[str, float | None]:
    for child in info if info is not None else ():
        if local(child) == "sequence" and (name := series_name(child.get("name", ""))):
            return name, volume_number(child.get("number", ""))
    return "", None


def _author(info: etree._Element | None) -> str:
    names = []
    for author in info if info is not None else ():
        if local(author) != "author":
            continue
        parts = {local(part): text_of(part) for part in author}
        full = " ".join(filter(None, (parts.get(key) for key in ("first-name", "middle-name", "last-name"))))
        names.append(full or parts.get("nickname", ""))
    return ", ".join(filter(None, names))
