"""A book's summary, at the length that was asked for: its parts are told one after the other, chapters from
their parts and the whole from these, or all of it in the book's own sentences.

Every sentence keeps the place it stands on through all levels.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

from core.conversation.answer_language import in_language_of
from core.conversation.answering import Answer
from core.conversation.asking import AnswerRun, not_followed, notes_key, part_key, with_instructions
from core.conversation.books import passage
from core.conversation.characters import naming_its_title
from core.conversation.part_summaries import PartSummary, SummaryLine, grouped, labelled_text, tidied
from core.conversation.partwise import PartByPart
from core.conversation.reading import ReadingPart, ReadingPlan, by_chapter, of_length, place_name
from core.conversation.services import Responder, Services
from core.conversation.source_names import source_names
from core.conversation.summary import Read, SummaryResult, SummarySource, joined_lines, ready_text
from core.conversation.summary_layout import HeadedLines, by_writer, composed, quoted, stopped_in
from core.conversation.supported_sentences import TellableSpan, fewer, own_lines, whole_sentences
from core.documents.document import Document
from core.documents.word_count import count_words
from core.events import Delta, Event, Finished, Piece, ReadingStep, Stats
from core.request import Params, Request
from core.stats import combined_stats
from core.text.language_detection import foreign
from core.text.levelled import LevelledText
from core.text.words import translated as _

WORDS = {"paragraph": 120, "page": 450, "chapters": 90}  # of a summary; by chapters: of each
_MOST_TOLD = 1 / 4  # of a part's words, where none is passed over: of more it is read sooner
_LAST_WORDS = 90  # of the last part, at least: a short last chapter is how a book ends


class Summaries(Responder):
    """What a session does with the wish for a summary."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._part_by_part = PartByPart(services)

    def known(self, book: Document, plan: ReadingPlan) -> list[PartSummary]:
        """The summaries of the parts that were read before, in any conversation."""
        found = [self._summarizer.known(book.sha256, passage(book, part)) for part in plan.parts]
        return [
            PartSummary(part.label, lines, number, number)
            for number, (part, lines) in enumerate(zip(plan.parts, found, strict=True))
            if lines is not None
        ]

    def summarize(
        self, run: AnswerRun, plan: ReadingPlan, *, every_part: bool = False, closing: tuple[Piece, ...] = ()
    ) -> Iterator[Event]:
        """The events of a summary. `every_part`: none is passed over, however little of it would be chosen
        from the whole; else a few parts stand for the others. `closing`: what stands behind it.
        """
        own = self.in_own_words(run.ask)
        if own or self._style.summaries == "supported":
            if every_part:
                sections = self._of_each_part(run, plan, closing)
            else:
                sections = self._own_sections(run, plan)
            if own:
                yield from self._shown(run, plan, sections, Stats(), note=own, closing=closing)
            else:
                yield from self._part_by_part.tell(run, plan, sections, closing)
            return
        notes: list[PartSummary] = []
        parts = yield from self._parts(run, plan, notes)
        if parts.stopped:
            said = stopped_in(len(notes) + 1, len(plan.parts), kept=bool(notes))
            yield self._stopped(run, plan, notes, parts.stats, (said, *parts.notes))
            return
        whole = yield from self._whole(run, plan, notes)
        if whole is None:
            said = _("Stopped before the whole was told; the summaries of all parts are kept.")
            yield self._stopped(run, plan, notes, parts.stats, (said,))
            return
        sections, anew = whole
        told = joined_lines(sections[0].lines) if anew.new_tokens and len(sections) == 1 else ""
        stats = combined_stats([parts.stats, anew])
        yield from self._shown(run, plan, sections, stats, told=told, closing=closing)

    def held(self, run: AnswerRun, plan: ReadingPlan, prompt: str, done: Answer) -> Iterator[Event]:
        """The end of a summary that the model told of a book in one go: what the book bears out of it. One
        told as the person's own instructions ask, in another language maybe, cannot be held against the book:
        it ends with its last whole sentence, and that is all.
        """
        part = plan.parts[0]
        if run.ask.instructions:
            text, stands = _complete(done), ()
        else:
            stretch = self._stretch(run.ask, part.start, part.end)
            lines = stretch.supported(tidied(LevelledText.of(done.pieces), prompt), self._style.supported)
            section = HeadedLines("", lines or stretch.own(WORDS["paragraph"]))
            text, stands = composed([section], quoting=True)
        notes = [*quoted(stands), *done.notes]
        same = text.text == done.text.strip()
        if not same:
            yield ReadingStep(1, 1, part.label, "whole summary", attempt=2)
            yield from ready_text(text)
        ids = done.token_ids if same else tuple(self._tokenizer.encode(text.text))
        self._conversations.memory(run.ask).asked(run.ask, self._tokenizer.encode(prompt), ids)
        told = replace(done, pieces=text.pieces, token_ids=ids, notes=())
        whole = self._turns.finished(told, plan=plan, sources=(part.label,), notes=notes)
        yield replace(whole, stands=stands, decoded=() if same else done.token_ids)

    # ---- in the book's own sentences -----------------------------------------------------------------------

    def in_own_words(self, ask: Request) -> str:
        """Why a summary is told in the book's own sentences; "" where the model tells it."""
        if ask.summaries == "own":
            return _("In the book's own sentences, as it was asked for.")
        if self._style.summaries == "own":
            return _("In the book's own sentences: this model's own summaries were found to be no better.")
        if self._style.english and foreign(ask.book.text):
            return _("In the book's own sentences: this model reads English only.")
        return ""

    def _own_sections(self, run: AnswerRun, plan: ReadingPlan) -> list[HeadedLines]:
        """Each chapter's best sentences, or the whole's."""
        length, headed = run.ask.summary_length, [("", plan.parts)]
        if length == "chapters":
            headed = _chapters(run.ask, plan)
        sections = []
        for heading, parts in headed:
            spans = [(part.start, part.end) for part in parts]
            lines = own_lines(run.ask.book, spans, WORDS[length])
            sections.append(HeadedLines(heading, naming_its_title(run.ask.book, parts, lines)))
        return sections if length == "chapters" else by_writer(run.ask.book, sections[0].lines)

    def _of_each_part(self, run: AnswerRun, plan: ReadingPlan, closing: Sequence[Piece]) -> list[HeadedLines]:
        """Each part's best sentences, as many of each: an end has a last one. Of few pages, few; of the last
        more. None that stands in `closing`, if there are others.
        """
        most, lines = WORDS[run.ask.summary_length] // len(plan.parts), []
        for part in plan.parts:
            words = min(most, round(_MOST_TOLD * count_words(passage(run.ask.book, part))))
            words = max(words, _LAST_WORDS * (part is plan.parts[-1]))
            lines += own_lines(run.ask.book, [(part.start, part.end)], words)
        last = "".join(piece.text for piece in closing)
        others = [line for line in lines if line.text not in last]
        return by_writer(run.ask.book, others or lines)

    # ---- told by the model ---------------------------------------------------------------------------------

    def _parts(
        self, run: AnswerRun, plan: ReadingPlan, notes: list[PartSummary]
    ) -> Generator[Event, None, SummaryResult]:
        """Adds a note of every part to `notes`, until it is stopped; what was told of them all in figures."""
        ask, stats = run.ask, []
        known = set() if ask.ignore_cache else {note.first for note in self.known(ask.book, plan)}
        for index, part in enumerate(plan.parts):
            unread = [one for at, one in enumerate(plan.parts) if at >= index and at not in known]
            left_s = self._expectation.summary_s(
                unread, len(plan.parts), self._style, run.params.max_new_tokens
            )
            told = yield from self._summarizer.told(
                ask.book_id,
                SummarySource(passage(ask.book, part), self._stretch(ask, part.start, part.end)),
                self._style.part_prompts,
                ReadingStep(index + 1, len(plan.parts), part.label, "part summary", left_s=left_s),
                self._conversations.note_params(ask, index + 1),
                self._part_reader(run, part),
                ignore_cache=ask.ignore_cache,
            )
            stats.append(told.stats)
            if told.stopped:
                return replace(told, stats=combined_stats(stats))
            notes.append(PartSummary(part.label, told.lines, index, index))
        return SummaryResult((), combined_stats(stats))

    def _whole(
        self, run: AnswerRun, plan: ReadingPlan, notes: list[PartSummary]
    ) -> Generator[Event, None, tuple[list[HeadedLines], Stats] | None]:
        """The parts' notes as one summary of the length that was asked for; None where it was stopped."""
        length = run.ask.summary_length
        if length == "chapters":
            sections, stats, chapters = [], [], _chapters(run.ask, plan)
            for number, (label, parts) in enumerate(chapters, 1):
                first = plan.parts.index(parts[0])
                own = notes[first : first + len(parts)]
                after_s = sum(self._telling_s(run, len(later)) for _label, later in chapters[number:])
                told = yield from self._merged(run, plan, own, label, WORDS[length], after_s=after_s)
                if told.stopped:
                    return None
                sections.append(HeadedLines(label, told.lines))
                stats.append(told.stats)
            return sections, combined_stats(stats)
        told = yield from self._merged(run, plan, notes, _("the whole book"), WORDS[length])
        return None if told.stopped else ([HeadedLines("", told.lines)], told.stats)

    def _merged(
        self,
        run: AnswerRun,
        plan: ReadingPlan,
        notes: list[PartSummary],
        label: str,
        words: int,
        *,
        after_s: float = 0.0,
    ) -> Generator[Event, None, SummaryResult]:
        """Notes made one summary of about `words` words: chosen from their lines, or told anew by the model
        in as many levels as it takes. `after_s`: what comes behind it takes so long.
        """
        lines = [line for note in notes for line in note.lines]
        if len(notes) == 1:
            return SummaryResult(fewer(lines, words), Stats())
        room = min(self._style.join_tokens, self._room_tokens(max(512, run.params.max_new_tokens)))
        stats: list[Stats] = []
        while True:
            groups = grouped(notes, lambda note: self._tokenizer.count(labelled_text([note])), room)
            left_s = after_s + self._telling_s(run, len(notes))
            if len(groups) == 1:
                place = ReadingStep(1, 1, label, "whole summary", left_s=left_s)
                prompt = of_length(self._style, self._style.join_prompts[0], run.ask.summary_length)
                told = yield from self._retold(run, plan, notes, [prompt], place, run.params, keep=False)
                return replace(told, stats=combined_stats([*stats, told.stats]))
            shorter = []
            for number, group in enumerate(groups, 1):
                name = place_name(run.ask.book, plan.parts[group[0].first : group[-1].last + 1])
                later_s = after_s + self._telling_s(run, len(groups))
                later_s += (left_s - later_s) * (1 - (number - 1) / len(groups))
                place = ReadingStep(number, len(groups), name, "part summary", left_s=later_s)
                params = self._conversations.note_params(run.ask, number)
                told = yield from self._retold(run, plan, group, self._style.join_prompts, place, params)
                stats.append(told.stats)
                if told.stopped:
                    return replace(told, stats=combined_stats(stats))
                shorter.append(PartSummary(name, told.lines, group[0].first, group[-1].last))
            notes = shorter

    def _telling_s(self, run: AnswerRun, notes: int) -> float:
        """Seconds until the whole is told from so many notes."""
        return self._expectation.summary_s([], notes, self._style, run.params.max_new_tokens)

    def _retold(
        self,
        run: AnswerRun,
        plan: ReadingPlan,
        notes: Sequence[PartSummary],
        prompts: Sequence[str],
        place: ReadingStep,
        params: Params,
        *,
        keep: bool = True,
    ) -> Generator[Event, None, SummaryResult]:
        """One summary of several, told by the model."""
        start, end = plan.parts[notes[0].first].start, plan.parts[notes[-1].last].end
        stretch = self._stretch(run.ask, start, end, [line for note in notes for line in note.lines])
        text = SummarySource(labelled_text(notes), stretch)
        read = self._notes_reader(run, text.text)
        return (
            yield from self._summarizer.told(
                run.ask.book_id,
                text,
                prompts,
                place,
                params,
                read,
                ignore_cache=run.ask.ignore_cache,
                keep=keep,
            )
        )

    def _stretch(self, ask: Request, start: int, end: int, lines: Sequence[SummaryLine] = ()) -> TellableSpan:
        return TellableSpan(ask.book, self._books.evidence(ask.book), (start, end), lines)

    def _part_reader(self, run: AnswerRun, part: ReadingPart) -> Read:
        ids = self._books.ids(run.ask.book, part)
        return lambda prompt, params: self._turns.alone(
            run, part_key(run.ask, part), ids, prompt, params, of_book=True
        )

    def _notes_reader(self, run: AnswerRun, text: str) -> Read:
        ids = self._tokenizer.encode(text + "\n\n")
        return lambda prompt, params: self._turns.alone(run, notes_key(run.ask), ids, prompt, params)

    # ---- the end -------------------------------------------------------------------------------------------

    def _shown(
        self,
        run: AnswerRun,
        plan: ReadingPlan,
        sections: Sequence[HeadedLines],
        stats: Stats,
        *,
        told: str = "",
        note: str = "",
        closing: tuple[Piece, ...] = (),
    ) -> Iterator[Event]:
        """The summary as one answer, which later turns repeat. `told`: what the reader saw of it before."""
        text, stands = composed(sections, quoting=not note)
        notes = [note] if note else quoted(stands)
        if run.ask.instructions and self._style.summaries == "told":
            yield from self._as_wished(run, plan, sections, stats, notes, closing)
            return
        if run.ask.instructions:
            notes.append(not_followed())
        if text.text != told:
            yield ReadingStep(1, 1, _("the whole book"), "whole summary", attempt=2 if told else 1)
            yield from ready_text(text)
        if closing:
            yield Delta(closing)
        pieces = (*text.pieces, *closing)
        ids = tuple(self._tokenizer.encode("".join(piece.text for piece in pieces)))
        self._conversations.memory(run.ask).asked(
            run.ask, self._tokenizer.encode(self._style.whole_prompt), ids
        )
        done = Answer("stop", pieces, ids, stats)
        sources = source_names(run.ask.book, plan.parts)
        yield replace(self._turns.finished(done, plan=plan, sources=sources, notes=notes), stands=stands)

    def _as_wished(
        self,
        run: AnswerRun,
        plan: ReadingPlan,
        sections: Sequence[HeadedLines],
        stats: Stats,
        notes: Sequence[str],
        closing: tuple[Piece, ...],
    ) -> Iterator[Event]:
        """A summary whose sentences were held against the book, told once more with the person's own
        instructions: in another language they could not be held against it.
        """
        prompt = of_length(self._style, self._style.join_prompts[0], run.ask.summary_length)
        text, figures, reason = LevelledText(), [stats], "stop"
        for number, section in enumerate(sections, 1):
            label = section.heading or _("the whole book")
            yield ReadingStep(number, len(sections), label, "whole summary", attempt=2 if number == 1 else 1)
            title = f"## {section.heading}\n\n" if section.heading else ""
            heading = LevelledText.plain(("\n\n" if text.text else "") + title)
            yield from ready_text(heading)
            told = joined_lines(section.lines)
            wish = with_instructions(in_language_of(told, self._style, prompt), run.ask.instructions)
            done = yield from self._notes_reader(run, told)(wish, run.params)
            text += heading + _complete(done)
            figures.append(done.stats)
            if done.reason == "user":
                reason = "user"
                break
        if closing:
            yield Delta(closing)
        pieces = (*text.pieces, *closing)
        note = _("Told once more as your instructions ask; before that its sentences were held to the book.")
        ids = tuple(self._tokenizer.encode("".join(piece.text for piece in pieces)))
        self._conversations.memory(run.ask).asked(
            run.ask, self._tokenizer.encode(self._style.whole_prompt), ids
        )
        whole = Answer(reason, pieces, ids, combined_stats(figures))
        sources = source_names(run.ask.book, plan.parts)
        yield self._turns.finished(whole, plan=plan, sources=sources, notes=(*notes, note))

    def _stopped(
        self,
        run: AnswerRun,
        plan: ReadingPlan,
        told: Sequence[PartSummary],
        stats: Stats,
        said: Sequence[str],
    ) -> Finished:
        """The end of a reading in parts that the user stopped: what was `told` of the parts before, as it
        stands; `said` of that.
        """
        text, stands = composed([HeadedLines(part.label, part.lines) for part in told], quoting=True)
        done = Answer("user", text.pieces, tuple(self._tokenizer.encode(text.text)), stats)
        sources = source_names(run.ask.book, plan.parts[: len(told)])
        end = self._turns.finished(done, plan=plan, sources=sources, notes=(*quoted(stands), *said))
        return replace(end, stands=stands)


def _complete(done: Answer) -> LevelledText:
    """What was told, up to its last whole sentence where it was cut or ended in circles."""
    text = LevelledText.of(done.pieces)
    if done.reason in ("length", "looping"):
        text = text[: len(whole_sentences(text.text))]
    return text.strip()


def _chapters(ask: Request, plan: ReadingPlan) -> list[tuple[str, tuple[ReadingPart, ...]]]:
    """The parts of each chapter under its name."""
    return [(place_name(ask.book, parts), parts) for parts in by_chapter(ask.book, plan.parts)]
