"""One answer in its context: its prompt, a text and what was said about it; generated, checked, reported.

Knows neither books nor how they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import accumulate
from typing import Any

from core.cache.query_recorder import AttentionHead, QueryRecorder
from core.conversation.answering import Answer, Answering, finished_answer, generate_answer
from core.conversation.asking import AnswerRun, ConversationMemories
from core.conversation.attention_tracker import AttentionTracker, PassageSpans
from core.conversation.contexts import ContextShelf
from core.conversation.reading import ReadingPlan, ReadingStyle
from core.conversation.time_estimates import TimeEstimate
from core.conversation.verification import verify_answer
from core.decoding.branching import AnswerBranch
from core.decoding.context import Context
from core.engine import Done, Engine
from core.errors import UserError
from core.events import DecodingStarted, Event, Finished, Prefill, Preparing, RoundStats, VerificationResult
from core.planning.layout import PASSAGE_SLACK
from core.request import Params
from core.stats import StatsRecorder
from core.text.detokenizer import Detokenizer
from core.text.levelled import stripped
from core.text.prompt import PackedPrompt, PromptTurn, build_prompt
from core.text.stopping import StopStrings
from core.text.tokenizer import Tokenizer
from core.text.words import listed_texts
from core.text.words import translated as _
from core.text.words import translated_count as _n

# tokens a context is made larger than needed, for follow-up turns
_SLACK = 1024


class Turns:
    """Answers in contexts, one at a time. `verify`: every answer is re-checked by plain decoding. `heads`:
    the attention heads that are asked where the model looked; none: nobody asks.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        style: ReadingStyle,
        *,
        shelf: ContextShelf,
        conversations: ConversationMemories,
        expectation: TimeEstimate,
        verify: bool,
        heads: Sequence[AttentionHead] = (),
    ) -> None:
        self._engine, self._tokenizer, self._style = engine, tokenizer, style
        self._shelf, self._conversations, self._expectation = shelf, conversations, expectation
        self._verify, self._heads = verify, tuple(heads)

    def turn(
        self,
        run: AnswerRun,
        key: tuple,
        text: Sequence[int],
        question: str,
        *,
        memo: Sequence[int] = (),
        keep: bool = False,
        places: Callable[[], PassageSpans] | None = None,
    ) -> Answering:
        """Answer `question` after text, memo and the turns so far, in the context of `key`. `keep`: the text
        may be kept on disk. `places`: the passages in the text, where it is worth telling which were looked
        at. Raises UserError when it does not fit.
        """
        turns, asked = self._conversations.turns(run.ask), self._tokenizer.encode(question)
        prompt = self._laid_out([*text, *memo], turns, asked, run.params)
        if prompt.dropped_turns and run.ask.forbid_truncation:
            words = _(
                "The conversation does not fit beside the text any more. Ask again: then you can choose what "
                "is left out."
            )
            raise UserError(words)
        kept = prompt.head_tokens - len(memo) if keep else 0
        look = None
        if places is not None and self._heads:
            look = partial(self._looker, places(), prompt, question, asked=run.ask.question)
        low_priority = run.ask.low_priority
        done = yield from self._generate(
            run, key, prompt.ids, run.params, keep_tokens=kept, passing=low_priority, look=look
        )
        self._conversations.memory(run.ask).asked(run.ask, asked, done.token_ids)
        if not prompt.dropped_turns:
            return done
        left = _n(
            "The context is full: the oldest question of this conversation was left out.",
            "The context is full: the oldest {count} questions of this conversation were left out.",
            prompt.dropped_turns,
        ).format(count=prompt.dropped_turns)
        return replace(done, notes=(*done.notes, left))

    def room(self, run: AnswerRun, text: Sequence[int], question: str) -> dict[str, Any]:
        """How many tokens of the context each would take in `turn`: "text", every one of the "turns", the
        "question", and the longest "answer"; "context" is all there are.
        """
        frame, encode = self._tokenizer.frame(self._style.system), self._tokenizer.encode
        around = len(frame.ask) + len(frame.bridge)
        said = [len(one.question) + len(one.answer) + around for one in self._conversations.turns(run.ask)]
        return {
            "text": len(frame.opening) + len(text),
            "turns": said,
            "question": len(encode(question)) + len(frame.ask),
            "answer": run.params.max_new_tokens,
            "context": self._engine.context_tokens,
        }

    def alone(
        self,
        run: AnswerRun,
        key: tuple,
        text: Sequence[int],
        question: str,
        params: Params,
        *,
        of_book: bool = False,
    ) -> Answering:
        """One question about one text, outside of any conversation. `of_book`: it is the book's own text, and
        kept on disk if the reading of it is stopped; once it is read, what was said of it is kept instead.
        """
        frame, asked = self._tokenizer.frame(self._style.system), self._tokenizer.encode(question)
        prompt = build_prompt(frame, text, (), asked, room=self._engine.context_tokens)
        kept = prompt.head_tokens if of_book else 0
        keeping = {"keep_tokens": kept, "keep_whole": False, "passing": run.ask.low_priority}
        return (yield from self._generate(run, key, prompt.ids, params, **keeping))

    def passing(
        self, run: AnswerRun, key: tuple, text: Sequence[int], question: str, params: Params
    ) -> Answering:
        """One question about a short text that is one of many: its context gives way to those of books.
        Raises UserError when it does not fit.
        """
        prompt = self._laid_out(text, (), self._tokenizer.encode(question), params)
        return (yield from self._generate(run, key, prompt.ids, params, passing=True))

    def likelihoods(
        self, run: AnswerRun, key: tuple, text: Sequence[int], question: str, own: str, params: Params
    ) -> Generator[Event, None, tuple[float, float, int] | None]:
        """Reads a text for `passing` and writes nothing. Returns the log-probabilities of the person's `own`
        words in `question` behind it, and of the refusal behind that, in nats, and how many tokens were known
        before; None where somebody stopped it. Raises UserError when it does not fit.
        """
        encode, count = self._tokenizer.encode, self._tokenizer.count
        prompt, refusal = self._laid_out(text, (), encode(question), params), encode(self._style.refusal)
        read, asked = prompt.ids[: prompt.head_tokens], prompt.ids[prompt.head_tokens :]
        needed = len(prompt.ids) + max(params.max_new_tokens, len(refusal)) + 1
        context = self._shelf.take(key, needed, spare_tokens=PASSAGE_SLACK, passing=True)
        context.belongs_to(key[0], 0)
        events = self._engine.generate(context, [*read, asked[0]], params, should_stop=run.should_stop)
        known = 0
        for event in events:
            if isinstance(event, Done):
                return None
            if not isinstance(event, (Preparing, Prefill)):  # only now the context holds what was read
                known = event.reused_tokens
                break
            yield event
        found = self._engine.log_probabilities(context, read, [*asked, *refusal], kept=len(asked))
        before, words, __ = question.partition(own.strip())
        asked_nats, refused = sum(found[count(before) : count(before + words)]), sum(found[-len(refusal) :])
        return asked_nats, refused, known

    def several(
        self,
        run: AnswerRun,
        key: tuple,
        text: Sequence[int],
        question: str,
        each: Sequence[Params],
        *,
        known_tokens: int = 0,
    ) -> list[tuple[Answer, float]] | None:
        """Answers to a question about a text that `likelihoods` has just read, one for each of these params,
        in one batch; each with its log-probability in nats. `known_tokens`: that it had not to read. None
        where somebody stopped it.
        """
        prompt = self._laid_out(text, (), self._tokenizer.encode(question), each[0])
        needed = len(prompt.ids) + each[0].max_new_tokens + 1
        context = self._shelf.take(key, needed, spare_tokens=PASSAGE_SLACK, passing=True)
        decode, eos_ids = self._tokenizer.decode, self._engine.eos_ids
        branches = [AnswerBranch(params, StopStrings(params.stop, decode)) for params in each]
        seconds = self._engine.several(context, prompt.ids, branches, should_stop=run.should_stop)
        if seconds is None:
            return None
        found = []
        for one in branches:
            started = DecodingStarted(
                "autoregressive",
                self._engine.model_name,
                self._engine.context_tokens,
                len(prompt.ids),
                known_tokens,
                temperature=one.params.temperature,
            )
            recorder = StatsRecorder(started)
            for took in seconds[: len(one.tokens)]:
                recorder.round(RoundStats(1, took))
            said = finished_answer(
                one.tokens, one.reason, recorder.stats(), decode=decode, eos_ids=eos_ids, stops=one.ends
            )
            found.append((said, one.log_probability))
        return found

    def rechecked(
        self, run: AnswerRun, key: tuple, text: Sequence[int], question: str, params: Params, done: Answer
    ) -> Answer:
        """An answer of `several` with how plain decoding agrees, where every answer is checked."""
        if not self._verify or not done.token_ids:
            return done
        prompt = self._laid_out(text, (), self._tokenizer.encode(question), params)
        needed = len(prompt.ids) + params.max_new_tokens + 1
        context = self._shelf.take(key, needed, spare_tokens=PASSAGE_SLACK, passing=True)
        self._engine.complete(context)
        return self._checked(done, context, prompt.ids, params)

    def judged(
        self,
        run: AnswerRun,
        key: tuple,
        text: Sequence[int],
        question: str,
        params: Params,
        ids: Sequence[int],
    ) -> VerificationResult:
        """What plain decoding says of `ids`, an answer that was given to such a question before with these
        `params`. Raises UserError when the question does not fit.
        """
        prompt = self._laid_out(text, (), self._tokenizer.encode(question), params)
        needed = min(self._engine.context_tokens, len(prompt.ids) + len(ids) + 1)
        context = self._shelf.take(key, needed, passing=True)
        self._engine.complete(context)
        return self._verified(context, [*prompt.ids, *ids], len(prompt.ids), params)

    def finished(
        self,
        done: Answer,
        *,
        sources: Sequence[str],
        plan: ReadingPlan | None = None,
        notes: Sequence[str] = (),
    ) -> Finished:
        """The end of an answer, with what was read for it and what the reader should know."""
        reading = {} if plan is None else {"reading": asdict(plan)}
        told = [*(plan.notes if plan else ()), *notes, *done.notes]
        if plan and plan.left_out:
            told.append(_("Not read: {places}.").format(places=listed_texts(plan.left_out, "; ")))
        pieces = stripped(done.pieces)
        return Finished(
            done.reason,
            "".join(piece.text for piece in pieces),
            done.stats,
            done.token_ids,
            tuple(sources),
            tuple(told),
            {**self._engine.plan.to_json(), **reading},
            pieces=pieces,
        )

    def _laid_out(
        self, text: Sequence[int], turns: Sequence[PromptTurn], asked: Sequence[int], params: Params
    ) -> PackedPrompt:
        room = self._engine.context_tokens - params.max_new_tokens
        try:
            return build_prompt(self._tokenizer.frame(self._style.system), text, turns, asked, room=room)
        except ValueError as error:
            words = _(
                "This does not fit the context: {reason}. Ask a shorter question, lower max_new_tokens, "
                "or read the text in parts."
            )
            raise UserError(words.format(reason=error), ways=("retrieval", "chunked")) from error

    def _looker(
        self,
        places: PassageSpans,
        prompt: PackedPrompt,
        question: str,
        context: Context,
        *,
        asked: str | None,
    ) -> AttentionTracker:
        """What watches the answer to `question`, the prompt's last text, in a context. Of it, only what was
        `asked` counts, where that is in it: the wording around it looks nowhere.
        """
        frame, config = self._tokenizer.frame(self._style.system), self._engine.model.config
        before, words, __ = question.partition((asked or question).strip())
        start = len(prompt.ids) - len(frame.ask) - self._tokenizer.count(question)
        first, last = (self._tokenizer.count(text) for text in (before, before + words))
        own = range(start + first, start + last) if words else range(start, start + last)
        context.looking = context.looking or QueryRecorder(self._heads, group=config.heads // config.kv_heads)
        context.looking.begin(own.start)
        return AttentionTracker(
            context, places, text_start=len(frame.opening), question=own, prompt_tokens=len(prompt.ids)
        )

    def _generate(
        self,
        run: AnswerRun,
        key: tuple,
        ids: list[int],
        params: Params,
        *,
        keep_tokens: int = 0,
        keep_whole: bool = True,
        passing: bool = False,
        look: Callable[[Context], AttentionTracker] | None = None,
    ) -> Answering:
        """Generate in the context of `key`, whose first `keep_tokens` come from disk if they are there and go
        there later; without `keep_whole` only if not all of them were read.
        """
        longest = max(params.max_new_tokens, len(run.ask.compare))
        needed = min(self._engine.context_tokens, len(ids) + longest + 1)
        spare = min(PASSAGE_SLACK if passing else _SLACK, self._engine.context_tokens - needed)
        context = self._shelf.take(key, needed, spare_tokens=spare, passing=passing)
        context.belongs_to(key[0], keep_tokens, stored_while_read=keep_whole)
        events = generate_answer(
            self._engine,
            context,
            ids,
            params,
            decode=self._tokenizer.decode,
            should_stop=run.should_stop,
            looker=look(context) if look else None,
        )
        while True:
            try:
                event = next(events)
            except StopIteration as finished:
                done: Answer = finished.value
                break
            if not passing:  # what a page takes says little of a book
                self._expectation.watch(event)
            yield event
        self._expectation.answered(done.stats)
        paused = bool(keep_tokens) and len(context.ids) < keep_tokens
        if not paused and not keep_whole:
            context.belongs_to(key[0], 0)
        if paused:
            note = _(
                "Paused: {done:,} of {total:,} tokens are read, and kept. Ask again to go on from there."
            )
            words = note.format(done=len(context.ids), total=keep_tokens)
            done = replace(done, notes=(*done.notes, words))
        if context.cache is None:  # stopped before there was one
            return done
        if run.ask.compare and len(ids) + len(run.ask.compare) <= context.capacity:
            verified = self._verified(context, [*ids, *run.ask.compare], len(ids), params)
            return replace(done, stats=replace(done.stats, verified=verified))
        return self._checked(done, context, ids, params) if self._verify and done.token_ids else done

    def _verified(self, context: Context, ids: list[int], start: int, params: Params) -> VerificationResult:
        found = verify_answer(self._engine.model, context, ids, start, params)
        known = {
            one.name: getattr(found, one.name) for one in fields(VerificationResult) if one.name != "places"
        }
        return VerificationResult(**known, places=self._places(ids[start:], found.ties) if found.ties else ())

    def _places(self, ids: Sequence[int], numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The characters that these tokens brought, in the answer's text as it is shown."""
        detokenizer = Detokenizer(self._tokenizer.decode)
        texts = [detokenizer.feed(one) for one in ids]
        left = len("".join(texts)) - len("".join(texts).lstrip())
        ends = list(accumulate(map(len, texts), initial=-left))
        spans = ((max(ends[one], 0), ends[one + 1]) for one in numbers)
        return tuple((start, end) for start, end in spans if end > start)

    def _checked(self, done: Answer, context: Context, ids: list[int], params: Params) -> Answer:
        """The answer with how a plain pass over it agrees, in its figures and as a note."""
        verified = self._verified(context, [*ids, *done.token_ids], len(ids), params)
        agreed = _("Checked against plain decoding: {agreed} of {tokens} tokens agree.")
        if verified.near_ties:
            agreed = _(
                "Checked against plain decoding: {agreed} of {tokens} tokens agree, {ties} by a near-tie."
            )
        note = agreed.format(agreed=verified.agreed, tokens=verified.tokens, ties=verified.near_ties)
        return replace(done, notes=(*done.notes, note), stats=replace(done.stats, verified=verified))
