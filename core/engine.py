"""The engine: token ids in, token ids out. Owns contexts (a KV cache with the ids it holds) and runs prompts
through them.

Knows nothing of text, books or conversations. A context keeps what it has seen, so a prompt that continues it
is prefilled only where it is new.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from core.cache.base import KeyHook, TargetKVCache
from core.cache.reading_store import ReadingStore
from core.cache.snapshot import SnapshotStore
from core.decoding.branching import AnswerBranch, grow_branches
from core.decoding.context import Context
from core.decoding.decoder import Decoder, Ends, Refresh, Round, never
from core.errors import UserError
from core.events import DecodingStarted, Prefill, Preparing, Stats
from core.model.llama import LlamaModel
from core.planning.plan import Plan
from core.planning.slow_link import slow_note
from core.request import Params
from core.stats import StatsRecorder
from core.text.words import translated as _

log = logging.getLogger(__name__)

_WORTH_LOADING = 256  # tokens a prompt must lack before the disk is looked at


@dataclass(frozen=True, slots=True)
class Done:
    """The answer ended. `reason`: stop | length | user | context_full. `notes`: what was not as planned."""

    reason: str
    stats: Stats
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer under way: `committed` is the prompt and what was said so far."""

    context: Context
    committed: list[int]
    params: Params
    recorder: StatsRecorder
    started: float
    should_stop: Callable[[], bool]
    ends: Ends

    @property
    def tokens(self) -> int:
        """How many of the answer there are."""
        return len(self.committed) - self.recorder.started.prompt_tokens


Compose = Callable[[Params, Context, int], Decoder]


