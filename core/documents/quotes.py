"""Which passages an answer quotes, and where in the book they stand. Compared by words: spacing, quotes and
dashes do not count.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from core.documents.document import Document
from core.documents.locations import Locator

MIN_WORDS = 3
_MIN_CJK_CHARS = 6
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
# one paragraph at a time, but those of what ">" sets apart, which go on below one alone; an apostrophe inside
# a word does not close a single quote
_QUOTED = re.compile(
    r"“([^“”\n]+)”|„([^“”„\n]+)[“”]|«([^«»\n]+)»|»([^«»\n]+)«|「([^「」\n]+)」|『([^『』\n]+)』|"
    r"(?<![^\W_])\"([^\"\n]+)\"(?![^\W_])|(?<!\w)‘([^‘\n]+?)’(?!\w)|"
    r"^[ \t]*>[ \t]?([^\n]+(?:\n>\n>[^\n]+)*)$",
    re.M,
)
_OMISSION = re.compile(r"\[?(?:\.\s?){3,}\]?|\[?…\]?")
_OMISSION_REACH_CHARS = 3000  # how far apart the two sides of "..." may stand in the book


@dataclass(frozen=True, slots=True)
class Quote:
    """A passage in quotation marks: `answer[start:end]`. `found` is its offset in the book's text, None when
    it is not there.
    """

    text: str
    start: int
    end: int
    found: int | None = None
    found_end: int | None = None
    chapter: str | None = None
    page: str | None = None


class QuoteIndex:
    """A book prepared for looking passages up. Build it once per book: about 0.3 s for a long novel."""

    def __init__(self, document: Document) -> None:
        matches = list(_WORD.finditer(document.text))
        self._spans = [match.span() for match in matches]
        words = [match.group().casefold() for match in matches]
        self._text = f" {' '.join(words)} "
        self._offsets: list[int] = []  # of each word in _text
        position = 1
        for word in words:
            self._offsets.append(position)
            position += len(word) + 1
        self._locator = Locator(document)
        self._document = document

    def find(self, passage: str, near: Iterable[tuple[int, int]] = ()) -> tuple[int, int] | None:
        """(start, end) of the passage in the book's text, or None. Where it stands more than once, the place
        in the first of these ranges that has it, else the first place inside a chapter is preferred.
        """
        parts = [words for part in _OMISSION.split(passage) if (words := _words(part))]
        if not parts:
            return None
        places = list(self._places(parts[0]))
        whole = [place for place in places if self._follow(place, parts[1:]) is not None]
        chapters = [place for place in whole if self._kind(place) == "chapter"] or whole
        if len(whole) > 1:
            chapters[:0] = [
                place
                for start, end in near
                for place in whole
                if self._spans[place][0] < end and start < self._end(place, parts[0])
            ]
        for place in chapters[:1]:
            return self._spans[place][0], self._follow(place, parts[1:]) or self._end(place, parts[0])
        return None

    def _places(self, words: list[str]) -> list[int]:
        """The numbers of the words at which the sequence begins."""
        wanted, found, places = f" {' '.join(words)} ", -1, []
        while (found := self._text.find(wanted, found + 1)) >= 0 and len(places) < 200:
            places.append(bisect_left(self._offsets, found + 1))
        return places

    def _follow(self, place: int, parts: list[list[str]]) -> int | None:
        """The end of the last part when all follow, in order and near; 0 when there is none to follow."""
        end, limit = 0, self._spans[place][0]
        for words in parts:
            nearby = [
                candidate
                for candidate in self._places(words)
                if limit < self._spans[candidate][0] < limit + _OMISSION_REACH_CHARS
            ]
            if not nearby:
                return None
            limit = self._spans[nearby[0]][0]
            end = self._end(nearby[0], words)
        return end

    def _end(self, place: int, words: list[str]) -> int:
        return self._spans[place + len(words) - 1][1]

    def _kind(self, place: int) -> str:
        return self._document.sections[self._locator.section_index(self._spans[place][0])].kind

    def located(self, quote: Quote) -> Quote:
        """The quote with its place in the book, where it has one."""
        place = self.find(quote.text)
        if place is None:
            return quote
        where = self._locator.at(place[0])
        return Quote(quote.text, quote.start, quote.end, place[0], place[1], where.chapter, where.page)


def find_quotes(answer: str, book: Document | QuoteIndex) -> list[Quote]:
    """The quoted passages of at least three words in `answer`, each with its place in the book or
    `found=None`.

    Straight and curly quotes, guillemets, corner brackets and "> " lines count as quotation. Pass a
    QuoteIndex to look up several answers in one book.
    """
    index = book if isinstance(book, QuoteIndex) else QuoteIndex(book)
    quotes = []
    for match in _QUOTED.finditer(answer):
        group = next(number for number in range(1, 10) if match.group(number) is not None)
        if _long_enough(match.group(group)):
            quotes.append(index.located(Quote(match.group(group), match.start(group), match.end(group))))
    return quotes


def _words(text: str) -> list[str]:
    return [match.group().casefold() for match in _WORD.finditer(text)]


def _long_enough(text: str) -> bool:
    words = _words(text)
    single = sum(len(word) == 1 and word > "\u2fff" for word in words)
    return len(words) >= (_MIN_CJK_CHARS if single * 2 > len(words) else MIN_WORDS)
