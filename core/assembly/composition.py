"""Which drafter stands in front of the full cache, in each mode."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import torch

from core.assembly.cache_factory import kv_type, slack
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.cache.base import KVCache, KVStore, TargetKVCache
from core.cache.full import FullKVCache
from core.cache.layered import Layered, with_side
from core.cache.layered_retrieval import LayeredRetrievalKVCache, retrieval_over
from core.cache.layered_streaming import LayeredStreamingKVCache
from core.cache.offloaded import OffloadedKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.streaming import StreamingKVCache
from core.config import PLAIN_MODES
from core.decoding.ahead import AheadDrafter, AssistantDrafter, HeardModel, HeardRows
from core.decoding.context import Context
from core.decoding.decoder import Decoder, Refresh
from core.decoding.draft_length import Costs, DraftLength, ExpectedGain, FixedLength
from core.decoding.drafters import (
    Drafter,
    DraftingModel,
    EmptyDrafter,
    FirstDrafter,
    ModelDrafter,
    NgramDrafter,
    VerifiedDrafter,
)
from core.decoding.ngrams import NgramIndex
from core.decoding.randomness import Randomness, SeededRandomness
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.hardware.measured import Measurements
from core.model.ahead import AheadHead
from core.model.assistant import Assistant
from core.model.cuda_graphs import GraphedForward
from core.model.graph_warmup import warmed_up, warmup_note
from core.model.llama import LlamaModel
from core.model.recorded_verification import RecordedVerification
from core.planning.costs import ACCEPTANCE_AHEAD
from core.planning.plan import Plan
from core.request import Params
from core.text.words import translated as _

log = logging.getLogger(__name__)

DraftModel = LlamaModel | AheadHead | Assistant


class Composer:
    """Builds the decoder of one answer: which drafter stands in front of the full cache in each mode.

    `randomness` makes an answer's chance from its seed; by `clock` rounds are timed.
    """

    def __init__(
        self,
        plan: Plan,
        model: LlamaModel,
        draft: DraftModel | None,
        *,
        randomness: Callable[[int], Randomness] = SeededRandomness,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._plan, self._model, self._randomness, self._clock = plan, model, randomness, clock
        self._middle_model, self._draft = model.drafting, draft and draft.drafting
        # of the target over a retrieval cache of the plan's budget
        self._middle_passes: GraphedForward | None = None
        self._draft_passes: GraphedForward | None = None  # of the draft model
        self._middle_store: KVStore | None = None  # of the last retrieval cache
        # of the target over the full cache; recorded while it answers, since each book's has its own memory
        self._verification: RecordedVerification | None = None
        self._heard = HeardRows(plan.draft_window)  # of the answer that is under way
        # what drafts came along with the target, and is fed what the target made of tokens
        self._along = isinstance(self._draft, AheadHead | Assistant)

    def prepare(self, measured: Measurements | None = None) -> tuple[str, ...]:
        """Records the passes of draft and middle level where the plan says so, before there is anything to
        answer. Returns what to tell.

        Their memory then serves one answer after the other, and must: a recorded pass knows no other. What is
        in `measured` is not measured again.
        """
        if self._plan.cuda_graphs == "off":
            return ()
        try:
            if self._model.recordable and not self._model.config.kv_shape.beside:  # of rows in one store
                self._middle_passes = self._recorded(
                    "middle", self._middle_model, self._rehearsed_retrieval(), measured
                )
            if self._draft_is_recordable():
                self._draft_passes = self._recorded("draft", self._draft, self._rehearsed_draft(), measured)
        except RuntimeError as error:
            if not self._model.backend.out_of_memory(error):
                raise
            log.warning("no memory to prepare short passes: %s", error)
            self._model.backend.release()
        notes = [
            warmup_note(level, passes)
            for level, passes in (("middle", self._middle_passes), ("draft", self._draft_passes))
            if passes
        ]
        return *notes, *self._verify_by_recordings()

    def _draft_is_recordable(self) -> bool:
        if self._draft is None or self._along:
            return False
        return self._draft.recordable and self._draft.config.kv_shape.states is None

    def _verify_by_recordings(self) -> tuple[str, ...]:
        """Has verifications recorded where the whole KV cache stays on the device. Returns what to tell."""
        config = self._model.config
        away = self._plan.staging_blocks or not self._model.recordable
        if self._along or away or config.kv_shape.beside:
            return ()
        reason = self._model.backend.long_unrecorded(
            config.heads, config.kv_heads, config.head_dim, rows=kv_type(self._plan)
        )
        if reason:
            return (_("CUDA graphs: not used for verification; {reason}.").format(reason=reason),)
        self._verification = RecordedVerification(self._model, most_rows=SHORT_PASS_ROWS)
        return (_("CUDA graphs: used for verification, where passes of as many rows come again."),)

    def _recorded(
        self,
        level: str,
        model: LlamaModel,
        cache: RetrievalKVCache | StreamingKVCache,
        measured: Measurements | None,
    ) -> GraphedForward:
        """A draft of `middle_gamma` tokens makes a pass of one row more; the draft model's cache lags by as
        much after a lookup.
        """
        rows = range(1, self._plan.middle_gamma + 2)
        return warmed_up(
            level, model, cache, rows, only_faster=self._plan.cuda_graphs == "auto", measured=measured
        )

    def _rehearsed_retrieval(self) -> RetrievalKVCache:
        """A cache as full as after a selection. Its source holds nothing."""
        plan = self._plan
        source = FullKVCache(
            self._model.config.kv_shape,
            plan.retrieval_chunk,
            self._model.backend,
            block_tokens=plan.retrieval_chunk,
        )
        cache = self._retrieval(source)
        # no position beyond the rotary table
        cache.advance(min(plan.retrieval_budget + cache.recent, plan.context_tokens))
        return cache

    def _rehearsed_draft(self) -> StreamingKVCache:
        cache = self._streaming(self._draft)
        cache.advance(cache.sinks + cache.window)
        return cache

    def compose(self, params: Params, context: Context, answer_start: int) -> Decoder:
        """The decoder for one answer in `context`."""
        sampling = Sampling(params.temperature, params.top_p, params.repetition_penalty, answer_start)
        randomness = self._randomness(params.seed)
        context.cache.attend_on_host(self._cpu_share(params.mode))
        self._heard = HeardRows(self._plan.draft_window)
        drafter, refresh = self._drafter(params, context, sampling, randomness, answer_start)
        return Decoder(
            drafter,
            self._verification or self._told(self._model),
            context.cache,
            sampling,
            randomness,
            gamma=self._plan.gamma,
            eos_ids=self._model.config.eos_ids,
            refresh=refresh,
            clock=self._clock,
        )

    def _cpu_share(self, mode: str) -> float:
        """Of what lies in host memory, by the plan."""
        if mode == "cpu_attention":
            return 1.0
        return self._plan.cpu_share_plain if mode in PLAIN_MODES else self._plan.cpu_share

    def _drafter(
        self,
        params: Params,
        context: Context,
        sampling: Sampling,
        randomness: Randomness,
        context_tokens: int,
    ) -> tuple[Drafter, Refresh | None]:
        if params.mode in PLAIN_MODES:
            return EmptyDrafter(), None
        if params.mode == "ngram":
            return NgramDrafter(context.index), None
        if params.mode == "draft":
            return self._level_zero(context.index, context.cache, sampling, randomness), None
        if params.mode == "streaming":
            cache = self._streaming(self._model)
            return self._middle(
                EmptyDrafter(), self._middle_model, cache, params, context_tokens, sampling, randomness
            ), None
        passes = self._middle_passes
        retrieval = self._retrieval(context.cache, store=passes.store if passes else self._middle_store)
        # one answer at a time: the next one gets the same memory
        self._middle_store = retrieval.store
        below: Drafter = EmptyDrafter()
        if params.mode != "retrieval":
            below = self._level_zero(context.index, retrieval, sampling, randomness)
        middle = self._middle(
            below,
            passes or self._told(self._middle_model),
            retrieval,
            params,
            context_tokens,
            sampling,
            randomness,
        )
        return middle, RetrievalRefresh(context.cache, retrieval)

    def _told(self, model: LlamaModel) -> DraftingModel:
        """The target, listened to where what came along with it drafts."""
        return HeardModel(model, self._heard) if self._along else model

    def _level_zero(
        self, index: NgramIndex, verified_by: KVCache, sampling: Sampling, randomness: Randomness
    ) -> Drafter:
        """The light drafter: lookup in book and answer, and where that finds nothing a small model over a
        StreamingLLM cache, a layer of the target's own over such, or the target's assistant over the cache of
        the level that verifies, where that is on the device.
        """
        if self._draft is None or (isinstance(self._draft, Assistant) and _is_away(verified_by)):
            return NgramDrafter(index)
        return FirstDrafter(NgramDrafter(index, shortest=2), self._drafted(verified_by, sampling, randomness))

    def _drafted(self, verified_by: KVCache, sampling: Sampling, randomness: Randomness) -> Drafter:
        if isinstance(self._draft, Assistant):
            how = {"length": self._length_along()}
            return AssistantDrafter(self._draft, verified_by, self._heard, sampling, randomness, **how)
        if self._along:
            return self._drafted_ahead(sampling, randomness)
        # a middle pass takes as long for the few rows of a short draft as for one, so only the draft's own
        # passes count against it
        costs = Costs(verify=self._plan.expected_middle_ms, row=0.0, middle=self._plan.expected_draft_ms)
        passes = self._draft_passes
        cache = self._streaming(self._draft, store=passes and passes.store)
        return ModelDrafter(passes or self._draft, cache, sampling, randomness, length=ExpectedGain(costs))

    def _drafted_ahead(self, sampling: Sampling, randomness: Randomness) -> AheadDrafter:
        cache, how = self._streaming(self._draft), {"length": self._length_along()}
        return AheadDrafter(self._draft, cache, self._heard, sampling, randomness, **how)

    def _length_along(self) -> DraftLength:
        plan = self._plan
        verify, row = plan.expected_middle_ms, 0.0
        if plan.straight:
            verify, row = plan.verification_ms, plan.expected_row_ms
        costs = Costs(verify=verify, row=row, middle=plan.expected_draft_ms)
        return ExpectedGain(costs, ACCEPTANCE_AHEAD)

    def _middle(
        self,
        below: Drafter,
        model: DraftingModel,
        cache: RetrievalKVCache | StreamingKVCache,
        params: Params,
        context_tokens: int,
        sampling: Sampling,
        randomness: Randomness,
    ) -> VerifiedDrafter:
        costs = _costs(self._plan, context_tokens)
        length: DraftLength = (
            FixedLength() if self._plan.fixed_gamma else ExpectedGain(costs, self._plan.assumed_acceptance)
        )
        level = "streaming" if params.mode == "streaming" else "retrieval"
        return VerifiedDrafter(
            below,
            model,
            cache,
            sampling,
            randomness,
            gamma=self._plan.middle_gamma,
            length=length,
            eos_ids=self._model.config.eos_ids,
            level=level,
        )

    def draft_pass(self) -> Callable[[], None]:
        """One pass of what drafts over a full window, for timing it."""
        if isinstance(self._draft, Assistant):
            return self._assistant_pass(self._draft)
        cache, held = self._streaming(self._draft), self._plan.draft_sinks + self._plan.draft_window
        fed = self._draft.forward_blindly if self._along else self._draft.forward
        fed([0] * held, cache)

        def once() -> None:
            # reading a number waits for the device
            fed([0], cache)[-1, 0].item()
            cache.rollback(held)

        return once

    def _assistant_pass(self, assistant: Assistant) -> Callable[[], None]:
        """Likewise over as many rows of the target's as a window has."""
        shape = self._model.config.kv_shape
        how = {"block_tokens": self._plan.retrieval_chunk}
        full = FullKVCache(shape.of_full, shape.window, self._model.backend, **how)
        cache, row = with_side(shape, full, room=slack(self._plan)), self._model.embed([0])
        cache.advance(shape.window)

        def once() -> None:
            assistant.logits(assistant.follow(0, row, cache))[-1, 0].item()

        return once

    def _retrieval(
        self, source: TargetKVCache, store: KVStore | None = None
    ) -> RetrievalKVCache | LayeredRetrievalKVCache:
        return retrieval_over(
            source,
            budget=self._plan.retrieval_budget,
            chunk=self._plan.retrieval_chunk,
            tail_tokens=self._plan.tail_tokens,
            slack=slack(self._plan),
            store=store,
        )

    def _streaming(
        self, model: LlamaModel | AheadHead, store: KVStore | None = None
    ) -> StreamingKVCache | LayeredStreamingKVCache:
        return streaming_cache(
            model,
            sinks=self._plan.draft_sinks,
            window=self._plan.draft_window,
            slack=slack(self._plan),
            store=store,
        )


