"""Notes by their numbers alone: "[3]" in the text, and "3. He was." below the heading "Notes" behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.documents.structure.blocks import Block, ContentsEntry
from core.documents.structure.notes import NoteReference, notes_in_place, opens_section

_TITLE = re.compile(
    r"(?:(?:foot|end)?notes|anmerkungen|fu(?:ß|ss)noten|endnoten|notas|примечания|注释|註釋|脚注)[.:：]?",
    re.I,
)
_REFERENCE = re.compile(r"(?<=[\s\S])\[(\d{1,4})\]")
_ITEM = re.compile(r"\[(\d{1,4})\]\s*\S|(\d{1,4})[.)]\s+\S")
_NEXT_ITEM = re.compile(r"\s(?=\[\d{1,4}\]\s)|\n(?=\d{1,4}[.)]\s)")  # in a list without empty lines
_MOST_BLOCKS = 12  # of a note


def numbered_notes_in_place(
    blocks: Sequence[Block], marks: Sequence[ContentsEntry]
) -> tuple[list[Block], list[ContentsEntry]]:
    """`notes_in_place` of the notes of each list whose numbers count on, where all of them, in this order,
    stand in the text behind the list before it.
    """
    parted: list[Block] = []
    places: list[int] = []  # where each block begins among the parted
    for block, (first, *others) in zip(blocks, _parted(blocks), strict=True):
        places.append(len(parted))
        parted += [replace(block, text=first), *map(Block, others)]
    if not (references := _numbered(parted)):
        return list(blocks), list(marks)
    moved = [replace(mark, block=places[mark.block]) for mark in marks]
    return notes_in_place(parted, moved, references)


def _numbered(parted: Sequence[Block]) -> list[NoteReference]:
    found: list[NoteReference] = []
    behind = 0
    for at, block in enumerate(parted):
        if not _TITLE.fullmatch(block.text) or not (notes := _list(parted, at + 1)):
            continue
        places = _references(parted[behind:at])
        told = [places.get(number, -1) for number, _start, _end in notes]
        if told[0] >= 0 and told == sorted(told):
            pairs = zip(told, notes, strict=True)
            found += [NoteReference(behind + place, str(number), *own) for place, (number, *own) in pairs]
        behind = notes[-1][2]
    return found


def _parted(blocks: Sequence[Block]) -> Iterator[list[str]]:
    """The texts of each block: a heading "Notes" and a list below it that are one, a note at a time."""
    listed = False
    for block in blocks:
        head, _, rest = block.text.partition("\n")
        opens = bool(_TITLE.fullmatch(head))
        listed = opens or (listed and bool(_ITEM.match(block.text)))
        texts = [head, rest] if opens and rest else [block.text]
        yield [*texts[:-1], *_NEXT_ITEM.split(texts[-1])] if listed else texts


def _list(blocks: Sequence[Block], first: int) -> list[tuple[int, int, int]]:
    """(number, first block, first block behind it) of the notes that begin there and count on."""
    found: list[tuple[int, int, int]] = []
    at = first + (first < len(blocks) and opens_section(blocks[first]))
    while at < len(blocks) and (number := _number(blocks[at].text)) is not None:
        if found and number != found[-1][0] + 1:
            break
        found.append((number, at, at + 1))
        more = range(at + 1, min(at + 1 + _MOST_BLOCKS, len(blocks)))
        opened = next((one for one in more if opens_section(blocks[one])), more.stop)
        # a heading between two notes is that of the chapter they belong to
        more = range(at + 1, min(opened + 2, len(blocks)))
        at = next((one for one in more if _number(blocks[one].text) == number + 1), len(blocks))
        if at < len(blocks):
            found[-1] = (number, found[-1][1], min(at, opened))
    end = found[-1][2] if found else len(blocks)
    counts_on = end == len(blocks) or _number(blocks[end].text) is None
    return found if counts_on else []


def _number(text: str) -> int | None:
    found = _ITEM.match(text)
    return int(found[1] or found[2]) if found else None


def _references(blocks: Sequence[Block]) -> dict[int, int]:
    """The first of the blocks that refers to each number."""
    found: dict[int, int] = {}
    for at, block in enumerate(blocks):
        for reference in _REFERENCE.finditer(block.text):
            found.setdefault(int(reference[1]), at)
    return found
