"""Footnotes of Markdown: "[^a]" in the text, "[^a]: He was." on lines of its own, anywhere. Private signs
stand for both while the text becomes paragraphs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.documents.structure.blocks import Block
from core.documents.structure.notes import NoteReference, notes_in_place

_REFERS, _STANDS = "\ue01d", "\ue01e"  # before the index of a note: referred to there, written there
_CODE = r"^(?:```|~~~)[\s\S]*?^(?:```|~~~)|`[^`\n]+`"
_LABEL = r"\[\^([^\]\s]{1,99})\]"
_ENDS_IT = rf"[ \t]*$| {{0,3}}(?:{_LABEL}:|#{{1,6}} |>|```|~~~|(?:[-*_=] *){{3,}}$)"
_DEFINITION = re.compile(
    rf"{_CODE}|^ {{0,3}}{_LABEL}:(.*(?:\n(?!{_ENDS_IT}).+|(?:\n[ \t]*)+\n(?: {{4}}|\t).+)*)", re.M
)
_SIGN = re.compile(rf"{_CODE}|{_STANDS}(\d+)|{_LABEL}", re.M)
_PLACE = re.compile(rf"\s*{_STANDS}(\d+)\s*")
_REFERENCE = re.compile(rf"\[{_REFERS}(\d+)\]")


def notes_apart(text: str) -> tuple[str, list[str]]:
    """The text with signs where its notes stand and are referred to, and the notes, with those signs, too."""
    by_label: dict[str, list[int]] = {}
    notes: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        if not found[1]:
            return found[0]
        by_label.setdefault(found[1], []).append(len(notes))
        notes.append(found[2])
        return f"\n\n{_STANDS}{len(notes) - 1}\n\n"

    plain = _DEFINITION.sub(put_aside, text.replace(_REFERS, "").replace(_STANDS, ""))
    if not notes:
        return text, []
    return _referring(plain, by_label, 0), [_referring(note, by_label, at) for at, note in enumerate(notes)]


def with_notes(blocks: Sequence[Block], notes: Sequence[Sequence[Block]]) -> list[Block]:
    """The blocks of the text with each note behind the paragraph that refers to it, numbered as they are
    referred to; one that nothing refers to stands where it was written.
    """
    placed: list[Block] = []
    own: dict[int, range] = {}
    for block in blocks:
        for at, piece in enumerate(_PLACE.split(block.text)):
            if at % 2:
                own[int(piece)] = range(len(placed), len(placed) + len(notes[int(piece)]))
                placed += notes[int(piece)]
            elif piece:
                placed.append(replace(block, text=piece))
    places = _first_places(placed, own)
    numbers = {note: str(number) for number, note in enumerate(places, 1)}
    for note, one in own.items():
        for at in one[:1]:
            placed[at] = Block(f"[{numbers[note]}] {placed[at].text}")
    told = [
        replace(one, text=_REFERENCE.sub(lambda found: f"[{numbers[int(found[1])]}]", one.text))
        for one in placed
    ]
    references = [
        NoteReference(at, numbers[note], own[note].start, own[note].stop) for note, at in places.items()
    ]
    return notes_in_place(told, [], references)[0]


def _first_places(placed: Sequence[Block], own: Mapping[int, range]) -> dict[int, int]:
    """The block that refers to each note first, those of the text before those of notes; itself if none."""
    inside = {at for one in own.values() for at in one}
    found: dict[int, int] = {}
    for at in sorted(range(len(placed)), key=lambda at: at in inside):
        for note in _REFERENCE.findall(placed[at].text):
            found.setdefault(int(note), at)
    for note, one in own.items():
        found.setdefault(note, one.start)
    return found


def _referring(text: str, by_label: Mapping[str, Sequence[int]], passed: int) -> str:
    """Signs for what refers to notes: to the next one of its label, else to the last, as chapters may count
    anew. `passed`: how many notes stand before the text.
    """

    def sign(found: re.Match[str]) -> str:
        nonlocal passed
        if found[1]:
            passed = int(found[1]) + 1
        if not (known := by_label.get(found[2])):
            return found[0]
        return f"[{_REFERS}{known[min(bisect_left(known, passed), len(known) - 1)]}]"

    return _SIGN.sub(sign, text)
