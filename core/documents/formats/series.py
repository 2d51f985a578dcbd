"""Which series a book belongs to, and which volume of it it is, by an EPUB's package: as EPUB 3 says it
(belongs-to-collection), else as calibre does in EPUB 2.
"""

from __future__ import annotations

import re

from lxml import etree

from core.documents.files.clean import one_line

_NAME_CHARS = 200
_NUMBER = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)(?:\.\d+)*\s*")  # "2", "2.5", "2.5.1"
_SERIES = ("series", "")  # kinds of collection; a set is sold together and has no order


def epub_series(package: etree._Element | None) -> tuple[str, float | None]:
    """The series' name, "" where none is named, and the volume, None where it has no number."""
    if package is None:
        return "", None
    metas = package.xpath("//*[local-name()='metadata']//*[local-name()='meta']")
    found = _collections(metas) or _of_calibre(metas)
    return min(found, key=lambda one: _SERIES.index(one[0]))[1:] if found else ("", None)


def volume_number(said: str) -> float | None:
    """A volume's number as it is written; None for what is none."""
    found = _NUMBER.fullmatch(said)
    return float(found[1]) if found else None


def series_name(said: str) -> str:
    """On one line, and not too long."""
    return one_line(said)[:_NAME_CHARS]


def _collections(metas: list[etree._Element]) -> list[tuple[str, str, float | None]]:
    """(kind, name, volume) of each series that the package names."""
    said: dict[tuple[str, str], str] = {}
    for meta in metas:
        if meta.get("refines"):
            said[meta.get("refines").lstrip("#"), meta.get("property", "")] = meta.text or ""
    found = []
    for meta in metas:
        if meta.get("property") == "belongs-to-collection" and not meta.get("refines"):
            name, own = series_name(meta.text or ""), meta.get("id", "")
            kind = said.get((own, "collection-type"), "").strip()
            if name and kind in _SERIES:
                found.append((kind, name, volume_number(said.get((own, "group-position"), ""))))
    return found


def _of_calibre(metas: list[etree._Element]) -> list[tuple[str, str, float | None]]:
    said = {meta.get("name"): meta.get("content", "") for meta in metas if meta.get("name")}
    name = series_name(said.get("calibre:series", ""))
    return [("series", name, volume_number(said.get("calibre:series_index", "")))] if name else []
