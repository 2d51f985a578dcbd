"""The blocks of a book between its notices, how much of it stands where, and which lines may be headings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from core.documents.structure.blocks import Block, ContentsEntry
from core.documents.structure.contents import ContentsPage, contents_page
from core.documents.structure.headings import Heading, read_heading, title_key
from core.documents.word_count import count_words

_HEADING_CHARS = 160
_HEADING_LINES = 3


def _is_short(text: str) -> bool:
    return len(text) <= _HEADING_CHARS and text.count("\n") < _HEADING_LINES


class Body:
    """`blocks` of the file, of which `first` to `last` are the book itself. Words are counted once."""

    def __init__(self, blocks: Sequence[Block], first: int = 0, last: int | None = None) -> None:
        self.blocks = blocks
        self.first = first
        self.last = len(blocks) if last is None else last
        self._words = list(accumulate((count_words(block.text) for block in blocks), initial=0))

    def words(self, start: int, end: int) -> int:
        """The words of the blocks from `start` to before `end`."""
        return self._words[max(start, end)] - self._words[start]

    @cached_property
    def headings(self) -> list[tuple[int, Heading]]:
        """The blocks that may be headings by their form alone."""
        short = (index for index in range(self.first, self.last) if _is_short(self.blocks[index].text))
        return [(index, heading) for index in short if (heading := read_heading(self.blocks[index].text))]

    @cached_property
    def contents(self) -> ContentsPage | None:
        """The printed list of contents."""
        return contents_page(self.blocks, self.first, self.last)

    @property
    def total(self) -> int:
        """The words of the whole book."""
        return self.words(self.first, self.last)

    def has_text(self, mark: ContentsEntry, end: int, words: int) -> bool:
        """More than `words` words of running text from the mark to block `end`, besides its own heading."""
        key = title_key(mark.title)
        count = 0
        for index in range(mark.block, end):
            block = self.blocks[index]
            if block.heading and index < mark.block + 4:
                continue
            if len(block.text) < 200 and title_key(block.text) in key:
                continue
            count += self.words(index, index + 1)
            if count > words:
                return True
        return False
