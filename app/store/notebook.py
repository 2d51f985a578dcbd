"""What a person leaves in a book: where they stopped reading, bookmarks with notes, and for every answer
about it instructions and how it is read. Values only.

A bookmark keeps the words it stands at, because a file that is read anew (by a newer reader, or with its
pictures) may have them at another place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from core.config import INSTRUCTIONS_CHARS, READING_MODES

WORDS_CHARS, NOTE_CHARS = 400, 10_000


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place: `length` characters from `offset`, which begin with `words`. `lost`: they are not in the book
    any more.
    """

    offset: int
    length: int
    words: str
    note: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Notebook:
    """Of one book. `position`: of the paragraph that was read last; None: it was not opened yet. `names_end`:
    up to where its people, places and terms were shown last; None: they were not. `visit`: the position at
    which the book was opened last, `visit_before`: the time before; None: it was not opened before.
    `came_from`: the position that a place was looked up from, until the person is back; None: from none.
    `reading_mode`: how questions have it read (core.config.READING_MODES); "": as the settings say.
    `spoiler_limit`: the last that was chosen, which holds until there is a conversation, which has its own.
    """

    position: int | None = None
    bookmarks: tuple[Bookmark, ...] = ()
    instructions: str = ""
    reading_mode: str = ""
    names_end: int | None = None
    visit: int | None = None
    visit_before: int | None = None
    came_from: int | None = None
    spoiler_limit: int | None = None

    def visited(self) -> Notebook:
        """As it is when the book is opened: another visit begins where the person has read on."""
        if self.position is None or self.position == self.visit:
            return self
        return replace(self, visit=self.position, visit_before=self.visit or 0)

    def with_bookmark(self, new: Bookmark) -> Notebook:
        """In place of the one at its offset, in the order of the book."""
        others = (one for one in self.bookmarks if one.offset != new.offset)
        return replace(self, bookmarks=tuple(sorted((*others, new), key=lambda one: one.offset)))

    def without_bookmark(self, offset: int) -> Notebook:
        """Unknown offsets are fine."""
        return replace(self, bookmarks=tuple(one for one in self.bookmarks if one.offset != offset))

    def brought(self, new: Iterable[Bookmark], text: str) -> Notebook:
        """With bookmarks of another computer as well, where their words stand in this text. What stands at a
        place already stays.
        """
        found = (one for one in _settled(new, text) if not one.lost)
        here = {one.offset: one for one in (*found, *self.bookmarks)}
        return replace(self, bookmarks=tuple(here[offset] for offset in sorted(here)))

    def settled_in(self, text: str) -> Notebook:
        """With every place where its words stand in this text, the nearest one where they stand often."""
        position = self.position if self.position is not None and self.position < len(text) else None
        return replace(self, position=position, bookmarks=tuple(_settled(self.bookmarks, text)))

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` takes."""
        return {name: one for name, one in asdict(self).items() if one is not None or name == "position"}

    @classmethod
    def from_json(cls, data: Any) -> Notebook:
        """The inverse of `to_json`. Raises TypeError, KeyError or ValueError for anything else."""
        marks = [_checked(Bookmark(**one)) for one in data["bookmarks"]]
        position = data["position"]
        names = ("names_end", "visit", "visit_before", "came_from", "spoiler_limit")
        others = {name: data.get(name) for name in names}
        for one in (position, *others.values()):
            if one is not None and (not isinstance(one, int) or one < 0):
                raise ValueError(f"a place of {one!r}")
        instructions = data.get("instructions", "")  # notebooks of earlier versions have none
        if not isinstance(instructions, str):
            raise ValueError("instructions that are no text")
        mode = data.get("reading_mode", "")
        if mode not in ("", *READING_MODES):
            raise ValueError(f"a reading mode of {mode!r}")
        return cls(position, tuple(marks), instructions[:INSTRUCTIONS_CHARS], mode, **others)


def _settled(marks: Iterable[Bookmark], text: str) -> Iterable[Bookmark]:
    for mark in marks:
        if text.startswith(mark.words, mark.offset):
            yield replace(mark, lost=False)
            continue
        before = text.rfind(mark.words, 0, mark.offset)
        after = text.find(mark.words, mark.offset)
        near = min(
            (at for at in (before, after) if at >= 0), key=lambda at: abs(at - mark.offset), default=None
        )
        yield replace(mark, lost=True) if near is None else replace(mark, offset=near, lost=False)


def _checked(mark: Bookmark) -> Bookmark:
    sizes, words = (mark.offset, mark.length), (mark.words, mark.note)
    if not all(isinstance(one, int) and one >= 0 for one in sizes) or not all(
        isinstance(one, str) for one in words
    ):
        raise ValueError("a bookmark that is none")
    return mark
