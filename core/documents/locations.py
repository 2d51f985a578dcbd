"""Where in the book an offset lies, in the reader's words: chapter and page. Quick enough for every token."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from core.documents.document import Document


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the book. `page` is the printed label where there is one; None in formats without pages."""

    chapter: str
    page: str | None

    def __str__(self) -> str:
        return f"{self.chapter}, p. {self.page}" if self.page else self.chapter


class Locator:
    """Places of a document by character offset. Bisects tables that are built once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._starts = [section.start for section in document.sections]

    def at(self, offset: int) -> Location:
        """The chapter and page of the character at `offset`."""
        return Location(self.section_title(offset), self._document.page_at(offset))

    def section_index(self, offset: int) -> int:
        """The index in `document.sections` of the section that holds `offset`."""
        return max(0, bisect_right(self._starts, offset) - 1)

    def section_title(self, offset: int) -> str:
        """The title of the section that holds `offset`."""
        return self._document.sections[self.section_index(offset)].title
