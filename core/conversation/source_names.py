"""What was read for an answer, in the reader's words and as few of them as say it: parts that follow each
other are one place, and all chapters are counted instead of named.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.conversation.chapter_names import chapter_names, range_name
from core.conversation.reading import ReadingPart, book_chapters
from core.documents.document import Document
from core.text.words import translated as _
from core.text.words import translated_count as _n


def source_names(document: Document, parts: Sequence[ReadingPart]) -> tuple[str, ...]:
    """Names for `parts`, which are in the order of the book. A chapter that was read in pieces is whole where
    all of them were.
    """
    book = book_chapters(document)
    runs = _in_a_row(parts)
    if len(runs) == 1 and parts[0].start <= book[0].start and book[-1].end <= parts[-1].end:
        if len(book) == 1:
            return (_("the whole book"),)
        return (_n("its {count} chapter", "all {count} chapters", len(book)).format(count=len(book)),)
    return tuple(name for run in runs for name in _names(document, run))


def _in_a_row(parts: Sequence[ReadingPart]) -> list[list[ReadingPart]]:
    """The parts, cut where one does not begin at the end of the one before."""
    runs: list[list[ReadingPart]] = []
    for part in parts:
        if runs and runs[-1][-1].end == part.start:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _names(document: Document, run: Sequence[ReadingPart]) -> list[str]:
    """The pieces of a chapter before it, the chapters that were read whole, and the pieces behind them."""
    book, start, end = book_chapters(document), run[0].start, run[-1].end
    whole = [at for at, one in enumerate(book) if start <= one.start and one.end <= end]
    if not whole:
        return [part.label for part in run]
    first, last = book[whole[0]].start, book[whole[-1]].end
    before = [part.label for part in run if part.start < first]
    behind = [part.label for part in run if part.start >= last]
    return [*before, range_name(chapter_names(document, book), whole), *behind]
