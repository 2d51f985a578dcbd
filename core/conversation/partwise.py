"""A summary that the model tells part by part, in the place of the book's own sentences: these stand there
from the first moment, and what it tells takes their place, sentence by sentence, where the book bears it out.

Only the parts are told that a chosen sentence stands in, so a long book takes no longer than a page of it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun, not_followed, part_key
from core.conversation.books import passage
from core.conversation.characters import introductions
from core.conversation.hearing import SentenceFilter
from core.conversation.reading import ReadingPlan, book_chapters
from core.conversation.services import Responder
from core.conversation.source_names import source_names
from core.conversation.standing import PartSlot, SlottedSummary
from core.conversation.summary_layout import HeadedLines, composed, quoted
from core.conversation.supported_sentences import TellableSpan
from core.events import Delta, Event, Finished, ReadingStep, Stats
from core.request import Params
from core.stats import combined_stats
from core.text.words import translated as _

_TOKENS_A_WORD = 1.6
_DRAWN_TEMPERATURE = 0.6  # of another telling than the likeliest


class PartByPart(Responder):
    """Tells summaries so."""

    def tell(self, run: AnswerRun, plan: ReadingPlan, skeleton: Sequence[HeadedLines]) -> Iterator[Event]:
        """The events of a summary in the place of `skeleton`, the book's own sentences in their sections."""
        before = run.ask.book.text[book_chapters(run.ask.book)[0].start : plan.parts[0].start]
        summary = SlottedSummary(plan.parts, skeleton, opening=not before.strip())
        slots, figures, reason = summary.slots, [], "stop"
        for number, slot in enumerate(slots, 1):
            left_s = self._left_s(run, slots[number - 1 :])
            place = ReadingStep(number, len(slots), slot.part.label, "telling", left_s=left_s)
            yield place
            yield summary.standing(slot)
            if number == 1:  # what stands is seen before people are looked for
                summary.main = introductions(run.ask.book, plan.parts)
            told = yield from self._part(run, summary, slot, place)
            figures += [one.stats for one in told]
            if told and told[-1].reason == "user":
                reason = "user"
                break
        yield summary.standing()
        yield self._finished(run, plan, summary, combined_stats(figures), reason)

    # ---- one part ------------------------------------------------------------------------------------------

    def _part(
        self, run: AnswerRun, summary: SlottedSummary, slot: PartSlot, place: ReadingStep
    ) -> Generator[Event, None, list[Answer]]:
        """Tells one part, again where that says too little, or takes what was told of it before."""
        ask, text = run.ask, passage(run.ask.book, slot.part)
        known = None if ask.ignore_cache or ask.again else self._summarizer.known(ask.book_id, text)
        if known is not None:
            summary.remember(slot, known)
            return []
        answers: list[Answer] = []
        for attempt, params in enumerate(self._tries(run, slot, place.index), 1):
            if attempt > 1:
                yield replace(place, attempt=attempt)
                yield summary.standing(slot)
            answers.append((yield from self._telling(run, summary, slot, params)))
            if answers[-1].reason == "user":
                return answers
            if slot.told_enough:
                break
        summary.complete(slot)
        self._summarizer.keep(slot.told, ask.book_id, text)
        return answers

    def _telling(
        self, run: AnswerRun, summary: SlottedSummary, slot: PartSlot, params: Params
    ) -> Generator[Event, None, Answer]:
        """Tells a part once, and takes what the book bears out of it."""
        part, prompt = slot.part, self._style.part_prompts[0]
        stretch = TellableSpan(run.ask.book, self._books.evidence(run.ask.book), (part.start, part.end))
        hearing = SentenceFilter(stretch, self._style.supported, summary, slot)
        ids = self._books.ids(run.ask.book, part)
        events = self._turns.alone(run, part_key(run.ask, part), ids, prompt, params, of_book=True)
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                done: Answer = end.value
                break
            yield event
            if isinstance(event, Delta) and hearing.hear(event.pieces):
                yield summary.standing(slot, hearing.rest.pieces)
        if done.reason != "user":
            hearing.end()
        return done

    def _tries(self, run: AnswerRun, slot: PartSlot, number: int) -> Iterator[Params]:
        """How a part is told: as the model does it best, of another telling with the seed asked for; and then
        drawn, where the likeliest alone was not asked for.
        """
        params = self._conversations.note_params(run.ask, number)
        most = max(self._style.note_tokens, round(_TOKENS_A_WORD * slot.words))
        params = replace(params, max_new_tokens=min(most, run.params.max_new_tokens))
        warm = replace(params, temperature=max(params.temperature, _DRAWN_TEMPERATURE))
        if run.ask.again:
            params = warm = replace(warm, seed=run.params.seed + number)
        yield params
        for attempt in range(1, 1 if self._conversations.likeliest(run.ask) else self._style.tellings):
            yield replace(warm, seed=warm.seed + attempt)

    def _left_s(self, run: AnswerRun, slots: Sequence[PartSlot]) -> float:
        return self._expectation.summary_s(
            [slot.part for slot in slots], len(slots), self._style, run.params.max_new_tokens
        )

    # ---- the end -------------------------------------------------------------------------------------------

    def _finished(
        self, run: AnswerRun, plan: ReadingPlan, summary: SlottedSummary, stats: Stats, reason: str
    ) -> Finished:
        text, stands = composed(summary.sections(), quoting=True)
        notes = quoted(stands)
        if run.ask.instructions:
            notes.append(not_followed())
        if reason == "user":
            done = sum(slot.complete for slot in summary.slots)
            words = _("Stopped in part {number} of {count}; the parts before it are kept.")
            notes.append(words.format(number=done + 1, count=len(summary.slots)))
        ids = tuple(self._tokenizer.encode(text.text))
        self._conversations.memory(run.ask).asked(
            run.ask, self._tokenizer.encode(self._style.whole_prompt), ids
        )
        sources = source_names(run.ask.book, [slot.part for slot in summary.slots if slot.complete])
        answer = Answer(reason, text.pieces, ids, stats)
        return replace(self._turns.finished(answer, plan=plan, sources=sources, notes=notes), stands=stands)
