"""Notes that stand apart from the text, put behind the paragraph that refers to them. Knows no format."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from core.documents.structure.blocks import Block, ContentsEntry
from core.documents.structure.headings import read_heading
from core.documents.structure.matter import kind_by_title

_MOST_BLOCKS = 12  # of a note; what is longer is a chapter that the text refers to
_ENDS = re.compile(
    r"[.!?…。！？](?:[\"”’»)\s*†‡§]|\[[^\]]*\])*\d*\Z"
)  # with marks of notes, or a line's number
_WAY_BACK = re.compile(r"\A\s*[↑^]\s+|\s*[↩↵⏎↑⤴⬆^]\ufe0e?\s*\Z")


@dataclass(frozen=True, slots=True)
class NoteReference:
    """The block that refers to a note, by its number or sign `mark`; blocks[start:end] are the note."""

    block: int
    mark: str
    start: int
    end: int


def says_its_mark(text: str, mark: str) -> bool:
    """Whether a text begins with the number or sign of its note: "3. He was.", "[3] He was."."""
    return bool(_own_mark(mark).match(text))


def notes_in_place(
    blocks: Sequence[Block], marks: Sequence[ContentsEntry], references: Sequence[NoteReference]
) -> tuple[list[Block], list[ContentsEntry]]:
    """The blocks with each note, its mark in brackets, behind the first one that refers to it, once its
    sentence has ended; the marks of what is left. A note that only a note refers to stays, and so does the
    text of one that is long.
    """
    notes = [one for one in references if 0 < one.end - one.start <= _MOST_BLOCKS]
    inside = {number for one in notes for number in range(one.start, one.end)}
    behind: dict[int, list[Block]] = {}
    gone: set[int] = set()
    for one in notes:
        own = range(one.start, one.end)
        if one.block not in inside and gone.isdisjoint(own):
            place = _end_of_sentence(blocks, one.block, inside)
            behind.setdefault(place, []).extend(_as_note(blocks[one.start : one.end], one.mark))
            gone.update(own)
    gone |= _titles_of_nothing(blocks, gone)
    result: list[Block] = []
    places: dict[int, int] = {}
    pages: tuple[tuple[int, int], ...] = ()  # that begin in what is gone
    for number, block in enumerate(blocks):
        if number in gone:
            pages += tuple((0, page) for _offset, page in block.breaks)
            continue
        places[number] = len(result)
        result += [replace(block, breaks=(*pages, *block.breaks)), *behind.get(number, ())]
        pages = ()
    kept = [replace(mark, block=places[mark.block]) for mark in marks if mark.block in places]
    return result, kept


def opens_section(block: Block) -> bool:
    """Whether a chapter, or what stands behind a book, begins with it."""
    label = read_heading(block.text)
    return bool(block.heading or kind_by_title(block.text) or (label and label.word))


def _end_of_sentence(blocks: Sequence[Block], number: int, inside: Collection[int]) -> int:
    """The block that ends the sentence which a block is in the midst of, as lines of verse are; the block
    itself where none soon does.
    """
    for at in range(number, min(number + _MOST_BLOCKS, len(blocks))):
        if at in inside or blocks[at].heading:
            break
        if _ENDS.search(blocks[at].text):
            return at
    return number


def _own_mark(mark: str) -> re.Pattern[str]:
    return re.compile(rf"[\[(]?{re.escape(mark)}(?!\w)[\])]?[.:]?\s*")


def _as_note(blocks: Sequence[Block], mark: str) -> list[Block]:
    """Its paragraphs, in the first its mark, and no sign that leads back to the text."""
    texts = [_WAY_BACK.sub("", block.text) for block in blocks]
    first = _own_mark(mark).sub("", texts[0], count=1) if says_its_mark(texts[0], mark) else texts[0]
    if not first and len(texts) > 1:  # the mark was a paragraph of its own
        first = texts.pop(1)
    return [Block(text) for text in (f"[{mark}] {first}".strip(), *texts[1:]) if text]


def _titles_of_nothing(blocks: Sequence[Block], gone: Collection[int]) -> set[int]:
    """The heading "Notes", with those of chapters below it, where nothing but notes that are gone stood
    there.
    """
    found: set[int] = set()
    for number, block in enumerate(blocks):
        if number in gone or number in found or kind_by_title(block.text) != "back":
            continue
        end = _end_of_what_is_gone(blocks, gone, number)
        goes_on = end < len(blocks) and not 0 < blocks[end].heading <= (block.heading or 7)
        if goes_on and not block.heading:
            goes_on = not opens_section(blocks[end])
        if end > number + 1 and not goes_on:
            found.update(one for one in range(number, end) if one not in gone)
    return found


def _end_of_what_is_gone(blocks: Sequence[Block], gone: Collection[int], number: int) -> int:
    """Behind the last of the notes that stood below a heading, with nothing but headings between them."""
    end = at = number + 1
    while at < len(blocks) and (at in gone or blocks[at].heading):
        at += 1
        end = at if at - 1 in gone else end
    return end
