"""Conversations about books: what is read for a question, in which cache, and what the reader gets to see of
it.

A book that fits is read whole (here), a longer one in parts (core.conversation.chunked_answering): each part
is summarised, the book from the parts, and a question goes to the part that matches it best. Where the model
reads passages best, or reading would take too long, they answer a question
(core.conversation.retrieval_answering).

A limit ("up to chapter 4") is a book that ends there: nothing below `ask` ever sees the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from core.backend.shared.heap import trim_heap
from core.cache.query_recorder import AttentionHead
from core.conversation.answer_language import english_only, in_language_of, no_english
from core.conversation.asking import (
    AnswerRun,
    ConversationMemories,
    asked_of_passage,
    asked_of_text,
    part_key,
    quoting,
    with_instructions,
)
from core.conversation.books import BookCache
from core.conversation.chunked_answering import ChunkedAnswering
from core.conversation.contexts import ContextShelf
from core.conversation.overview import Overview
from core.conversation.part_summaries import PartSummaryStore
from core.conversation.reading import ReadingPlan, ReadingStyle, book_chapters, of_length
from core.conversation.refusals import reworded_refusal, unsaid
from core.conversation.retrieval_answering import RetrievalAnswering
from core.conversation.services import Services
from core.conversation.source_names import source_names
from core.conversation.spoiler_guard import guarded_answer, named_up_to, told_so_far
from core.conversation.summarization import Summaries
from core.conversation.summary import Summarizer
from core.conversation.time_estimates import TimeEstimate, passages_asked
from core.conversation.turns import Turns
from core.conversation.unjudged import doubted
from core.documents.document import Document
from core.documents.word_count import count_words
from core.engine import Engine
from core.errors import UserError
from core.events import Event, ReadingStep
from core.request import Request
from core.text.questions import asked_of_whole
from core.text.tokenizer import Tokenizer
from core.text.words import duration
from core.text.words import translated as _

_FRAME_TOKENS = 160  # kept free for the frame and the instruction
_READ_SHARE = 0.98
_ANSWER_TOKENS = 512  # of an answer, where nothing says how long it may be


def _allowed_book(ask: Request) -> Document:
    """What may be read of the book for this question."""
    return ask.book.up_to(ask.spoiler_limit).before(ask.end)


class Session:
    """Answers questions one at a time. `ask` yields events, Finished last; errors for the user are raised."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        style: ReadingStyle,
        *,
        allowance_bytes: int = 0,
        notes: PartSummaryStore | None = None,
        verify: bool = False,
        read_whole_s: float = 300.0,
        heads: Sequence[AttentionHead] = (),
        mapped_files: Mapping[str, int] | None = None,
        expectation: TimeEstimate | None = None,
    ) -> None:
        self._read_whole_s, self._mapped_files = read_whole_s, dict(mapped_files or {})
        self._engine, self._tokenizer, self._style = engine, tokenizer, style
        self._books = BookCache(tokenizer, style, engine.context_tokens)
        self._conversations = ConversationMemories(tokenizer, style)
        self._summarizer = Summarizer(
            style, notes or PartSummaryStore(), engine.model_name, kept_by=engine.model_identity
        )
        self._shelf = ContextShelf(engine.planned_context, allowance_bytes=allowance_bytes)
        self._expectation = expectation or TimeEstimate(engine.plan)
        longest = max((*style.part_prompts, asked_of_passage(style, "")), key=len)
        instructions = (style.system, quoting(style, style.whole_prompt), longest)
        self._instruction_tokens = _FRAME_TOKENS + sum(map(tokenizer.count, instructions))
        self._turns = Turns(
            engine,
            tokenizer,
            style,
            shelf=self._shelf,
            conversations=self._conversations,
            expectation=self._expectation,
            verify=verify,
            heads=heads,
        )
        services = Services(
            self._turns,
            tokenizer,
            style,
            self._books,
            self._conversations,
            self._summarizer,
            self._expectation,
            self._room_tokens,
        )
        self._summaries = Summaries(services)
        self._in_parts = ChunkedAnswering(services, known=self._summaries.known)
        self._from_passages = RetrievalAnswering(services)
        self._overview = Overview(
            services,
            summaries=self._summaries,
            from_passages=self._from_passages,
            plan_for=self._plan_for,
            sections=lambda run: self._reading_plan(run, "chunked", apart=True),
        )

    # ---- what the app asks for -----------------------------------------------------------------------------

    def ask(self, ask: Request, *, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """The events of one answer. Raises UserError when the book cannot be read as asked."""
        params = self._conversations.params(ask)
        if ask.book is None:
            yield from self._talk(AnswerRun(ask, params, should_stop))
            return
        run = AnswerRun(replace(ask, book=_allowed_book(ask)), params, should_stop)
        events = self._about_book(run, ask.book)
        if ask.spoiler_limit is not None:
            events = named_up_to(events, ask.spoiler_limit, len(book_chapters(run.ask.book)))
        if ask.question is None and ask.end == len(run.ask.book.text):
            events = told_so_far(events)
        yield from events

    def _about_book(self, run: AnswerRun, whole: Document) -> Iterator[Event]:
        """The events of an answer about a book, which is `whole` without its limit."""
        ask, plan = run.ask, self._plan_for(run)
        kind = asked_of_whole(ask.question, ask.book.title) if ask.question else None
        if kind and (plan.mode != "full" or self._style.passages and ask.reading_mode != "full"):
            yield from self._overview.answer(run, kind, whole)
            return
        if ask.question and no_english(self._style, whole):  # the model cannot say that it does not say
            plan = self._reading_plan(run, "retrieval")
        plan = replace(plan, notes=(*plan.notes, *english_only(self._style, ask.question, whole)))
        if plan.mode == "retrieval":
            yield from self._from_passages.answer(run, plan, self._from_passages.found(ask, plan))
        elif ask.question is None and (plan.mode != "full" or not self._tells_whole(ask)):
            yield from self._summaries.summarize(run, plan)
        elif len(plan.parts) == 1:
            yield from self._whole(run, plan)
        else:
            yield from self._in_parts.answer(run, plan)

    @property
    def lost(self) -> bool:
        """See Engine."""
        return self._engine.lost

    @property
    def facts(self) -> dict[str, Any]:
        """What whoever shows the answers should know of their model: plan, model_name, context_tokens,
        mapped_files (core.model.store.model_folder), stored_as (core.engine).
        """
        engine = self._engine
        return {
            "plan": engine.plan.to_json(),
            "model_name": engine.model_name,
            "context_tokens": engine.context_tokens,
            "mapped_files": self._mapped_files,
            "stored_as": engine.stored_as,
        }

    def reading_plan(
        self,
        book: Document,
        *,
        reading_mode: str = "auto",
        chapters: tuple[int, int] | None = None,
        max_new_tokens: int = _ANSWER_TOKENS,
    ) -> ReadingPlan:
        """How `book` would be read."""
        reserve = max_new_tokens + self._instruction_tokens
        return self._books.plan(book, reading_mode=reading_mode, chapters=chapters, reserve=reserve)

    def card(
        self,
        book: Document,
        spoiler_limit: int | None = None,
        *,
        chapters: tuple[int, int] | None = None,
        selected_chapters: tuple[int, ...] = (),
        whole: bool = False,
    ) -> dict[str, Any]:
        """What the app shows before anything is read: size, fit, parts and how long it may take, of what may
        be read or of the chosen chapters; `whole`: read in one go wherever that can be.

        `prefill_s_estimate` is until the text is read; `read_s_estimate` is until a question can be answered
        from the whole book, and counts what is written of its parts first and not known yet.
        `passages_s_estimate` is until it is answered from passages, `is_measured` where this process has read
        anything: else the plan, or an earlier process, says how fast; and `from_passages` says that this is
        what `auto` does.
        """
        book = book.up_to(spoiler_limit)
        plan = self._card_plan(book, chapters, selected_chapters, whole=whole)
        words = book.words
        if chapters or selected_chapters:
            words = sum(count_words(book.text[one.start : one.end]) for one in plan.parts)
        stored = self._stored_tokens(book, plan)
        prefill_s = self._expectation.reading_s(plan.tokens - max(stored, self._held_tokens(book, plan)))
        return {
            "title": book.title,
            "author": book.author,
            "chapters": len(selected_chapters)
            or (1 + chapters[1] - chapters[0] if chapters else len(book.chapters)),
            "words": words,
            "tokens": plan.tokens,
            "share_of_context": plan.tokens / self._engine.context_tokens,
            "fits": plan.mode == "full",
            "parts": [part.label for part in plan.parts],
            "chapter_tokens": list(self._books.chapter_tokens(book)),
            "chapters_read": self._chapters_read(book, plan),
            "snapshot_tokens": stored,
            "prefill_s_estimate": prefill_s,
            "read_s_estimate": self._summary_s(book, plan) if self._told_in_parts(plan) else prefill_s,
            "passages_s_estimate": self._expectation.passages_s(self._style, passages_asked(plan.tokens)),
            "is_measured": self._expectation.is_measured,
            "from_passages": self._style.passages or self._wait_s(book, plan) > self._read_whole_s,
            "notes": [*plan.notes, *no_english(self._style, book), *book.warnings],
        }

    def _card_plan(
        self, book: Document, chapters: tuple[int, int] | None, selected: tuple[int, ...], *, whole: bool
    ) -> ReadingPlan:
        reserve = _ANSWER_TOKENS + self._instruction_tokens
        chosen = {"chapters": chapters, "selected_chapters": selected, "reserve": reserve}
        if whole:
            try:
                return self._books.plan(book, reading_mode="full", **chosen)
            except UserError:
                pass  # it does not fit: what a question gets then says so
        return self._books.plan(book, reading_mode="auto", **chosen)

    def room(self, ask: Request) -> dict[str, Any]:
        """How the context would be filled by an answer, see Turns.room; without a question: by the next one.
        "reading" is how the book is read. Passages are each read alone, without the turns. Reads nothing.
        """
        params = self._conversations.params(replace(ask, params={**ask.params, "seed": 0}))
        run = AnswerRun(ask, params, lambda: False)
        question = with_instructions(asked_of_text(self._style, ask.question or ""), ask.instructions)
        if ask.book is None:
            return {**self._turns.room(run, (), question), "reading": "full"}
        known = replace(ask, book=_allowed_book(ask))
        plan = self._plan_for(replace(run, ask=replace(known, question=ask.question or "")))
        mode = plan.mode
        if not ask.question and ask.reading_mode == "auto" and self._style.passages:
            mode = "retrieval"  # which ones, only a question says
        if mode == "retrieval":
            run, text = replace(run, ask=replace(known, history=())), ()
        elif len(plan.parts) == 1:
            run, text = replace(run, ask=known), self._books.ids(known.book, plan.parts[0])
        else:
            run, text = replace(run, ask=known), self._in_parts.before(known, plan)
        return {**self._turns.room(run, text, question), "reading": mode}

    def forget(self, conversation_id: str) -> None:
        """Drop what is remembered about a conversation."""
        self._conversations.forget(conversation_id)

    def save(self, *, should_stop: Callable[[], bool]) -> None:
        """Use idle time: give memory back, store on disk what was read of books. When stopped, a later call
        goes on.
        """
        trim_heap()
        for context in self._shelf.contexts:
            self._engine.save(context, should_stop=should_stop)

    def forget_book(self, book_id: str) -> None:
        """Drop and delete what was kept of a book's reading: its KV and what was noted of its parts."""
        self._shelf.drop_book(book_id)
        self._books.forget(book_id)
        self._summarizer.forget(book_id)
        self._engine.forget_book(book_id)

    def close(self) -> None:
        """Free every context."""
        self._shelf.close()

    def _plan_for(self, run: AnswerRun) -> ReadingPlan:
        """How the book is read for this question. Where that is left open: from passages if the model reads
        them best and they are to be found, or if more would take too long.
        """
        ask = run.ask
        reading_mode = (
            "auto" if ask.question is None and ask.reading_mode == "retrieval" else ask.reading_mode
        )
        if ask.question is None and ask.summary_length == "chapters":
            return self._reading_plan(run, "chunked", apart=True)
        if ask.question is None and reading_mode == "auto" and self._style.summaries == "supported":
            reading_mode = "chunked"
        plan = self._reading_plan(run, reading_mode)
        if reading_mode != "auto":
            return plan
        if ask.question is None:
            return self._in_time(run, plan)
        wait_s = self._wait_s(ask.book, plan)
        if wait_s <= self._read_whole_s and not self._style.passages:
            return plan
        passages = self._reading_plan(run, "retrieval")
        if wait_s <= self._read_whole_s:
            found = len(plan.parts) > 1 or self._from_passages.found(ask, passages)
            return passages if found else plan
        why = _(
            "Answered from passages: reading the book first would take about {time}. It can be read all the "
            "same, and paused."
        )
        return replace(passages, notes=(why.format(time=duration(wait_s)),))

    def _tells_whole(self, ask: Request) -> bool:
        """Whether a text that is read in one go is told so, too."""
        return self._style.summaries == "told" and ask.summaries != "own"

    def _in_time(self, run: AnswerRun, plan: ReadingPlan) -> ReadingPlan:
        """How a book is read for a summary: in parts, which are shown one after the other and kept, where
        reading it in one go would take too long.
        """
        wait_s = self._wait_s(run.ask.book, plan)
        if plan.mode != "full" or self._style.summaries != "told" or wait_s <= self._read_whole_s:
            return plan
        parts = self._reading_plan(run, "chunked")
        if len(parts.parts) == 1:
            return plan
        why = _("Summarised part by part: reading all of it first would take about {time}.")
        return replace(parts, notes=(why.format(time=duration(wait_s)),))

    def _reading_plan(self, run: AnswerRun, reading_mode: str, *, apart: bool = False) -> ReadingPlan:
        ask, own = run.ask, self._tokenizer.count(run.ask.instructions) if run.ask.instructions else 0
        reserve = run.params.max_new_tokens + self._instruction_tokens + own
        return self._books.plan(
            ask.book,
            reading_mode=reading_mode,
            chapters=ask.chapters,
            selected_chapters=ask.selected_chapters,
            reserve=reserve,
            apart=apart,
        )

    def _room_tokens(self, answer: int) -> int:
        """What a context holds of a text beside the instructions and an answer."""
        return self._engine.context_tokens - answer - self._instruction_tokens

    # ---- without a book, and with one that fits ------------------------------------------------------------

    def _talk(self, run: AnswerRun) -> Iterator[Event]:
        """A conversation without a book."""
        if run.ask.question is None:
            raise UserError(_("There is no book to summarise. Open one first."))
        question, sent = with_instructions(run.ask.question, run.ask.instructions), run.ask.text
        key, text = ((run.ask.text_id, "sent"), self._tokenizer.encode(sent)) if sent else (("talk",), ())
        done = yield from self._turns.turn(run, key, text, question, keep=bool(sent))
        yield self._turns.finished(done, sources=())

    def _whole(self, run: AnswerRun, plan: ReadingPlan) -> Iterator[Event]:
        """A text that is read in one go."""
        ask, part = run.ask, plan.parts[0]
        if ask.question is not None:
            yield ReadingStep(1, 1, part.label)
            question = asked_of_text(self._style, ask.question)
        else:
            yield ReadingStep(1, 1, part.label, "whole summary")
            wish = of_length(self._style, self._style.whole_prompt, ask.summary_length)
            question = quoting(self._style, in_language_of(ask.book.text, self._style, wish))
        question = with_instructions(question, ask.instructions)
        text = self._books.ids(ask.book, part)
        answer = self._turns.turn(
            run,
            part_key(ask, part),
            text,
            question,
            keep=True,
            places=lambda: self._books.stretches(ask.book, part),
        )
        answer = reworded_refusal(answer, self._style.refusal, _(unsaid(ask)))
        done = yield from guarded_answer(answer, self._books.guard(ask))
        if ask.question is None and done.reason != "user":
            yield from self._summaries.held(run, plan, question, done)
            return
        # stopped before its first word, it is answered from nothing: a note says how far the reading came
        read = source_names(ask.book, plan.parts) if plan.left_out else (part.label,)
        sources = read if done.token_ids or done.reason != "user" else ()
        yield doubted(self._turns.finished(done, plan=plan, sources=sources), run, self._style, self._books)

    # ---- how long it takes -------------------------------------------------------------------------------

    def _stored_tokens(self, book: Document, plan: ReadingPlan) -> int:
        """How much of a book that is read whole lies on disk; a book in parts is not stored before its parts
        are asked about.
        """
        if len(plan.parts) > 1:
            return 0
        opening = self._tokenizer.frame(self._style.system).opening
        ids = [*opening, *self._books.ids(book, plan.parts[0])]
        return min(plan.tokens, self._engine.stored_tokens(book.sha256, ids))

    def _held_tokens(self, book: Document, plan: ReadingPlan) -> int:
        """How much of a book that is read whole lies in memory."""
        if len(plan.parts) > 1:
            return 0
        part = plan.parts[0]
        return min(plan.tokens, self._shelf.held_tokens((book.sha256, part.start, part.end)))

    def _chapters_read(self, book: Document, plan: ReadingPlan) -> list[bool]:
        """Of each chapter, whether the model need not read it again: its keys and values are kept, or where
        the book is read in parts the summaries of all that lie in it.
        """
        chapters, tokens = book_chapters(book), self._books.chapter_tokens(book)
        if len(plan.parts) == 1:
            known = max(self._held_tokens(book, plan), self._stored_tokens(book, plan))
            # a text cut at its chapters has a few tokens more than in one piece
            return [_READ_SHARE * end <= known for end in accumulate(tokens)]
        told = {note.first for note in self._summaries.known(book, plan)}
        unread = [part for at, part in enumerate(plan.parts) if at not in told]
        return [not any(part.start < one.end and one.start < part.end for part in unread) for one in chapters]

    def _wait_s(self, book: Document, plan: ReadingPlan) -> float:
        """Seconds until a question's answer begins: what is not read of the book, or of its longest part."""
        if len(plan.parts) > 1:
            return self._expectation.reading_s(max(part.tokens for part in plan.parts))
        known = max(self._held_tokens(book, plan), self._stored_tokens(book, plan))
        return self._expectation.reading_s(plan.tokens - known)

    def _told_in_parts(self, plan: ReadingPlan) -> bool:
        """Whether the model writes of each part before it can tell of them all."""
        return len(plan.parts) > 1 and self._style.summaries == "told"

    def _summary_s(self, book: Document, plan: ReadingPlan) -> float:
        known = {note.first for note in self._summaries.known(book, plan)}
        unread = [part for index, part in enumerate(plan.parts) if index not in known]
        return self._expectation.summary_s(unread, len(plan.parts), self._style, _ANSWER_TOKENS)
