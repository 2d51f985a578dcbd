"""A book in parts is asked about in the part that matches the question best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from core.conversation.asking import AnswerRun, asked, asked_of_text, notes_key, part_key, with_instructions
from core.conversation.followups import looked_up
from core.conversation.part_summaries import PartSummary, labelled_text
from core.conversation.reading import ReadingPart, ReadingPlan
from core.conversation.refusals import reworded_refusal
from core.conversation.services import Responder, Services
from core.conversation.spoiler_guard import guarded_answer
from core.conversation.unjudged import doubted
from core.documents.document import Document
from core.events import Event, ReadingStep
from core.evidence.support import UNSAID_HERE
from core.request import Request
from core.text.words import translated as _
from core.text.words import translated_count as _n

# a follow-up stays with its part unless another one matches clearly better
_STAY = 0.7


class ChunkedAnswering(Responder):
    """What a session does with a book that is read in parts. `known`: the summaries of parts that were read
    before.
    """

    def __init__(
        self, services: Services, *, known: Callable[[Document, ReadingPlan], list[PartSummary]]
    ) -> None:
        super().__init__(services)
        self._known = known

    def answer(self, run: AnswerRun, plan: ReadingPlan) -> Iterator[Event]:
        """The events of an answer from the part that matches the question; from the summaries of all parts
        where none does.
        """
        ask, known = run.ask, self._known(run.ask.book, plan)
        part = self._part_for(ask, plan)
        if part is None and len(known) == len(plan.parts):
            source = _("the summaries of all parts")
            yield ReadingStep(1, 1, source)
            text = self._encoded(self._within_room(known, ask.instructions))
            question = with_instructions(asked(self._style, ask.question), ask.instructions)
            answer = self._turns.turn(run, notes_key(ask), text, question)
            done = yield from guarded_answer(answer, self._books.guard(ask))
            yield self._turns.finished(done, plan=plan, sources=(source,))
            return
        notes: tuple[str, ...] = ()
        if part is None:
            part = plan.parts[0]
            notes = (_("The question names nothing that occurs in what may be read, so its beginning was."),)
        memo = self._memo(known)
        if not memo and (others := len(plan.parts) - 1):
            words = _n("{count} other part was not read.", "{count} other parts were not read.", others)
            notes = (*notes, words.format(count=others))
        self._conversations.memory(ask).part = part
        yield ReadingStep(plan.parts.index(part) + 1, len(plan.parts), part.label)
        answer = self._turns.turn(
            run,
            part_key(ask, part),
            self._books.ids(ask.book, part),
            with_instructions(asked_of_text(self._style, ask.question), ask.instructions),
            memo=memo,
            keep=True,
            places=lambda: self._books.stretches(ask.book, part),
        )
        answer = reworded_refusal(answer, self._style.refusal, _(UNSAID_HERE))
        done = yield from guarded_answer(answer, self._books.guard(ask))
        sources = (part.label, _("the summaries of the other parts")) if memo else (part.label,)
        if done.reason == "user" and not done.token_ids:
            sources = ()  # a note says how far the reading came
        whole = self._turns.finished(done, plan=plan.of_one_part(), sources=sources, notes=notes)
        yield doubted(whole, run, self._style, self._books)

    def before(self, ask: Request, plan: ReadingPlan) -> list[int]:
        """The text that an answer would be given from, and the summaries of the other parts with it."""
        last = self._conversations.memory(ask).part
        part = self._part_for(ask, plan) if ask.question else last if last in plan.parts else None
        memo = self._memo(self._known(ask.book, plan))
        return [*self._books.ids(ask.book, part or plan.parts[0]), *memo]

    def _part_for(self, ask: Request, plan: ReadingPlan) -> ReadingPart | None:
        """The part a question is about; None when its words occur nowhere and none was talked about."""
        last = self._conversations.memory(ask).part
        # what was talked about before this process was started is known by the conversation alone
        question = ask.question if last in plan.parts else looked_up(ask)
        scores = self._books.index(ask.book, plan.parts).scores(question)
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        if last in plan.parts and scores[plan.parts.index(last)] >= _STAY * scores[best]:
            return last
        return plan.parts[best] if scores[best] > 0 else None

    def _memo(self, notes: Sequence[PartSummary]) -> Sequence[int]:
        """The part summaries as far as a quarter of a part: more would drown the part itself."""
        if not notes:
            return ()
        ids = self._encoded("What the other parts tell, in short:\n" + labelled_text(notes))
        return ids if len(ids) <= self._style.part_tokens // 4 else ()

    def _within_room(self, notes: list[PartSummary], instructions: str) -> str:
        room = self._room_tokens(512) - self._tokenizer.count(instructions)
        while len(notes) > 1 and self._tokenizer.count(labelled_text(notes)) > room:
            notes = notes[:-1]
        return labelled_text(notes)

    def _encoded(self, text: str) -> list[int]:
        return self._tokenizer.encode(text + "\n\n")
