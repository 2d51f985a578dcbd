"""A long book's summary: every part is read alone, and the whole is told from what was noted of the parts.

A small model strays from its text now and then, so what it writes about a part is held against that part:
where the summary says little or invents names, the part is asked for once more, in other words, and the best
of the summaries is kept. The text's keys and values are in the cache by then, so a further try costs its own
tokens only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from core.ask import Params
from core.conversation.answering import Answer
from core.conversation.notes import Note, NoteStore, grouped, joined, says_little, settled
from core.conversation.reading import ReadingStyle
from core.events import Delta, Event, Piece, Reading, Stats
from core.stats import combined
from core.text.grounding import grounding

_ENOUGH_WORDS = 20
_SECOND_TEMPERATURE = 0.4  # a try after the last prompt must be able to differ

Read = Callable[[str, str, Params], Generator[Event, None, Answer]]
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Told:
    """What was noted of one text. `stopped`: the user ended it, and `text` is what there was."""

    text: str
    stats: Stats
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Stretches:
    """The whole book in few notes; a single one is the parts' notes as they are, not told anew yet.
    `stopped`: as far as it came.
    """

    notes: tuple[Note, ...]
    stats: Stats
    stopped: bool = False


class Summarizer:
    """Notes of single texts for one model and its reading style. `made_by` names the model in the store."""

    def __init__(self, style: ReadingStyle, store: NoteStore, made_by: str) -> None:
        self._style, self._store, self._made_by = style, store, made_by

    def known(self, book_id: str, passage: str) -> str | None:
        """The summary of a part that was read before."""
        return self._store.get(book_id, *self._made_from(passage))

    def forget(self, book_id: str) -> None:
        """Delete what was noted of a book."""
        self._store.forget(book_id)

    def part(
        self, book_id: str, passage: str, place: Reading, params: Params, read: Read, *, fresh: bool
    ) -> Generator[Event, None, Told]:
        """The summary of one part: remembered, or read now."""
        known = None if fresh else self.known(book_id, passage)
        if known is None:
            told = yield from self._told(passage, self._style.part_prompts, place, params, read)
            if not told.stopped:
                self._store.put(told.text, book_id, *self._made_from(passage))
            return told
        yield place
        yield from _shown(known, Stats(model=self._made_by))
        return Told(known, Stats(model=self._made_by))

    def stretches(
        self,
        notes: list[Note],
        count: Count,
        name: Callable[[int, int], str],
        params: Callable[[int], Params],
        read: Read,
        *,
        room: int,
        most: int,
    ) -> Generator[Event, None, Stretches]:
        """The parts' notes told anew in at most `most` stretches of the book, each from what can be read in
        one go: `room` tokens at most.

        Where all notes can be read in one go they come back joined, for the caller to tell. `name(first,
        last)` names a run of parts.
        """
        room = min(room, self._style.join_tokens)
        while True:
            groups = grouped(
                notes, lambda note: count(joined([note])), room, least=most if self._style.by_stretches else 1
            )
            runs = [(name(group[0].first, group[-1].last), group) for group in groups]
            if len(runs) == 1:
                label, group = runs[0]
                return Stretches((Note(label, joined(group), group[0].first, group[-1].last),), Stats())
            last_level = len(runs) <= most
            shorter: list[Note] = []
            stats: list[Stats] = []
            for number, (label, group) in enumerate(runs, 1):
                place = Reading(number, len(runs), label, "whole summary" if last_level else "part summary")
                # without names, which a small model takes for part of the story
                text = "\n\n".join(note.text for note in group)
                told = yield from self._told(text, self._style.join_prompts, place, params(number), read)
                if told.stopped:
                    return Stretches(tuple(shorter) if last_level else (), told.stats, stopped=True)
                shorter.append(Note(label, told.text, group[0].first, group[-1].last))
                stats.append(told.stats)
            if last_level:
                return Stretches(tuple(shorter), combined(stats))
            notes = shorter

    def _told(
        self, text: str, prompts: Sequence[str], place: Reading, params: Params, read: Read
    ) -> Generator[Event, None, Told]:
        """The best of the tries, made until one keeps to the text."""
        best: tuple[float, str, Stats] | None = None
        for attempt, (prompt, sampled) in enumerate(_tries(prompts, params), 1):
            yield from _opened(place, attempt)
            done = yield from read(text, prompt, sampled)
            if done.reason == "user":
                return Told(done.text, done.stats, stopped=True)
            note, shown = settled(done.text, prompt), done.text
            little = says_little(note, done.token_ids, looping=done.reason == "looping")
            score = -1.0 if little else _worth(note, text)
            if best is None or score > best[0]:
                best = (score, note, done.stats)
            if score >= self._style.grounded or attempt == len(prompts) and best[0] >= 0:
                # what is left to try is for texts of which nothing was said at all
                break
        _, note, stats = best
        if note != shown:
            yield from _opened(place, attempt + 1)
            yield from _shown(note, stats)
        return Told(note, stats)

    def _made_from(self, passage: str) -> tuple[str, ...]:
        return self._made_by, self._style.system, "\n".join(self._style.part_prompts), passage


def _worth(note: str, text: str) -> float:
    """0 to 1: how far a summary keeps to its text, less where it hardly says anything."""
    return max(0.0, grounding(note, text).score) * min(1.0, len(note.split()) / _ENOUGH_WORDS)


def _tries(prompts: Sequence[str], params: Params) -> Iterator[tuple[str, Params]]:
    for prompt in prompts:
        yield prompt, params
    yield (
        prompts[0],
        replace(params, temperature=max(params.temperature, _SECOND_TEMPERATURE), seed=params.seed + 1),
    )


def _opened(place: Reading, attempt: int) -> Iterator[Event]:
    """Where the text that follows belongs; a stretch of the whole begins with its name."""
    yield replace(place, attempt=attempt)
    if place.purpose == "whole summary":
        yield from _shown(("\n\n" if place.index > 1 else "") + _heading(place.label), Stats())


def _shown(text: str, stats: Stats) -> Iterator[Event]:
    yield Delta((Piece(text, ""),), stats)


def assembled(stretches: Sequence[Note]) -> str:
    """The summary of the whole: every stretch under its name."""
    return "\n\n".join(_heading(note.label) + note.text for note in stretches)


def _heading(label: str) -> str:
    return f"## {label}\n\n"
