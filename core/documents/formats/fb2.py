"""FictionBook (FB2) to a manuscript: sections are chapters, notes follow the text, pictures stay outside."""

from __future__ import annotations

import re

from lxml import etree

from core.documents.files.decode import decode_markup
from core.documents.formats.markup import Collector, attribute, local, markup_events, text_of, tree_of
from core.documents.formats.series import series_name, volume_number
from core.documents.structure.blocks import CUT_OFF, ContentsEntry, Manuscript
from core.errors import DocumentError
from core.text.words import translated as _

_BINARY = re.compile(rb"<binary\b[^>]*>.*?(?:</binary\s*>|\Z)", re.S)
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>|<!DOCTYPE[^\[>]*(?:\[.*?\])?\s*>", re.S)
_MOST_CHARS = 100_000_000
_SKIPPED = frozenset({"description", "binary", "stylesheet", "image"})
_PARAGRAPHS = frozenset({"p", "stanza", "subtitle", "text-author", "date", "td", "th"})


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
    found = _walked(root)
    if not found.blocks:
        raise DocumentError(_("{name} is a FictionBook (FB2) without text.").format(name=name))
    info = next((element for element in root.iter() if local(element) == "title-info"), None)
    series, volume = _series(info)
    return Manuscript(
        "fb2",
        found.blocks,
        title=_title(info),
        author=_author(info),
        marks=found.marks,
        warnings=(_(CUT_OFF),) if text.rfind("</body") < text.rfind("<body") else (),
        series=series,
        volume=volume,
    )


def _walked(root: etree._Element) -> Collector:
    found = Collector()
    depth, heading, notes = 0, 0, False
    for event, name, element in markup_events(root, _SKIPPED):
        if event == "start":
            if name == "body" and attribute(element, "name"):
                found.marks.append(ContentsEntry("Notes", 1, len(found.blocks)))
                depth, notes = 1, True
            depth += name == "section"
            if name == "title":
                heading = max(1, depth)
            note = name == "a" and attribute(element, "type") == "note"
            found.add(f"[{text_of(element).strip('[]')}]" if note else element.text)
            if note:
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
