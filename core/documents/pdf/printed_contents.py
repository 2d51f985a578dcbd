"""The titles that a printed list of contents names, and the pages that begin with them: there they are
headings, though they stand where later pages have their running heads. Pure functions on lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from core.documents.pdf.page import LinePiece, merged_pieces
from core.documents.structure.contents import CONTENTS_TITLE
from core.documents.structure.headings import title_key

_ENTRY = re.compile(r"(.*?[^\W\d_].*?)[\s.·…_]+(?:\d{1,4}|[ivxlc]{1,7})", re.I)
_FIRST_PAGES = 40  # of the book, on which a list of contents begins
_LONGEST = 20  # pages of it
_FEWEST = 3
_TOP_LINES = 3


def titled_pages(pages: Sequence[list[LinePiece]]) -> list[tuple[str, int]]:
    """The titles of the file's printed list of contents, each with the first page behind the list that has it
    at its top. Empty where one is missing, or they come in another order.
    """
    titles, number = _listed(pages)
    found: list[tuple[str, int]] = []
    for title in titles:
        key = title_key(title)
        number = next((n for n in range(number, len(pages)) if key in _tops(pages[n])), len(pages))
        if number == len(pages):
            return []
        found.append((title, number))
    return found


def _tops(page: list[LinePiece]) -> set[str]:
    return {title_key(line.text) for line in merged_pieces(page)[:_TOP_LINES]}


def _listed(pages: Sequence[list[LinePiece]]) -> tuple[list[str], int]:
    """The entries of the list, page numbers cut off, and the first page behind it; none without a list."""
    for number, page in enumerate(islice(pages, _FIRST_PAGES)):
        lines = [line.text.strip() for line in merged_pieces(page)]
        start = next(
            (at for at, text in enumerate(lines) if CONTENTS_TITLE.fullmatch(text.strip(" .:"))), None
        )
        if start is None:
            continue
        entries = list(_entries(lines[start + 1 :]))
        after = number + 1
        while entries and after < min(len(pages), number + _LONGEST):
            lines = [line.text.strip() for line in merged_pieces(pages[after])]
            more = list(_entries(lines))
            if 2 * len(more) <= len(lines):
                break
            entries += more
            after += 1
        if len(entries) >= _FEWEST:
            return entries, after
    return [], len(pages)


def _entries(lines: Sequence[str]) -> Iterator[str]:
    for text in lines:
        if found := _ENTRY.fullmatch(text):
            yield found.group(1)
