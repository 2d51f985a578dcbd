"""Conversations about books: what is read for a question, in which cache, and what the reader gets to see of
it.

Knows the engine only as something that continues ids. A book that fits is read whole; a longer one in parts:
each part is summarised, the book from the parts, and a question goes to the part that matches it best.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from core.ask import Ask, Params
from core.conversation.answering import Answer, Engine, answer
from core.conversation.asking import Conversations, asked, asked_of_text, quoting
from core.conversation.contexts import ContextShelf
from core.conversation.notes import Note, NoteStore, joined
from core.conversation.reading import Part, ReadingPlan, ReadingStyle, place_name, plan_reading
from core.conversation.summary import Read, Stretches, Summarizer, assembled
from core.documents.document import Document
from core.errors import UserError
from core.events import Event, Finished, Prefill, Reading, Stats, Verified
from core.text.prompt import build
from core.text.ranking import PartIndex
from core.text.tokenizer import Tokenizer

# tokens a context is made larger than needed, for follow-up turns
_SLACK = 1024
# a follow-up stays with its part unless another one matches clearly better
_STAY = 0.7
_FRAME_TOKENS = 160  # kept free for the frame and the instruction
_SPEED_MEMORY = 0.5  # weight of the newest prefill in the measured speed

Progress = Generator[Event, None, Answer]


class Session:
    """Answers questions one at a time. `ask` yields events and ends with Finished; errors for the user are
    raised.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        style: ReadingStyle,
        *,
        allowance_bytes: int = 0,
        notes: NoteStore | None = None,
        defaults: Mapping[str, Any] | None = None,
        verify: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._tokenizer, self._style = engine, tokenizer, style
        self._verify, self._clock = verify, clock
        self._conversations = Conversations(tokenizer, style, defaults or {})
        self._summarizer = Summarizer(style, notes or NoteStore(), engine.model_name)
        self._shelf = ContextShelf(engine.new_context, allowance_bytes=allowance_bytes)
        self._indexes: dict[tuple[str, tuple[Part, ...]], PartIndex] = {}
        self._prefill_speed: float | None = None

    # ---- what the app asks for -----------------------------------------------------------------------------

    def ask(self, ask: Ask, *, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """The events of one answer. Raises UserError when the book cannot be read as asked."""
        params = self._conversations.params(ask)
        if ask.book is None:
            yield from self._talk(ask, params, should_stop)
            return
        plan = self.reading_plan(
            ask.book, fit=ask.fit, chapters=ask.chapters, max_new_tokens=params.max_new_tokens
        )
        if len(plan.parts) == 1:
            yield from self._whole(ask, plan, params, should_stop)
        elif ask.question is None:
            yield from self._summarize_parts(ask, plan, params, should_stop)
        else:
            yield from self._ask_part(ask, plan, params, should_stop)

    @property
    def facts(self) -> dict[str, Any]:
        """What whoever shows the answers should know of their model: plan, model_name, context_tokens."""
        engine = self._engine
        return {
            "plan": engine.plan.to_json(),
            "model_name": engine.model_name,
            "context_tokens": engine.context_tokens,
        }

    def reading_plan(
        self,
        book: Document,
        *,
        fit: str = "auto",
        chapters: tuple[int, int] | None = None,
        max_new_tokens: int = 512,
    ) -> ReadingPlan:
        """How `book` would be read."""
        return plan_reading(
            book,
            self._tokenizer,
            context_tokens=self._engine.context_tokens,
            style=self._style,
            fit=fit,
            chapters=chapters,
            reserve=self._reserve(max_new_tokens),
        )

    def card(self, book: Document) -> dict[str, Any]:
        """What the app shows before anything is read: size, fit, parts and the time the reading may take."""
        plan = self.reading_plan(book)
        stored = self._stored_tokens(book, plan)
        return {
            "title": book.title,
            "author": book.author,
            "chapters": len(book.chapters),
            "words": book.words,
            "tokens": plan.tokens,
            "share_of_context": plan.tokens / self._engine.context_tokens,
            "fits": plan.mode == "whole",
            "parts": [part.label for part in plan.parts],
            "snapshot_tokens": stored,
            "prefill_s_estimate": self._prefill_estimate(plan.tokens - stored),
            "notes": [*plan.notes, *book.warnings],
        }

    def forget(self, conversation_id: str) -> None:
        """Drop what is remembered about a conversation."""
        self._conversations.forget(conversation_id)

    def save(self, *, should_stop: Callable[[], bool]) -> None:
        """Use idle time: store on disk what was read of books. When stopped, a later call goes on."""
        for context in self._shelf.contexts:
            self._engine.save(context, should_stop=should_stop)

    def forget_book(self, book_id: str) -> None:
        """Drop and delete what was kept of a book's reading: its KV and what was noted of its parts."""
        self._shelf.drop_book(book_id)
        self._indexes.clear()
        self._summarizer.forget(book_id)
        self._engine.forget_book(book_id)

    def close(self) -> None:
        """Free every context."""
        self._shelf.close()

    # ---- the three ways of answering -----------------------------------------------------------------------

    def _talk(self, ask: Ask, params: Params, should_stop: Callable[[], bool]) -> Iterator[Event]:
        """A conversation without a book."""
        if ask.question is None:
            raise UserError("There is no book to summarise. Open one first.")
        done = yield from self._turn(ask, ("talk",), "", "", ask.question, params, should_stop)
        yield self._finished(done, sources=())

    def _whole(
        self, ask: Ask, plan: ReadingPlan, params: Params, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        part = plan.parts[0]
        yield Reading(1, 1, part.label)
        question = (
            quoting(self._style, self._style.whole_prompt)
            if ask.question is None
            else asked_of_text(self._style, ask.question)
        )
        done = yield from self._turn(
            ask, _key(ask, part), _passage(ask.book, part), "", question, params, should_stop, keep=True
        )
        yield self._finished(done, plan=plan, sources=(part.label,))

    def _summarize_parts(
        self, ask: Ask, plan: ReadingPlan, params: Params, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        notes: list[Note] = []
        for index, part in enumerate(plan.parts):
            place = Reading(index + 1, len(plan.parts), part.label, "part summary")
            params_of_note = self._conversations.note_params(ask, index + 1)
            told = yield from self._summarizer.part(
                ask.book_id,
                _passage(ask.book, part),
                place,
                params_of_note,
                self._reader(_key(ask, part), should_stop),
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
            self._reader(_notes_key(ask), should_stop),
            room=self._engine.context_tokens - self._reserve(max(512, params.max_new_tokens)),
            most=params.max_new_tokens // self._style.note_tokens,
        )
        if found.stopped:
            yield self._stopped(found.stats, plan, len(plan.parts), assembled(found.notes))
            return
        if len(found.notes) == 1:
            yield Reading(1, 1, "the whole book", "whole summary")
            done = yield from self._turn(
                ask,
                _notes_key(ask),
                found.notes[0].text,
                "",
                self._style.join_prompts[0],
                params,
                should_stop,
            )
        else:
            done = self._assembled(ask, found)
        yield self._finished(done, plan=plan, sources=_labels(plan.parts))

    def _assembled(self, ask: Ask, found: Stretches) -> Answer:
        """The stretches as one answer, which later turns repeat."""
        text = assembled(found.notes)
        done = Answer(
            "stop",
            text,
            tuple(self._tokenizer.encode(text)),
            found.stats,
            (f"Told in {len(found.notes)} stretches of the book, each from the summaries of its parts.",),
        )
        self._conversations.memory(ask).questions[done.token_ids] = tuple(
            self._tokenizer.encode(self._style.join_prompts[0])
        )
        return done

    def _stopped(self, stats: Stats, plan: ReadingPlan, read: int, text: str = "") -> Finished:
        """The end of a reading in parts that the user stopped."""
        where = (
            f"in part {read + 1} of {len(plan.parts)}; the parts before it are kept"
            if read < len(plan.parts)
            else ("before the whole was told; the summaries of all parts are kept")
        )
        done = Answer("user", text, tuple(self._tokenizer.encode(text)), stats)
        return self._finished(
            done, plan=plan, sources=_labels(plan.parts[:read]), notes=(f"Stopped {where}.",)
        )

    def _ask_part(
        self, ask: Ask, plan: ReadingPlan, params: Params, should_stop: Callable[[], bool]
    ) -> Iterator[Event]:
        known = self._known_notes(ask, plan)
        part = self._part_for(ask, plan)
        if part is None and len(known) == len(plan.parts):
            yield Reading(1, 1, "the summaries of all parts")
            done = yield from self._turn(
                ask,
                _notes_key(ask),
                self._within_room(known),
                "",
                asked(self._style, ask.question),
                params,
                should_stop,
            )
            yield self._finished(done, plan=plan, sources=("the summaries of all parts",))
            return
        notes = (
            ()
            if part is not None
            else ("The question names nothing that occurs in the book, so its beginning was read.",)
        )
        part = part or plan.parts[0]
        self._conversations.memory(ask).part = part
        yield Reading(plan.parts.index(part) + 1, len(plan.parts), part.label)
        memo = self._memo(known)
        done = yield from self._turn(
            ask,
            _key(ask, part),
            _passage(ask.book, part),
            memo,
            asked_of_text(self._style, ask.question),
            params,
            should_stop,
            keep=True,
        )
        sources = (part.label, "the summaries of the other parts") if memo else (part.label,)
        yield self._finished(done, plan=plan, sources=sources, notes=notes)

    # ---- steps ---------------------------------------------------------------------------------------------

    def _turn(
        self,
        ask: Ask,
        key: tuple,
        text: str,
        memo: str,
        question: str,
        params: Params,
        should_stop: Callable[[], bool],
        *,
        keep: bool = False,
    ) -> Progress:
        """Answer `question` after text, memo and the turns so far, in the context of `key`. `keep`: the text
        may be kept on disk.
        """
        frame, encode = self._tokenizer.frame(self._style.system), self._tokenizer.encode
        head = encode(text + "\n\n") if text else []
        text_tokens = len(frame.opening) + len(head)
        head += encode(memo + "\n\n") if memo else []
        question_ids, turns = tuple(encode(question)), self._conversations.turns(ask)
        room = self._engine.context_tokens - params.max_new_tokens
        try:
            prompt = build(frame, head, turns, question_ids, room=room)
        except ValueError as error:
            raise UserError(
                f"This does not fit the context: {error}. Ask a shorter question, lower max_new_tokens, or "
                "use "
                "--fit sections."
            ) from error
        done = yield from self._generate(
            key, prompt.ids, params, should_stop, keep_tokens=text_tokens if keep else 0
        )
        self._conversations.memory(ask).questions[done.token_ids] = question_ids
        if prompt.dropped_turns:
            left = (
                f"The context is full: the oldest {prompt.dropped_turns} questions of this conversation "
                "were left out."
            )
            done = replace(done, notes=(*done.notes, left))
        return done

    def _reader(self, key: tuple, should_stop: Callable[[], bool]) -> Read:
        return lambda text, question, params: self._read_alone(key, text, question, params, should_stop)

    def _read_alone(
        self, key: tuple, text: str, question: str, params: Params, should_stop: Callable[[], bool]
    ) -> Progress:
        """One question about one text, outside of any conversation."""
        frame, encode = self._tokenizer.frame(self._style.system), self._tokenizer.encode
        ids = build(frame, encode(text + "\n\n"), (), encode(question), room=self._engine.context_tokens).ids
        return (yield from self._generate(key, ids, params, should_stop))

    def _generate(
        self,
        key: tuple,
        ids: list[int],
        params: Params,
        should_stop: Callable[[], bool],
        *,
        keep_tokens: int = 0,
    ) -> Progress:
        """Generate in the context of `key`, whose first `keep_tokens` come from disk if they are there and go
        there later.
        """
        needed = min(self._engine.context_tokens, len(ids) + params.max_new_tokens + 1)
        context = self._shelf.take(
            key, needed, spare_tokens=min(_SLACK, self._engine.context_tokens - needed)
        )
        context.belongs_to(key[0], keep_tokens)
        events = answer(
            self._engine, context, ids, params, decode=self._tokenizer.decode, should_stop=should_stop
        )
        while True:
            try:
                event = next(events)
            except StopIteration as finished:
                return self._checked(finished.value, context, ids, params) if self._verify else finished.value
            self._measure(event)
            yield event

    def _checked(self, done: Answer, context: Any, ids: list[int], params: Params) -> Answer:
        """The answer with how a plain pass over it agrees, in its figures and as a note."""
        if not done.token_ids:
            return done
        found = self._engine.verify(context, [*ids, *done.token_ids], len(ids), params)
        verified = Verified(**{one.name: found[one.name] for one in fields(Verified)})
        ties = f", {verified.near_ties} by a near-tie" if verified.near_ties else ""
        note = f"Checked against plain decoding: {verified.agreed} of {verified.tokens} tokens agree{ties}."
        return replace(done, notes=(*done.notes, note), stats=replace(done.stats, verified=verified))

    # ---- choices -------------------------------------------------------------------------------------------

    def _part_for(self, ask: Ask, plan: ReadingPlan) -> Part | None:
        """The part a question is about; None when its words occur nowhere and no part was talked about
        before.
        """
        index_key = (ask.book_id, plan.parts)
        if index_key not in self._indexes:
            self._indexes = {index_key: PartIndex([_passage(ask.book, part) for part in plan.parts])}
        scores = self._indexes[index_key].scores(ask.question)
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        last = self._conversations.memory(ask).part
        if last in plan.parts and scores[plan.parts.index(last)] >= _STAY * scores[best]:
            return last
        return plan.parts[best] if scores[best] > 0 else None

    def _known_notes(self, ask: Ask, plan: ReadingPlan) -> list[Note]:
        found = [
            (part.label, self._summarizer.known(ask.book_id, _passage(ask.book, part))) for part in plan.parts
        ]
        return [
            Note(label, text, index, index) for index, (label, text) in enumerate(found) if text is not None
        ]

    def _memo(self, notes: list[Note]) -> str:
        """The part summaries as far as a quarter of a part: more would drown the part itself."""
        room = self._style.part_tokens // 4
        memo = "What the other parts tell, in short:\n" + joined(notes) if notes else ""
        return memo if notes and self._tokenizer.count(memo) <= room else ""

    def _within_room(self, notes: list[Note]) -> str:
        room = self._engine.context_tokens - self._reserve(512)
        while len(notes) > 1 and self._tokenizer.count(joined(notes)) > room:
            notes = notes[:-1]
        return joined(notes)

    def _reserve(self, max_new_tokens: int) -> int:
        instructions = (
            self._style.system,
            quoting(self._style, self._style.whole_prompt),
            max(self._style.part_prompts, key=len),
        )
        return max_new_tokens + _FRAME_TOKENS + sum(self._tokenizer.count(text) for text in instructions)

    # ---- figures -------------------------------------------------------------------------------------------

    def _measure(self, event: Event) -> None:
        if (
            isinstance(event, Prefill)
            and event.done_tokens == event.total_tokens >= 256
            and event.elapsed_s > 0
        ):
            speed = event.total_tokens / event.elapsed_s
            old = self._prefill_speed or speed
            self._prefill_speed = old + _SPEED_MEMORY * (speed - old)

    def _stored_tokens(self, book: Document, plan: ReadingPlan) -> int:
        """How much of a book that is read whole lies on disk; a book in parts is not stored before its parts
        are asked about.
        """
        if len(plan.parts) > 1:
            return 0
        opening, text = self._tokenizer.frame(self._style.system).opening, _passage(book, plan.parts[0])
        return min(
            plan.tokens,
            self._engine.stored_tokens(book.sha256, [*opening, *self._tokenizer.encode(text + "\n\n")]),
        )

    def _prefill_estimate(self, tokens: int) -> float | None:
        """Seconds to read so much, by the speed measured so far, else by the plan's expectation."""
        if self._prefill_speed:
            return tokens / self._prefill_speed
        expected = getattr(self._engine.plan, "expected_prefill_s", None)
        return expected * tokens / self._engine.context_tokens if expected else None

    def _finished(
        self,
        done: Answer,
        *,
        sources: Sequence[str],
        plan: ReadingPlan | None = None,
        notes: Sequence[str] = (),
    ) -> Finished:
        engine_plan = self._engine.plan.to_json() if hasattr(self._engine.plan, "to_json") else {}
        reading = {} if plan is None else {"reading": asdict(plan)}
        told = [*(plan.notes if plan else ()), *notes, *done.notes]
        if plan and plan.left_out:
            told.append("Not read: " + "; ".join(plan.left_out) + ".")
        return Finished(
            done.reason,
            done.text.strip(),
            done.stats,
            done.token_ids,
            tuple(sources),
            tuple(told),
            {**engine_plan, **reading},
        )


def _key(ask: Ask, part: Part) -> tuple:
    return ask.book_id, part.start, part.end


def _notes_key(ask: Ask) -> tuple:
    return ask.book_id, "notes"


def _labels(parts: Sequence[Part]) -> tuple[str, ...]:
    return tuple(part.label for part in parts)


def _passage(book: Document, part: Part) -> str:
    """A part's text as the model gets it: paragraphs apart, no runs of blank lines."""
    return re.sub(r"\n\s*\n\s*", "\n\n", book.text[part.start : part.end]).strip()