def _is_away(cache: KVCache) -> bool:
    """Whether rows of it lie in host memory."""
    return isinstance(cache.full if isinstance(cache, Layered) else cache, OffloadedKVCache)


def streaming_cache(model: LlamaModel | AheadHead, **how: Any) -> StreamingKVCache | LayeredStreamingKVCache:
    """A streaming cache for this model; see StreamingKVCache. Layers with a window are as others in it."""
    shape = model.config.kv_shape
    if shape.states is None:
        return StreamingKVCache(shape, model.backend, model.rope.rotate, **how)

    def rotate(place: int, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return model.rope.rotate(shape.seeing_all[place], x, positions)

    return LayeredStreamingKVCache(shape, StreamingKVCache(shape.of_full, model.backend, rotate, **how))


def _costs(plan: Plan, context_tokens: int) -> Costs:
    """Pass times in milliseconds that the draft length weighs, for a cache of `context_tokens`; from the
    plan, never from the clock. A pass over a context that the retrieval budget holds is one of the middle
    level.
    """
    budget, longest = plan.retrieval_budget, max(1, plan.context_tokens)
    beyond_middle = max(0.0, plan.verification_ms - plan.expected_middle_ms)
    beyond_budget = max(0, context_tokens - budget) / max(1, longest - budget)
    return Costs(
        verify=plan.expected_middle_ms + beyond_middle * beyond_budget,
        row=plan.expected_row_ms * context_tokens / longest,
        middle=plan.expected_middle_ms,
    )
