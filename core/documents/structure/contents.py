"""A list of contents printed in the text: where it stands, and the headings of the body that it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.documents.structure.blocks import Block, ContentsEntry
from core.documents.structure.headings import read_heading, title_key

_LEADER = re.compile(r"[\s.·…_]*(?:\b\d{1,4}|\b[ivxlc]{1,7})?\s*\Z")
CONTENTS_TITLE = re.compile(
    r"(?:table of )?contents|inhalt(?:sverzeichnis)?|índice|indice|table des "
    r"matières|目录|目次|содержание|оглавление",
    re.I,
)


@dataclass(frozen=True, slots=True)
class ContentsPage:
    """A printed list of contents: its blocks from `start` to before `end`, its lines, and their headings in
    the body.
    """

    start: int
    end: int
    entries: list[str]
    found: list[ContentsEntry]


def contents_page(blocks: Sequence[Block], first: int, last: int) -> ContentsPage | None:
    """The contents list whose headings come again in the blocks from `first` to before `last`, in order; None
    when there is none.
    """
    start = next(
        (
            index
            for index in range(first, min(last, first + 200))
            if CONTENTS_TITLE.fullmatch(blocks[index].text.split("\n")[0].strip(" .:_*[]"))
        ),
        None,
    )
    if start is None:
        return None
    entries, end = _contents_entries(blocks, start, last)
    found = _match_entries(blocks, entries, end, last)
    if len(found) < 3 or len(found) < 0.7 * len(entries):
        end = start + 1 if len(found) < 3 else end
        found = _match_entries(blocks, entries, start + 1, last) if len(found) < 3 else found
    if len(found) < 3 or len(found) < 0.7 * len(entries):
        return None
    return ContentsPage(start, end, entries, found)


def _contents_entries(blocks: Sequence[Block], start: int, last: int) -> tuple[list[str], int]:
    """The lines of the list, page numbers cut off, and the number of the first block after it."""
    entries = [line for line in blocks[start].text.split("\n")[1:] if line.strip()]
    seen = {title_key(_LEADER.sub("", line)) for line in entries}
    index = start + 1
    for index in range(start + 1, min(last, start + 400)):
        lines = blocks[index].text.split("\n")
        keys = {title_key(_LEADER.sub("", lines[0])), title_key(blocks[index].text[:300])} - {""}
        if any(len(line) > 110 for line in lines) or keys & seen:
            break  # running text, or the first heading of the body
        if len(entries) >= 3 and _begins_body(blocks, index, last, seen):
            break
        entries += lines
        seen |= {title_key(_LEADER.sub("", line)) for line in lines}
    cleaned = [_LEADER.sub("", line).strip() for line in entries]
    return [line for line in cleaned if title_key(line)], index


def _begins_body(blocks: Sequence[Block], index: int, last: int, seen: set[str]) -> bool:
    """A bare "I" whose title follows, together already listed: the first chapter's heading."""
    return index + 1 < last and title_key(blocks[index].text + " " + blocks[index + 1].text) in seen


def _match_entries(blocks: Sequence[Block], entries: list[str], start: int, last: int) -> list[ContentsEntry]:
    """Each entry's heading in the body, in order. An entry with no heading is left out."""
    keys = [title_key(block.text) if len(block.text) <= 200 else "" for block in blocks[start:last]]
    names = [_name(block.text) if key else "" for block, key in zip(blocks[start:last], keys, strict=True)]
    pairs = [
        key + following if key and following else ""
        for key, following in zip(keys, keys[1:] + [""], strict=True)
    ]
    marks: list[ContentsEntry] = []
    position = 0
    for entry in entries:
        key = title_key(entry)
        bare = _name(entry)
        hit = next(
            (
                index
                for index in range(position, len(keys))
                if keys[index]
                and (keys[index] == key or pairs[index] == key or (len(bare) > 5 and names[index] == bare))
            ),
            None,
        )
        if hit is not None:
            marks.append(ContentsEntry(" ".join(entry.split()), 1, start + hit))
            position = hit + 1
    return marks


def _name(text: str) -> str:
    """The key of a title without its label: "ADVENTURE I. A SCANDAL" and "I. A Scandal" are called alike."""
    heading = read_heading(text)
    return title_key(heading.rest if heading and heading.rest else text)
