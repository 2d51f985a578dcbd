"""Tables of markup whose rows are read as lines, told apart from those that set a page."""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree

from core.documents.formats.markup import local
from core.documents.structure.headings import CELL_END

_CELL_CHARS = 400  # a longer text in a table is set by it, not listed
_SETTING = frozenset({"table", "pre", "h1", "h2", "h3", "h4", "h5", "h6"})  # inside one that sets a page


@dataclass(frozen=True, slots=True)
class TableTags:
    """What a kind of markup calls its tables, and the elements for a paragraph and a line end in it."""

    table: str
    row: str
    cells: frozenset[str]
    paragraph: str
    line_end: str


def rows_to_lines(root: etree._Element, tags: TableTags) -> None:
    """Every table of short cells becomes a paragraph with a line for each row. A table that sets a page, with
    long texts or other tables in its cells, stays.
    """
    for table in [element for element in root.iter() if local(element) == tags.table]:
        rows = [
            [" ".join(" ".join(cell.itertext()).split()) for cell in line if local(cell) in tags.cells]
            for line in table.iter()
            if local(line) == tags.row
        ]
        nested = sum(local(element) == tags.table for element in table.iter()) > 1
        if nested or max((len(cell) for line in rows for cell in line), default=0) > _CELL_CHARS:
            continue
        tail = table.tail
        table.clear()
        table.tag, table.tail = tags.paragraph, tail
        for line in (CELL_END.join(row) for row in rows if any(row)):
            if table.text is None:
                table.text = line
            else:
                etree.SubElement(table, tags.line_end).tail = line


def is_listing(table: etree._Element) -> bool:
    """Whether a table of HTML has rows of short cells: it sets no page, and is no list of what is in the
    book, which leads there.
    """
    names = {local(element) for element in table.iterdescendants()}
    if not names.isdisjoint(_SETTING):
        return False
    rows = [element for element in table.iter() if local(element) == "tr"]
    cells = [[cell for cell in row if local(cell) in ("td", "th")] for row in rows]
    if max(map(len, cells), default=0) < 2:
        return False
    leads = sum(any(map(_leads_into_the_book, row.iter())) for row in rows)
    longest = max(len(" ".join("".join(cell.itertext()).split())) for row in cells for cell in row)
    return longest <= _CELL_CHARS and 2 * leads < len(rows)


def _leads_into_the_book(element: etree._Element) -> bool:
    """Whether it is a link to a place of the same book that is no note's number."""
    href = element.get("href") if local(element) == "a" else None
    return bool(href) and "://" not in href and not "".join(element.itertext()).strip("[]()*†‡ ").isdigit()
