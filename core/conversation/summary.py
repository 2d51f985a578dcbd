"""The summary of one text, and of several that were summarised: told by the model, held against the book, and
kept.

A small model strays from its text now and then, so what it writes about a part is held against that part:
where the summary says little or invents names, the part is asked for once more, in other words, and the best
of the summaries is taken. The text's keys and values are in the cache by then, so a further try costs its own
tokens only. What the text does not bear out even then is not said (core.conversation.supported_sentences).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from core.conversation.answer_language import in_language_of
from core.conversation.answering import Answer
from core.conversation.part_summaries import PartSummaryStore, SummaryLine, says_little, tidied
from core.conversation.reading import ReadingStyle
from core.conversation.supported_sentences import TellableSpan
from core.documents.word_count import count_words
from core.events import Delta, Event, ReadingStep, Stats
from core.request import Params
from core.stats import combined_stats
from core.text.grounding import grounding
from core.text.levelled import LevelledText

_ENOUGH_WORDS = 20
_SECOND_TEMPERATURE = 0.4  # a try after the last prompt must be able to differ
_LEAST_OWN_WORDS = 40  # of a text of which a model said nothing

Read = Callable[[str, Params], Generator[Event, None, Answer]]


@dataclass(frozen=True, slots=True)
class SummarySource:
    """What is summarised: the text as the model reads it, and the stretch of the book it stands for."""

    text: str
    stretch: TellableSpan


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """What was told of one text. `stopped`: the user ended it; there are no lines, and `notes` say more."""

    lines: tuple[SummaryLine, ...]
    stats: Stats
    stopped: bool = False
    notes: tuple[str, ...] = ()


class Summarizer:
    """Summaries of single texts for one model and its style. `made_by` names the model, `kept_by` in the
    store: two files may have one name.
    """

    def __init__(
        self, style: ReadingStyle, store: PartSummaryStore, made_by: str, *, kept_by: str = ""
    ) -> None:
        self._style, self._store, self._made_by = style, store, made_by
        self._kept_by = kept_by or made_by

    def known(self, book_id: str, text: str) -> tuple[SummaryLine, ...] | None:
        """The summary of a part that was read before."""
        prompts = self._in_language_of(text, self._style.part_prompts)
        return self._store.get(book_id, *self._made_from(text, prompts))

    def keep(self, lines: Sequence[SummaryLine], book_id: str, text: str) -> None:
        """Keep what was told of a part."""
        prompts = self._in_language_of(text, self._style.part_prompts)
        self._store.put(lines, book_id, *self._made_from(text, prompts))

    def forget(self, book_id: str) -> None:
        """Delete what was noted of a book."""
        self._store.forget(book_id)

    def told(
        self,
        book_id: str,
        text: SummarySource,
        prompts: Sequence[str],
        place: ReadingStep,
        params: Params,
        read: Read,
        *,
        ignore_cache: bool = False,
        keep: bool = True,
    ) -> Generator[Event, None, SummaryResult]:
        """The summary of one text: remembered, or told now; without `keep` it is told now and not kept."""
        prompts = self._in_language_of(text.text, prompts)
        if not keep:
            return (yield from self._written(text, prompts, place, params, read))
        made_from = self._made_from(text.text, prompts)
        known = None if ignore_cache else self._store.get(book_id, *made_from)
        if known is not None:
            yield place
            yield from ready_text(LevelledText.plain(joined_lines(known)))
            return SummaryResult(known, Stats(model=self._made_by))
        told = yield from self._written(text, prompts, place, params, read)
        if not told.stopped:
            self._store.put(told.lines, book_id, *made_from)
        return told

    def _written(
        self, text: SummarySource, prompts: Sequence[str], place: ReadingStep, params: Params, read: Read
    ) -> Generator[Event, None, SummaryResult]:
        """What the text bears out of the best of the tries, which are made until one keeps to it."""
        best: tuple[float, LevelledText] | None = None
        tries: list[Stats] = []
        for attempt, (prompt, sampled) in enumerate(_tries(prompts, params), 1):
            yield replace(place, attempt=attempt)
            done = yield from read(prompt, sampled)
            tries.append(done.stats)
            if done.reason == "user":
                return SummaryResult((), combined_stats(tries), stopped=True, notes=done.notes)
            note, seen = tidied(LevelledText.of(done.pieces), prompt), done.text
            little = says_little(note.text, done.token_ids, looping=done.reason == "looping")
            score = -1.0 if little else _worth(note.text, text.text)
            if best is None or score > best[0]:
                best = (score, note)
            if score >= self._style.grounded or attempt == len(prompts) and best[0] >= 0:
                # what is left to try is for texts of which nothing was said at all
                break
        (_score, note), stats = best, combined_stats(tries)
        lines = text.stretch.supported(note, self._style.supported) or text.stretch.own(_LEAST_OWN_WORDS)
        if joined_lines(lines) != seen:
            yield replace(place, attempt=attempt + 1)
            yield from ready_text(LevelledText.joined((line.levelled for line in lines), " "))
        return SummaryResult(lines, stats)

    def _in_language_of(self, text: str, prompts: Sequence[str]) -> list[str]:
        return [in_language_of(text, self._style, prompt) for prompt in prompts]

    def _made_from(self, text: str, prompts: Sequence[str]) -> tuple[str, ...]:
        style = self._style
        told = (f"{style.nearness:g}", style.sentence_prompt) if style.summaries == "supported" else ()
        return self._kept_by, style.system, "\n".join(prompts), f"{style.supported:g}", text, *told


def ready_text(text: LevelledText) -> Iterator[Event]:
    """A text that is there at once."""
    yield Delta(text.pieces)


def joined_lines(lines: Sequence[SummaryLine]) -> str:
    """A summary as a model is told of it, and a reader while it is made."""
    return " ".join(line.text for line in lines)


def _worth(note: str, text: str) -> float:
    """0 to 1: how far a summary keeps to its text, less where it hardly says anything."""
    return max(0.0, grounding(note, text).score) * min(1.0, count_words(note) / _ENOUGH_WORDS)


def _tries(prompts: Sequence[str], params: Params) -> Iterator[tuple[str, Params]]:
    for prompt in prompts:
        yield prompt, params
    yield (
        prompts[0],
        replace(params, temperature=max(params.temperature, _SECOND_TEMPERATURE), seed=params.seed + 1),
    )
