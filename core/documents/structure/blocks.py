"""What every reader hands over before it is bound into a Document: paragraphs, headings, marks of a table of
contents.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from core.text.words import marked as N_

# of a format whose text can be read up to where the file breaks off
CUT_OFF = N_("The file ends before the book does: what came behind was not read. Download or copy it again.")


@dataclass(frozen=True, slots=True)
class Block:
    """One paragraph or heading. `breaks`: (character offset, page index) of the pages that begin inside the
    text.
    """

    text: str
    heading: int = 0  # 1..6 for a heading as the file marks it, 7 as if by hand, 0 for running text
    breaks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ContentsEntry:
    """An entry of the table of contents: the section begins with block number `block`."""

    title: str
    level: int
    block: int


@dataclass(frozen=True, slots=True)
class Manuscript:
    """A file's text in reading order, with whatever structure the file itself names."""

    format: str
    blocks: list[Block]
    title: str = ""
    author: str = ""
    marks: list[ContentsEntry] = field(default_factory=list)
    # as many as the file has pages; empty when it has none or no labels
    page_labels: tuple[str, ...] = ()
    pages: int = 0
    warnings: tuple[str, ...] = ()
    # pages left out because they are pictures, which OCR may be able to read
    pictures: int = 0
    # as the file names it; None: it gives the volume no number
    series: str = ""
    volume: float | None = None
    # all of a saved web page, of which this is the article
    whole: Manuscript | None = None