class Engine:
    """Runs prompts. `compose(params, context, answer_start)` builds the decoder for one answer (see
    core.assembly).

    `cache_beside(capacity)` makes a cache for a context beside a book's, as `new_cache` makes the book's.
    `give_way()` is asked for a plan with less on the device when that is out of memory; None: there is none.
    `shrink(cache)` then takes the difference off the device and keeps what was read; False: it cannot.
    `host_memory(capacity)` makes ready what `new_cache` will take of host memory, piece by piece: bytes that
    are ready, of how many.
    """

    def __init__(
        self,
        model: LlamaModel,
        plan: Plan,
        *,
        new_cache: Callable[[int], TargetKVCache],
        cache_beside: Callable[[int], TargetKVCache] | None = None,
        compose: Compose,
        peak_memory: Callable[[], int],
        give_way: Callable[[], Plan | None] = lambda: None,
        shrink: Callable[[TargetKVCache], bool] = lambda cache: False,
        host_memory: Callable[[int], Iterator[tuple[int, int]]] = lambda capacity: iter(()),
        snapshots: SnapshotStore | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model, self.plan = model, plan
        self.context_tokens = plan.context_tokens
        self.model_name, self.model_identity = model.config.name, model.config.identity
        self.eos_ids = model.config.eos_ids
        self._new_cache, self._cache_beside = new_cache, cache_beside
        self._compose, self._give_way = compose, give_way
        self._shrink, self._host_memory = shrink, host_memory
        self._peak_memory, self._snapshots, self._clock = peak_memory, snapshots, clock
        self._backend = model.backend
        self._notes: list[str] = []

    def new_context(self, capacity_tokens: int) -> Context:
        """An empty context for up to `capacity_tokens` tokens. Raises UserError beyond the plan's context."""
        context = self.planned_context(capacity_tokens)
        self.complete(context)
        return context

    def planned_context(self, capacity_tokens: int, *, beside: bool = False) -> Context:
        """Likewise, without a cache: that is made for the first answer in it, which tells how far it is. One
        `beside` a book's takes nothing on the device that is planned for the book: where that is out of
        memory its question fails, and the plan stays.
        """
        if capacity_tokens > self.context_tokens:
            said = _(
                "{tokens:,} tokens do not fit the context of {context:,}. Choose fewer chapters or read in "
                "parts."
            )
            raise UserError(said.format(tokens=capacity_tokens, context=self.context_tokens))
        return Context(None, capacity_tokens, beside=beside and self._cache_beside is not None)

    def complete(self, context: Context) -> None:
        """Makes a context's cache where it has none. Raises UserError where the device has no room for it."""
        if context.cache is None:
            for _ in self._with_cache(context, lambda: False):
                pass

    def generate(
        self,
        context: Context,
        ids: Sequence[int],
        params: Params,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        ends: Ends = never,
    ) -> Iterator[Preparing | Prefill | DecodingStarted | Round | Done]:
        """Continues `ids`, all of the prompt. Yields Preparing while memory for it is made ready, Prefill
        while reading, DecodingStarted, one Round per round, Done at the end.

        `ends` is told of every token of the answer in order, and the answer is complete with the one it says
        True to. The caller may stop iterating after any event; the next call starts from what the context
        holds. Raises UserError when the prompt leaves no room for an answer.
        """
        if self.plan.plain and params.mode == "triforce":
            params = replace(params, mode="autoregressive")
        if self.plan.straight and params.mode == "triforce":
            params = replace(params, mode="ngram" if self.plan.drafter == "lookup" else "draft")
        capacity = context.capacity
        if len(ids) >= capacity:
            said = _(
                "The prompt has {tokens:,} tokens and the context holds {capacity:,}. Choose fewer chapters "
                "or read in parts."
            )
            raise UserError(said.format(tokens=len(ids), capacity=capacity))
        if not (yield from self._with_cache(context, should_stop)):
            yield Done("user", Stats(mode=params.mode, model=self.model_name, prompt_tokens=len(ids)))
            return
        started, known = self._clock(), context.keep_prefix_of(ids)
        yield from self._restore(context, ids[:-1], should_stop)
        reused = context.cache.length
        started_with = DecodingStarted(
            mode=params.mode,
            model=self.model_name,
            context_total=self.context_tokens,
            prompt_tokens=len(ids),
            reused_tokens=reused,
            snapshot_tokens=reused - known,
            temperature=params.temperature,
        )
        recorder = StatsRecorder(started_with)
        run = _Answer(context, list(ids), params, recorder, started, should_stop, ends)
        reason = None
        while reason is None:
            try:
                reason = yield from self._attempt(run)
            except RuntimeError as error:
                if not self._backend.out_of_memory(error):
                    raise
                log.warning("out of memory after %d tokens: %s", context.cache.length, error)
            if reason is None and not (yield from self._start_over(context, should_stop)):
                reason = "user"
        slow = slow_note(self.plan, recorder)
        notes, self._notes = (*self._notes, *filter(None, [slow])), []
        yield Done(reason, replace(recorder.stats(), peak_memory_bytes=self._peak_memory()), notes)

    @torch.inference_mode()
    def log_probabilities(
        self, context: Context, ids: Sequence[int], said: Sequence[int], *, kept: int = 0
    ) -> list[float]:
        """Of the model going on with every token of `said` after `ids`, which were just read, in nats, at
        temperature 1 and without a penalty. One short pass; the context keeps `ids` and the first `kept`
        tokens behind them, and loses what came there.
        """
        assert said and len(ids) + len(said) <= context.capacity, (len(ids), len(said), context.capacity)
        cache, known = context.cache, context.keep_prefix_of(ids)
        following = [*ids, *said[:-1]]
        logits = self.model.forward(following[known:], cache)[-len(said) :]
        cache.rollback(len(ids) + min(kept, len(said) - 1))
        cache.commit(cache.length)
        context.hold(following)
        wanted = torch.tensor(said, device=logits.device)
        return logits.float().log_softmax(-1).gather(1, wanted[:, None])[:, 0].tolist()

    @torch.inference_mode()
    def several(
        self,
        context: Context,
        ids: Sequence[int],
        branches: Sequence[AnswerBranch],
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[float] | None:
        """Answers `ids` by every branch, which is filled: rows of one batch over what was just read of `ids`.
        Returns the seconds of each pass, None where somebody stopped it. The context is left as it was.
        """
        cache, known = context.cache, context.keep_prefix_of(ids)
        if known < len(ids) - 1:
            self.model.forward(ids[known:-1], cache)
        seconds, started = list[float](), self._clock()
        try:
            for _left in grow_branches(self.model, cache, ids, branches, eos_ids=self.eos_ids):
                if should_stop():
                    return None
                seconds.append(self._clock() - started)
                started = self._clock()
        finally:
            cache.rollback(known)
        return seconds

    def _attempt(self, run: _Answer) -> Generator[Prefill | DecodingStarted | Round, None, str]:
        """Reads what the context lacks of prompt and answer so far and goes on. Returns the reason."""
        known, recorder, started = run.committed[:-1], run.recorder, run.recorder.started
        run.context.cache.witness = run.context.looking
        decoder = self._compose(run.params, run.context, started.prompt_tokens)
        for event in self._prefill(run.context, known, decoder.refresh, run.should_stop):
            yield replace(event, reused_tokens=started.reused_tokens, snapshot_tokens=started.snapshot_tokens)
        if not run.tokens:
            recorder.prefilled(self._clock() - run.started)
        if run.context.cache.length < len(known):
            return "user"
        if not run.tokens:
            yield recorder.started
        return (yield from self._decode(run, decoder))

    def _start_over(
        self, context: Context, should_stop: Callable[[], bool]
    ) -> Generator[Preparing, None, bool]:
        """Makes room on a device that was out of memory: rows in host memory stay, where the cache can be
        made smaller, else the context is emptied and made anew. False: somebody stopped that. Raises
        UserError when nothing is left.
        """
        try:
            self._with_less(context)
            if self._shrink(context.cache):
                context.keep_what_is_held()
                return True
        except RuntimeError as error:
            if not self._backend.out_of_memory(error):
                raise
            log.warning("out of memory while making a context smaller: %s", error)
        except UserError:
            context.close()
            raise
        context.close()
        self._backend.release()
        return (yield from self._with_cache(context, should_stop))

    def _with_cache(
        self, context: Context, should_stop: Callable[[], bool]
    ) -> Generator[Preparing, None, bool]:
        """Gives a context the cache that it lacks. False: somebody stopped it; what is ready stays ready."""
        while context.cache is None:
            started = self._clock()
            for done, total in () if context.beside else self._host_memory(context.capacity):
                elapsed = self._clock() - started
                yield Preparing(done, total, elapsed * (total - done) / done)
                if should_stop():
                    return False
            try:
                make = self._cache_beside if context.beside else self._new_cache
                context.cache = make(context.capacity)
            except RuntimeError as error:
                if not self._backend.out_of_memory(error):
                    raise
                log.warning("out of memory for a context of %d tokens: %s", context.capacity, error)
            if context.cache is None:  # what the error held on to is gone by now
                self._with_less(context)
        return True

    def _with_less(self, context: Context) -> None:
        """The plan gives way, and the reader will be told once; for what is beside a book's it does not."""
        self._backend.release()
        plan = None if context.beside else self._give_way()
        if plan is None:
            said = _(
                "The GPU's memory does not hold {model} and what a context of {tokens:,} tokens needs beside "
                "it. Close other programs that use the GPU, lower context_tokens or prefill_segment_tokens, "
                "or choose a smaller model."
            )
            tokens = context.capacity if context.beside else self.context_tokens
            raise UserError(said.format(model=self.model_name, tokens=tokens))
        self.plan, self._notes = plan, list(plan.notes[-1:])

    def stored_tokens(self, book_id: str, ids: Sequence[int]) -> int:
        """How many of the first `ids` of a book need no prefill because their rows lie on disk."""
        return self._snapshots.longest(book_id, ids) if self._snapshots else 0

    def save(self, context: Context, *, should_stop: Callable[[], bool]) -> None:
        """Stores what is unsaved of a context, as far as it is read; when stopped, a later call goes on."""
        ids = context.ids[: context.book_tokens]
        if self._snapshots is None or context.saved or not ids:
            return
        with torch.inference_mode():
            context.saved = self._snapshots.save(context.book_id, ids, context.cache, should_stop=should_stop)

    @property
    def lost(self) -> bool:
        """Whether the device has failed for good: no answer will come from this process any more."""
        return self._backend.lost()

    @property
    def stored_as(self) -> str:
        """Under which name this model's snapshots lie on disk; "" where none are stored."""
        return self._snapshots.model_name if self._snapshots else ""

    def forget_book(self, book_id: str) -> None:
        """Deletes what is stored of a book."""
        if self._snapshots is not None:
            self._snapshots.folder.forget(book_id)

    def _restore(
        self, context: Context, ids: Sequence[int], should_stop: Callable[[], bool]
    ) -> Iterator[Prefill]:
        """Loads what the context lacks of `ids` as far as it lies on disk."""
        known, started = context.cache.length, self._clock()
        book = ids[: context.book_tokens]
        if self._snapshots is None or len(book) - known < _WORTH_LOADING:
            return
        steps = self._snapshots.load(context.book_id, book, context.cache, start=known)
        while not should_stop():
            with torch.inference_mode():
                length = next(steps, None)
            if length is None:
                break
            context.cache.advance(length - context.cache.length)
            context.cache.commit(length)
            context.hold(ids)
            yield Prefill(0, len(ids) - length, self._clock() - started, None, length, length - known)
        context.drop_what_is_cut()

    def _prefill(
        self, context: Context, ids: Sequence[int], refresh: Refresh, should_stop: Callable[[], bool]
    ) -> Iterator[Prefill]:
        """Feeds what the context lacks of `ids`, or as much of it as there is time for.

        A segment ends where the book does: so what follows is computed in the same steps, and rounded the
        same, whether the book's rows were computed now or loaded.
        """
        start, started = context.cache.length, self._clock()
        total = len(ids) - start
        book_end = min(max(context.book_tokens, start), len(ids))
        for first, end in ((start, book_end), (book_end, len(ids))):
            if context.cache.length != first:
                return
            if first == context.book_tokens:
                context.cache.remember()  # the next question about the book begins here
            tap = refresh.tap if end == len(ids) else None
            for fed in self._feed(context, ids[:end], tap, should_stop):
                elapsed, done = self._clock() - started, first - start + fed
                yield Prefill(done, total, elapsed, elapsed * (total - done) / done if done else None)

    def _feed(
        self, context: Context, ids: Sequence[int], tap: KeyHook | None, should_stop: Callable[[], bool]
    ) -> Iterator[int]:
        """Prefills the rest of `ids`, yielding how many tokens of it are done."""
        steps = self.model.prefill(
            ids[context.cache.length :],
            context.cache,
            segment_tokens=self.plan.prefill_segment_tokens,
            chunk_tokens=self.plan.prefill_chunk_tokens,
            should_stop=should_stop,
            tap=tap,
        )
        store = self._reading_store(context)
        while True:
            self._backend.adapt()
            with torch.inference_mode():
                done = next(steps, None)
                context.hold(ids)
                if store and done is not None:
                    book = context.ids[: context.book_tokens]
                    store.follow(book, context.cache, should_stop=should_stop)
            if done is None:
                return
            yield done

    def _reading_store(self, context: Context) -> ReadingStore | None:
        """Where the rest of a context's book goes while it is read."""
        if self._snapshots is None or context.saved or not context.stored_while_read:
            return None
        return ReadingStore(self._snapshots, context.book_id, read=context.cache.length, clock=self._clock)

    def _decode(self, run: _Answer, decoder: Decoder) -> Generator[Round, None, str]:
        """Rounds until the answer ends. Returns the reason."""
        while (left := run.params.max_new_tokens - run.tokens) > 0:
            if run.should_stop():
                return "user"
            room = run.context.capacity - len(run.committed) - 1
            if room < 1:
                return "context_full"
            self._backend.adapt()
            with torch.inference_mode():
                result = decoder.round(run.committed, most=min(left, room), ends=run.ends)
            run.committed.extend(result.tokens)
            run.context.hold(run.committed)
            result = replace(result, peak_memory_bytes=self._peak_memory())
            run.recorder.round(result.stats)
            yield result
            if result.ended:
                return "stop"
        return "length"
