"""A book in parts: summarised part by part, and asked about in the part that matches the question best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from core.ask import Ask, Params
from core.conversation.answering import Answer
from core.conversation.asking import Conversations, Run, asked, asked_of_text
from core.conversation.books import Books, passage
from core.conversation.notes import Note, joined
from core.conversation.reading import Part, ReadingPlan, ReadingStyle, place_name
from core.conversation.summary import Read, Stretches, Summarizer, assembled
from core.conversation.turns import Answering, Turns
from core.documents.document import Document
from core.events import Event, Finished, Reading, Stats
from core.text.tokenizer import Tokenizer
from core.text.words import translated as _

# a follow-up stays with its part unless another one matches clearly better
_STAY = 0.7


class InParts:
    """What a session does with a book that is read in parts.

    `room_tokens(n)`: what a context holds of a text beside the instructions and an answer of n tokens.
    """

    def __init__(
        self,
        turns: Turns,
        tokenizer: Tokenizer,
        style: ReadingStyle,
        *,
        books: Books,
        conversations: Conversations,
        summarizer: Summarizer,
        room_tokens: Callable[[int], int],
    ) -> None:
        self._turns, self._tokenizer, self._style = turns, tokenizer, style
        self._books, self._conversations, self._summarizer = books, conversations, summarizer
        self._room_tokens = room_tokens

    def known(self, book: Document, plan: ReadingPlan) -> list[Note]:
        """The summaries of the parts that were read before, in any conversation."""
        found = [
            (part.label, self._summarizer.known(book.sha256, passage(book, part))) for part in plan.parts
        ]
        return [
            Note(label, text, index, index) for index, (label, text) in enumerate(found) if text is not None
        ]

    # ---- a summary -----------------------------------------------------------------------------------------

    def summarize(self, run: Run, plan: ReadingPlan) -> Iterator[Event]:
        """The events of a summary of all parts."""
        ask, notes = run.ask, []
        for index, part in enumerate(plan.parts):
            told = yield from self._summarizer.part(
                ask.book_id,
                passage(ask.book, part),
                Reading(index + 1, len(plan.parts), part.label, "part summary"),
                self._conversations.note_params(ask, index + 1),
                self._part_reader(run, part),
                fresh=ask.fresh,
            )
            if told.stopped:
                yield self._stopped(told.stats, plan, index)
                return
            notes.append(Note(part.label, told.text, index, index))
        found = yield from self._summarizer.stretches(
            notes,
            self._tokenizer.count,
            lambda first, last: place_name(ask.book, plan.parts[first : last + 1]),
            lambda number: self._conversations.note_params(ask, number),
            self._notes_reader(run),
            room=self._room_tokens(max(512, run.params.max_new_tokens)),
            most=run.params.max_new_tokens // self._style.note_tokens,
        )
        if found.stopped:
            yield self._stopped(found.stats, plan, len(plan.parts), assembled(found.notes))
            return
        if len(found.notes) == 1:
            yield Reading(1, 1, _("the whole book"), "whole summary")
            text = self._encoded(found.notes[0].text)
            done = yield from self._turns.turn(run, _notes_key(ask), text, self._style.join_prompts[0])
        else:
            done = self._assembled(ask, found)
        yield self._turns.finished(done, plan=plan, sources=[part.label for part in plan.parts])

    def _assembled(self, ask: Ask, found: Stretches) -> Answer:
        """The stretches as one answer, which later turns repeat."""
        text = assembled(found.notes)
        ids = tuple(self._tokenizer.encode(text))
        note = _("Told in {count} stretches of the book, each from the summaries of its parts.")
        self._conversations.memory(ask).asked(self._tokenizer.encode(self._style.join_prompts[0]), ids)
        return Answer("stop", text, ids, found.stats, (note.format(count=len(found.notes)),))

    def _stopped(self, stats: Stats, plan: ReadingPlan, read: int, text: str = "") -> Finished:
        """The end of a reading in parts that the user stopped."""
        note = _("Stopped before the whole was told; the summaries of all parts are kept.")
        if read < len(plan.parts):
            note = _("Stopped in part {number} of {count}; the parts before it are kept.").format(
                number=read + 1, count=len(plan.parts)
            )
        done = Answer("user", text, tuple(self._tokenizer.encode(text)), stats)
        sources = [part.label for part in plan.parts[:read]]
        return self._turns.finished(done, plan=plan, sources=sources, notes=(note,))

    def _part_reader(self, run: Run, part: Part) -> Read:
        def read(text: str, question: str, params: Params) -> Answering:
            ids = self._books.ids(run.ask.book, part)
            return self._turns.alone(run, part_key(run.ask, part), ids, question, params, of_book=True)

        return read

    def _notes_reader(self, run: Run) -> Read:
        def read(text: str, question: str, params: Params) -> Answering:
            return self._turns.alone(run, _notes_key(run.ask), self._encoded(text), question, params)

        return read

    # ---- a question ----------------------------------------------------------------------------------------

    def answer(self, run: Run, plan: ReadingPlan) -> Iterator[Event]:
        """The events of an answer from the part that matches the question; from the summaries of all parts
        where none does.
        """
        ask, known = run.ask, self.known(run.ask.book, plan)
        part = self._part_for(ask, plan)
        if part is None and len(known) == len(plan.parts):
            source = _("the summaries of all parts")
            yield Reading(1, 1, source)
            text = self._encoded(self._within_room(known))
            done = yield from self._turns.turn(run, _notes_key(ask), text, asked(self._style, ask.question))
            yield self._turns.finished(done, plan=plan, sources=(source,))
            return
        notes: tuple[str, ...] = ()
        if part is None:
            part = plan.parts[0]
            notes = (_("The question names nothing that occurs in the book, so its beginning was read."),)
        self._conversations.memory(ask).part = part
        yield Reading(plan.parts.index(part) + 1, len(plan.parts), part.label)
        memo = self._memo(known)
        done = yield from self._turns.turn(
            run,
            part_key(ask, part),
            self._books.ids(ask.book, part),
            asked_of_text(self._style, ask.question),
            memo=memo,
            keep=True,
            places=lambda: self._books.stretches(ask.book, part),
        )
        sources = (part.label, _("the summaries of the other parts")) if memo else (part.label,)
        yield self._turns.finished(done, plan=plan, sources=sources, notes=notes)

    def _part_for(self, ask: Ask, plan: ReadingPlan) -> Part | None:
        """The part a question is about; None when its words occur nowhere and none was talked about."""
        scores = self._books.index(ask.book, plan.parts).scores(ask.question)
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        last = self._conversations.memory(ask).part
        if last in plan.parts and scores[plan.parts.index(last)] >= _STAY * scores[best]:
            return last
        return plan.parts[best] if scores[best] > 0 else None

    def _memo(self, notes: Sequence[Note]) -> Sequence[int]:
        """The part summaries as far as a quarter of a part: more would drown the part itself."""
        if not notes:
            return ()
        ids = self._encoded("What the other parts tell, in short:\n" + joined(notes))
        return ids if len(ids) <= self._style.part_tokens // 4 else ()

    def _within_room(self, notes: list[Note]) -> str:
        room = self._room_tokens(512)
        while len(notes) > 1 and self._tokenizer.count(joined(notes)) > room:
            notes = notes[:-1]
        return joined(notes)

    def _encoded(self, text: str) -> list[int]:
        return self._tokenizer.encode(text + "\n\n")


def part_key(ask: Ask, part: Part) -> tuple:
    """What the context of a part is kept under."""
    return ask.book_id, part.start, part.end


def _notes_key(ask: Ask) -> tuple:
    return ask.book_id, "notes"
