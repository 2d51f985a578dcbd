"""A summary that the model tells part by part, in the place of the book's own sentences: these stand there
from the first moment, each is told by the model, which has its part before it, and what it tells takes the
sentence's place where the book says so in nearly these words.

Only the parts are told that a chosen sentence stands in, so a long book takes no longer than a page of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun, not_followed, part_key, told_of
from core.conversation.books import passage
from core.conversation.characters import introductions
from core.conversation.hearing import standing_line
from core.conversation.part_summaries import SummaryLine
from core.conversation.reading import ReadingPlan
from core.conversation.services import Responder, Services
from core.conversation.source_names import source_names
from core.conversation.standing import PartSlot, SlottedSummary
from core.conversation.summary_layout import HeadedLines, composed, quoted, retold_to
from core.conversation.supported_sentences import TellableSpan, said_before
from core.conversation.time_estimates import Pace
from core.documents.word_count import count_words
from core.events import Event, Finished, Piece, ReadingStep, Stats
from core.request import Params
from core.stats import combined_stats
from core.text.levelled import LevelledText

_TOKENS_A_WORD = 1.6
_DRAWN_TEMPERATURE = 0.6  # of another telling than the likeliest


class PartByPart(Responder):
    """Tells summaries so."""

    def __init__(self, services: Services, *, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(services)
        self._clock = clock

    def tell(
        self,
        run: AnswerRun,
        plan: ReadingPlan,
        skeleton: Sequence[HeadedLines],
        closing: tuple[Piece, ...] = (),
    ) -> Iterator[Event]:
        """The events of a summary in the place of `skeleton`, the book's own sentences in their sections;
        `closing`: what stands behind it all.
        """
        summary = SlottedSummary(plan.parts, skeleton, closing)
        slots, figures, reason = summary.slots, [], "stop"
        before = [self._known(run, slot) for slot in slots]
        expected = map(partial(self._expected_s, run), slots, before)
        pace = Pace({line: s for some in expected for line, s in some.items()}, self._clock)
        for slot, known in zip(slots, before, strict=True):
            number = plan.parts.index(slot.part) + 1
            step = ReadingStep(number, len(plan.parts), slot.part.label, "telling", left_s=pace.left_s)
            yield step
            yield summary.standing(slot)
            if slot is slots[0]:  # what stands is seen before people are looked for
                summary.main = introductions(run.ask.book, plan.parts)
            figures.append((yield from self._part(run, summary, slot, known, step, pace)))
            if not slot.complete:
                reason = "user"
                break
        yield summary.standing()
        yield self._finished(run, plan, summary, combined_stats(figures), reason)

    # ---- one part ------------------------------------------------------------------------------------------

    def _part(
        self,
        run: AnswerRun,
        summary: SlottedSummary,
        slot: PartSlot,
        known: dict[SummaryLine, SummaryLine],
        step: ReadingStep,
        pace: Pace,
    ) -> Generator[Event, None, Stats]:
        """Tells each of a part's sentences, or takes what is `known` of it, to which it adds; what it cost.
        `step` is said again behind a sentence, with what is left then.
        """
        ask, part = run.ask, slot.part
        text, answers = passage(ask.book, part), list[Answer]()
        stretch = self._stretch(run, slot)
        for own in slot.own:
            if own in pace.expected:
                slot.telling = own
                told = yield from self._sentence(run, summary, slot, stretch, answers)
                if answers[-1].reason == "user":
                    break
                pace.done(own)
                yield replace(step, attempt=2, left_s=pace.left_s)
                known[own] = told or own
            if known[own] != own and not said_before(known[own], summary.told):
                slot.told[own] = known[own]
        else:
            summary.complete(slot)
            if answers:  # a part that is kept counts as read
                self._summarizer.keep([line for pair in known.items() for line in pair], ask.book_id, text)
        return combined_stats([one.stats for one in answers])

    def _known(self, run: AnswerRun, slot: PartSlot) -> dict[SummaryLine, SummaryLine]:
        """The part's sentences that were told before, in any summary, each with what was told of it, if that
        may stand by the rules of today.
        """
        kept = self._summarizer.known(run.ask.book_id, passage(run.ask.book, slot.part)) or ()
        stretch, least = self._stretch(run, slot), self._style.nearness
        return {
            own: told
            for own, told in zip(kept[::2], kept[1::2], strict=True)
            if told == own or stretch.near(told.text, least) is not None
        }

    def _stretch(self, run: AnswerRun, slot: PartSlot) -> TellableSpan:
        book, part = run.ask.book, slot.part
        return TellableSpan(book, self._books.evidence(book), (part.start, part.end))

    def _sentence(
        self,
        run: AnswerRun,
        summary: SlottedSummary,
        slot: PartSlot,
        stretch: TellableSpan,
        answers: list[Answer],
    ) -> Generator[Event, None, SummaryLine | None]:
        """What the model tells of one sentence, with its part before it, where the book bears it out. What it
        said is added to `answers`.
        """
        part, own = slot.part, slot.telling
        ids, prompt = self._books.ids(run.ask.book, part), told_of(self._style, own.text)
        for params in self._tries(run, own):
            yield summary.standing(slot)
            done = yield from self._turns.alone(
                run, part_key(run.ask, part), ids, prompt, params, of_book=True
            )
            answers.append(done)
            line = standing_line(LevelledText.of(done.pieces), stretch, self._style.nearness, summary.told)
            if line is not None or done.reason == "user":
                return line
        return None

    def _tries(self, run: AnswerRun, own: SummaryLine) -> Iterator[Params]:
        """How a sentence is told: as the model does it best, of another telling with the seed asked for; and
        then drawn, where the likeliest alone was not asked for.
        """
        params = replace(self._conversations.note_params(run.ask, own.start), repetition_penalty=1.0)
        warm = replace(params, temperature=max(params.temperature, _DRAWN_TEMPERATURE))
        if run.ask.again:
            params = warm = replace(warm, seed=run.params.seed + own.start)
        yield params
        for attempt in range(1, self._most_tries(run)):
            yield replace(warm, seed=warm.seed + attempt)

    def _most_tries(self, run: AnswerRun) -> int:
        return 1 if self._conversations.likeliest(run.ask) else self._style.tellings

    def _expected_s(
        self, run: AnswerRun, slot: PartSlot, known: Container[SummaryLine]
    ) -> dict[SummaryLine, float]:
        """Seconds for one try of each of its sentences that the model is to tell; the part is read for the
        first.
        """
        expected, reading_s = {}, self._expectation.reading_s(slot.part.tokens)
        anew = run.ask.ignore_cache or run.ask.again
        for line in slot.own if anew else [own for own in slot.own if own not in known]:
            tokens = round(_TOKENS_A_WORD * count_words(line.text))
            expected[line] = reading_s + self._expectation.writing_s(tokens, slot.part.tokens)
            reading_s = 0.0
        return expected

    # ---- the end -------------------------------------------------------------------------------------------

    def _finished(
        self, run: AnswerRun, plan: ReadingPlan, summary: SlottedSummary, stats: Stats, reason: str
    ) -> Finished:
        _text, stands = composed(summary.sections(), quoting=True)
        notes = quoted(stands)
        if run.ask.instructions:
            notes.append(not_followed())
        if reason == "user":
            at = next(slot.part for slot in summary.slots if not slot.complete)
            notes.append(retold_to(plan.parts.index(at) + 1, len(plan.parts)))
        pieces = summary.standing().before
        ids = tuple(self._tokenizer.encode("".join(piece.text for piece in pieces)))
        self._conversations.memory(run.ask).asked(
            run.ask, self._tokenizer.encode(self._style.whole_prompt), ids
        )
        read = plan.parts  # all were searched for the sentences that tell most
        if reason == "user":
            read = tuple(slot.part for slot in summary.slots if slot.complete or slot.told)
        sources = source_names(run.ask.book, read)
        answer = Answer(reason, pieces, ids, stats)
        return replace(self._turns.finished(answer, plan=plan, sources=sources, notes=notes), stands=stands)
