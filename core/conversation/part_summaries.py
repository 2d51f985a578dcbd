"""Summaries of parts: kept, so that a long reading is never done twice, and made fit to be read again. No
model here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from core.documents.word_count import count_words
from core.events import Piece
from core.paths import write_whole
from core.text.circling import distinct_share
from core.text.levelled import LevelledText

log = logging.getLogger(__name__)


class SummaryLine(NamedTuple):
    """One sentence of a summary, standing on text[start:end] of the book. `own`: in the book's own words.
    `pieces`: the sentence as it was decoded for the answer at hand; they are not kept.
    """

    text: str
    start: int
    end: int
    own: bool = False
    pieces: tuple[Piece, ...] = ()

    @property
    def levelled(self) -> LevelledText:
        """The sentence with the levels of its tokens."""
        return LevelledText.of(self.pieces) if self.pieces else LevelledText.plain(self.text)


class PartSummary(NamedTuple):
    """A summary of the parts first..last of a book (0-based) under the name of their place."""

    label: str
    lines: tuple[SummaryLine, ...]
    first: int = 0
    last: int = 0

    @property
    def text(self) -> str:
        """The lines in a row."""
        return " ".join(line.text for line in self.lines)


# of distinct 4-grams; summaries worth reading have 0.9 and more
_POOR_SHARE = 0.75
_FEW_WORDS = 6
_ENDS = '.!?…。！？"”’)」』'
_IN_MEMORY = 256  # notes: a long book has some dozens
_ECHO_CHARS = 24  # so much of the instruction in an answer is an echo of it


class PartSummaryStore:
    """Part summaries by book and by what they were made from. In memory, and when a folder is given as one
    small file each, of which the last ones used stay in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._notes: dict[tuple[str, str], tuple[SummaryLine, ...]] = {}

    def get(self, book_id: str, *made_from: str) -> tuple[SummaryLine, ...] | None:
        """The summary made from these texts (model, prompt, passage); None when there is none."""
        key = _hash(book_id), _hash("\0".join(made_from))
        if key not in self._notes and self._folder is not None:
            try:
                kept = json.loads(self._file(*key).read_text(encoding="utf-8"))["lines"]
                self._notes[key] = tuple(SummaryLine(*line) for line in kept)
            except FileNotFoundError:
                return None
            except (OSError, ValueError, KeyError, TypeError):
                log.warning("a stored part summary cannot be read; it is made again")
                return None
        return self._used(key)

    def put(self, lines: Sequence[SummaryLine], book_id: str, *made_from: str) -> None:
        """Keep a summary. A full disk costs the copy on disk, not the answer."""
        key = _hash(book_id), _hash("\0".join(made_from))
        self._notes[key] = kept = tuple(line._replace(pieces=()) for line in lines)
        self._used(key)
        if self._folder is None:
            return
        try:
            values = [line[:4] for line in kept]
            self._file(*key).parent.mkdir(exist_ok=True)
            write_whole(self._file(*key), json.dumps({"lines": values}, ensure_ascii=False))
        except OSError as error:
            log.warning("a part summary cannot be stored: %s", error)

    def forget(self, book_id: str) -> None:
        """Delete what was noted of a book, in memory and on disk."""
        book = _hash(book_id)
        self._notes = {key: note for key, note in self._notes.items() if key[0] != book}
        if self._folder is not None and (self._folder / book).is_dir():
            try:
                shutil.rmtree(self._folder / book)
            except OSError as error:
                log.warning("the part summaries of a book cannot be deleted: %s", error)

    def _used(self, key: tuple[str, str]) -> tuple[SummaryLine, ...] | None:
        """The note, now the last one used. Of what stands on the disk too, the first ones go from memory."""
        note = self._notes.pop(key, None)
        if note is not None:
            self._notes[key] = note
        while self._folder is not None and len(self._notes) > _IN_MEMORY:
            del self._notes[next(iter(self._notes))]
        return note

    def _file(self, book: str, key: str) -> Path:
        return self._folder / book / f"{key}.json"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def says_little(text: str, tokens: Sequence[int], *, looping: bool) -> bool:
    """A summary that repeats itself or has hardly a sentence."""
    return looping or count_words(text) < _FEW_WORDS or distinct_share(tokens) < _POOR_SHARE


def tidied(note: LevelledText, prompt: str) -> LevelledText:
    """A summary as the next prompt and the reader get it: prose without announcement, echo of the instruction
    or broken-off end.
    """
    before = note.text.split(prompt[:_ECHO_CHARS])[0] or note.text
    text = note[: len(before)].strip()
    head, _, rest = text.text.partition("\n")
    if rest.strip() and head.rstrip().endswith(":"):
        text = text[len(head) :].strip()
    # headings; emphasis; a chapter's number before its summary
    text = text.without(r"^(?:#{1,6}[ \t]|\*\*[^*\n]+\*\*:?[ \t]*$).*$", re.M).strip()
    text = text.without(r"\*\*|^\s*[IVXLC\d]+\s*\n")
    text = text.without(r"^(?:sure|certainly|here(?:'s| is| are))\b[^\n]*:\s*", re.IGNORECASE)
    text = _as_prose(text)
    ends = [match.end() for match in re.finditer(r"[.!?…][\"'”’)]*(?=\s|$)|[。！？][」』”’]*", text.text)]
    return text[: ends[-1]].without(r"\s+\d+\.$") if ends else text


def _as_prose(text: LevelledText) -> LevelledText:
    """A list's items as sentences in a row; other paragraphs stay apart."""
    starts = accumulate(map(len, text.text.splitlines(keepends=True)), initial=0)
    lines = [
        text[start : start + len(line)] for start, line in zip(starts, text.text.splitlines(), strict=False)
    ]
    items = [line.without(r"^\s*(?:\d+[.)]|[-*•])\s+").strip() for line in lines]
    if items == [line.strip() for line in lines]:
        return text
    items = [item for item in items if item.text]
    ended = [item.text[-1] in _ENDS for item in items]
    if any(ended) and not ended[-1]:
        items.pop()  # the others are sentences, so this one was broken off
    return LevelledText.joined(map(_ended, items), " ")


def _ended(item: LevelledText) -> LevelledText:
    """With a full stop, where it has no end."""
    if item.text[-1] in _ENDS:
        return item
    return item[: len(item.text.rstrip(",;:"))] + LevelledText.plain(".")


def labelled_text(notes: Sequence[PartSummary]) -> str:
    """The summaries under their labels, as one text."""
    return "\n\n".join(f"{note.label}\n{note.text}" for note in notes)


def grouped(
    notes: Sequence[PartSummary], size: Callable[[PartSummary], int], room: int
) -> list[list[PartSummary]]:
    """Neighbours in groups of about equal size, of about `room` at most; never more than half as many groups
    as notes.
    """
    sizes = [size(note) for note in notes]
    total = sum(sizes)
    count = max(1, min(-(-total // room), len(notes) // 2))
    groups: list[list[PartSummary]] = [[] for _ in range(count)]
    before = 0
    for note, own in zip(notes, sizes, strict=True):
        groups[min(count - 1, int((before + own / 2) * count / max(1, total)))].append(note)
        before += own
    return [group for group in groups if group]
