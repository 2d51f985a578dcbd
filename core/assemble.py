"""The only place that picks concrete classes from a Plan: backend, model, caches and the composition of each
mode.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from core import paths
from core.backend.base import Backend
from core.backend.cpu import CpuBackend
from core.backend.cuda import CudaBackend
from core.cache.base import KVStore, TargetKVCache
from core.cache.disk import SnapshotFolder, quota_bytes
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.snapshot import SnapshotStore
from core.cache.streaming import StreamingKVCache
from core.config import Settings
from core.decoding.decoder import Decoder, Refresh
from core.decoding.draft_length import Costs, DraftLength, ExpectedGain, FixedLength
from core.decoding.drafters import (
    Drafter,
    EmptyDrafter,
    FirstDrafter,
    Model,
    ModelDrafter,
    NgramDrafter,
    VerifiedDrafter,
)
from core.decoding.randomness import Randomness, SeededRandomness
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.engine import Engine, Params
from core.errors import UserError
from core.hardware.cpu import bfloat16_products_pay
from core.hardware.facts import GB, GIB
from core.hardware.measured import PAGE_LOCKED, Measurements
from core.model.llama import LlamaModel
from core.model.loader import load_draft, load_model
from core.model.prepared import prepared, told
from core.model.replay import ShortPasses
from core.model.stored import fingerprint
from core.planning.budget import CUDA_CONTEXT_BYTES
from core.planning.costs import MAX_MIDDLE_GAMMA
from core.planning.plan import Plan

log = logging.getLogger(__name__)

Progress = Callable[[str, float | None], None]
Replan = Callable[[int], Plan]
_MAX_GAMMA = 32
H2O_MOST = 8192  # tokens whose column sums are bearable to compute
_BLOCK_STEP = 64  # tokens; keeps a block in host memory aligned whatever its number of rows
_LOADED = ("weights", "4-bit codes", "draft model")  # budget lines of what is there after loading,
_NOT_OURS = ("CUDA context", "program", "kept free")  # and of what no cache may take
# measured: smaller blocks cost more to join, larger ones leave more of the last one empty
_CPU_BLOCK_TOKENS = 512


def build_engine(
    plan: Plan,
    settings: Settings,
    model_dir: Path,
    *,
    draft_dir: Path | None = None,
    progress: Progress | None = None,
    replan: Replan | None = None,
    backend: Backend | None = None,
    composer: Callable[[Plan, LlamaModel, LlamaModel | None], Composer] | None = None,
    snapshots: Path | None = None,
) -> Engine:
    """The engine a plan asks for. Raises UserError when the plan's device is not there or the checkpoint does
    not suit.

    `replan(n)` plans anew with at most n on-chip layers, for a device that has less room than was planned.
    `backend`: another than the plan's. `composer`: another choice of drafters, and `snapshots`: another
    folder than the user's, for benchmarks.
    """
    backend = backend or new_backend(plan, settings)
    model, draft = _models(plan, backend, model_dir, draft_dir, progress)
    room = Room(plan, settings, model, replan)
    room.compare()
    composed = (composer or Composer)(plan, model, draft)
    notes = (*room.plan.notes, *composed.prepare(Measurements(paths.data_dir())))
    return Engine(
        model,
        replace(room.plan, notes=notes),
        new_cache=room.new_cache,
        give_way=room.give_way,
        compose=composed.compose,
        peak_memory=backend.peak_memory_bytes,
        snapshots=_snapshots(settings, plan, model, model_dir, snapshots),
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """What a tuner measures with: engines of any plan over the same weights, and a pass of the draft model,
    where there is one.
    """

    engine: Callable[[Plan], Engine]
    draft_pass: Callable[[], None] | None = None


def build_bench(
    plan: Plan,
    settings: Settings,
    model_dir: Path,
    *,
    draft_dir: Path | None = None,
    progress: Progress | None = None,
) -> Bench:
    """The models of a plan, loaded once. Its engines launch every pass anew, also where `build_engine` would
    replay it.

    Raises as `build_engine`.
    """
    # what the draft's cache and rotations are made for
    longest = replace(plan, middle_gamma=MAX_MIDDLE_GAMMA)
    model, draft = _models(longest, new_backend(plan, settings), model_dir, draft_dir, progress)

    def engine(other: Plan) -> Engine:
        return Engine(
            model,
            other,
            new_cache=Room(other, settings, model).new_cache,
            compose=Composer(other, model, draft).compose,
            peak_memory=model.backend.peak_memory_bytes,
        )

    return Bench(engine, Composer(longest, model, draft).draft_pass() if draft is not None else None)


def _models(
    plan: Plan, backend: Backend, model_dir: Path, draft_dir: Path | None, progress: Progress | None
) -> tuple[LlamaModel, LlamaModel | None]:
    """Target and draft. Raises UserError."""
    try:
        return _loaded(plan, backend, model_dir, draft_dir, progress)
    except backend.out_of_memory as error:
        raise UserError(
            f"The weights of {plan.model} do not fit into what is free of the GPU's memory. Close other "
            "programs that use the GPU, or "
            "choose a smaller model."
        ) from error


def _loaded(
    plan: Plan, backend: Backend, model_dir: Path, draft_dir: Path | None, progress: Progress | None
) -> tuple[LlamaModel, LlamaModel | None]:
    model = load_model(
        model_dir,
        backend,
        positions=plan.context_tokens + _MAX_GAMMA,
        stretch=plan.context_stretch,
        progress=progress,
    )
    slots = plan.draft_sinks + plan.draft_window + _slack(plan)
    draft = (
        load_draft(draft_dir, backend, target=model, target_dir=model_dir, positions=slots)
        if draft_dir
        else None
    )
    return model, draft


def _snapshots(
    settings: Settings, plan: Plan, model: LlamaModel, model_dir: Path, folder: Path | None
) -> SnapshotStore | None:
    """Where the KV of books is kept, for exactly this model computed in exactly this way; None when the user
    wants none.
    """
    if settings.snapshot_quota_gb == 0:
        return None
    key = {
        "weights": fingerprint(model_dir),
        "rope": model.rope.fingerprint,
        "dtype": plan.dtype,
        "kernel": plan.weights_kernel,
        "device": plan.device,
    }
    root = folder or paths.subdir("snapshots")
    kept = SnapshotFolder(root)
    kept.drop_stale_parts()
    return SnapshotStore(
        kept,
        json.dumps(key),
        model.config.kv_shape,
        model.backend.dtype,
        quota_bytes=quota_bytes(settings.snapshot_quota_gb, root),
    )


def new_backend(plan: Plan, settings: Settings) -> Backend:
    """The device that the plan is for. Raises UserError when it is not there, or cannot compute in the plan's
    dtype.
    """
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if plan.device == "cuda":
        cap = None if settings.vram_gib is None else int(settings.vram_gib * GIB) - CUDA_CONTEXT_BYTES
        return CudaBackend(dtypes[plan.dtype], index=plan.gpu_index, memory_cap_bytes=cap)
    if plan.dtype == "float16":
        raise UserError(
            "The CPU computes in float32 or bfloat16, not in float16. Set dtype: auto in config.yaml."
        )
    return CpuBackend(
        dtypes[plan.dtype],
        threads=plan.threads,
        integer_kernels=plan.weights_kernel != "float",
        wide_products=plan.dtype == "bfloat16" and not bfloat16_products_pay(),
    )


class Room:
    """The target model's caches on a device with so much room, and what is done when there is less than
    planned.
    """

    def __init__(
        self, plan: Plan, settings: Settings, model: LlamaModel, replan: Replan | None = None
    ) -> None:
        self.plan = plan
        self._given_layers = settings.on_chip_layers is not None
        self._model, self._backend = model, model.backend
        self._replan = replan

    def new_cache(self, capacity: int) -> TargetKVCache:
        """An empty cache for `capacity` tokens and a draft behind them. Raises the backend's
        `out_of_memory`.
        """
        shape, plan, tokens = self._model.config.kv_shape, self.plan, capacity + _MAX_GAMMA
        layers = self._layers_that_fit(tokens)
        if plan.staging_blocks == 0 or layers == plan.layers:
            return FullKVCache(
                shape,
                tokens,
                self._backend,
                block_tokens=_multiple(
                    _CPU_BLOCK_TOKENS if plan.device == "cpu" else tokens, plan.retrieval_chunk
                ),
            )
        blocks = max(1, round(tokens / plan.staging_block_tokens))
        by_blocks = plan.residency == "blocks"
        cache = OffloadedKVCache(
            shape,
            tokens,
            self._backend,
            block_tokens=_multiple(-(-tokens // blocks), math.lcm(_BLOCK_STEP, plan.retrieval_chunk)),
            resident_layers=plan.layers if by_blocks else layers,
            resident_blocks=blocks * layers // plan.layers if by_blocks else None,
            staging_blocks=plan.staging_blocks,
            fresh_tokens=_slack(plan),
        )
        # the next plan counts on no more
        if (limit := self._backend.page_locked_limit) is not None:
            Measurements(paths.data_dir()).put(PAGE_LOCKED, {"bytes": limit})
        return cache

    def _layers_that_fit(self, tokens: int) -> int:
        """The plan's on-chip layers are for its whole context: of a shorter one the same room holds more,
        unless the user gave a number.
        """
        if self._given_layers:
            return self.plan.on_chip_layers
        return min(
            self.plan.layers, self.plan.on_chip_layers * max(tokens, self.plan.context_tokens) // tokens
        )

    def give_way(self) -> Plan | None:
        """Plans with a quarter fewer on-chip layers, at least one. Returns the plan, whose last note says so;
        None without any left.
        """
        layers = self.plan.on_chip_layers
        if layers == 0 or self._replan is None:
            return None
        found = self._replan(layers - max(1, layers // 4))
        note = (
            f"The GPU had less free memory than planned: the KV cache of {found.on_chip_layers} layers "
            "stays there now."
        )
        self.plan = replace(found, notes=(*found.notes, note))
        log.warning(note)
        return self.plan

    def compare(self) -> None:
        """Logs what the weights take against what was planned, and gives way before anything breaks when the
        rest will not fit.
        """
        place = "VRAM" if self.plan.device == "cuda" else "RAM"
        while True:
            memory, lines = self._backend.memory(), [line for line in self.plan.budget if line.place == place]
            loaded = sum(line.bytes for line in lines if line.name in _LOADED)
            wanted = sum(line.bytes for line in lines if line.name not in (*_LOADED, *_NOT_OURS))
            log.info(
                "%s: %.2f GB planned for what is loaded, %.2f in use; %.2f GB to come, %.2f free",
                place,
                loaded / GB,
                memory.used_bytes / GB,
                wanted / GB,
                memory.free_bytes / GB,
            )
            if place == "RAM" or wanted <= memory.free_bytes or self.give_way() is None:
                return


def _multiple(tokens: int, step: int) -> int:
    """The least multiple of `step` that is not below `tokens`."""
    return -(-tokens // step) * step


class Composer:
    """Builds the decoder of one answer: which drafter stands in front of the full cache in each mode."""

    def __init__(self, plan: Plan, model: LlamaModel, draft: LlamaModel | None) -> None:
        self._plan, self._model, self._draft = plan, model, draft
        # of the target over a retrieval cache of the plan's budget
        self._middle_passes: ShortPasses | None = None
        self._draft_passes: ShortPasses | None = None  # of the draft model

    def prepare(self, measured: Measurements | None = None) -> tuple[str, ...]:
        """Records the passes of draft and middle level where the plan says so, before there is anything to
        answer. Returns what to tell.

        Their memory then serves one answer after the other, and must: a recorded pass knows no other. What is
        in `measured` is not measured again.
        """
        if self._plan.cuda_graphs == "off":
            return ()
        try:
            self._middle_passes = self._recorded("middle", self._model, self._rehearsed_retrieval(), measured)
            if self._draft is not None:
                self._draft_passes = self._recorded("draft", self._draft, self._rehearsed_draft(), measured)
        except self._model.backend.out_of_memory as error:
            log.warning("no memory to prepare short passes: %s", error)
            self._model.backend.release()
        return tuple(
            told(level, passes)
            for level, passes in (("middle", self._middle_passes), ("draft", self._draft_passes))
            if passes
        )

    def _recorded(
        self,
        level: str,
        model: LlamaModel,
        cache: RetrievalKVCache | StreamingKVCache,
        measured: Measurements | None,
    ) -> ShortPasses:
        """A draft of `middle_gamma` tokens makes a pass of one row more; the draft model's cache lags by as
        much after a lookup.
        """
        rows = range(1, self._plan.middle_gamma + 2)
        return prepared(
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
        cache = self._retrieval(source, plan.retrieval_budget)
        # no position beyond the rotary table
        cache.advance(min(plan.retrieval_budget + cache.recent, plan.context_tokens))
        return cache

    def _rehearsed_draft(self) -> StreamingKVCache:
        cache = self._streaming(self._draft)
        cache.advance(cache.sinks + cache.window)
        return cache

    def compose(self, params: Params, cache: TargetKVCache, answer_start: int) -> Decoder:
        """The decoder for one answer over `cache`."""
        sampling = Sampling(params.temperature, params.top_p, params.repetition_penalty, answer_start)
        randomness = SeededRandomness(params.seed)
        gamma = params.gamma or self._plan.gamma
        drafter, refresh = self._drafter(params, cache, sampling, randomness, answer_start)
        return Decoder(
            drafter,
            self._model,
            cache,
            sampling,
            randomness,
            gamma=gamma,
            eos_ids=self._model.config.eos_ids,
            refresh=refresh,
        )

    def _drafter(
        self,
        params: Params,
        cache: TargetKVCache,
        sampling: Sampling,
        randomness: Randomness,
        context_tokens: int,
    ) -> tuple[Drafter, Refresh | None]:
        if params.mode == "autoregressive":
            return EmptyDrafter(), None
        if params.mode == "ngram":
            return NgramDrafter(), None
        if params.mode == "draft":
            return self._level_zero(sampling, randomness), None
        if params.mode == "streaming":
            cache = self._streaming(self._model)
            return self._middle(
                EmptyDrafter(), self._model, cache, params, context_tokens, sampling, randomness
            ), None
        if params.selection == "h2o" and context_tokens > H2O_MOST:
            raise UserError(
                f"Selection by h2o is for comparison up to {H2O_MOST:,} tokens; this prompt has "
                f"{context_tokens:,}. Use mass."
            )
        budget = params.budget or self._plan.retrieval_budget
        passes = self._middle_passes if budget == self._plan.retrieval_budget else None
        retrieval = self._retrieval(cache, budget, params.selection, store=passes and passes.store)
        below = EmptyDrafter() if params.mode == "retrieval" else self._level_zero(sampling, randomness)
        middle = self._middle(
            below, passes or self._model, retrieval, params, context_tokens, sampling, randomness
        )
        return middle, RetrievalRefresh(cache, retrieval)

    def _level_zero(self, sampling: Sampling, randomness: Randomness) -> Drafter:
        """The light drafter: lookup in book and answer, and where that finds nothing a small model over a
        StreamingLLM cache.
        """
        if self._draft is None:
            return NgramDrafter()
        return FirstDrafter(NgramDrafter(), self._drafted(sampling, randomness))

    def _drafted(self, sampling: Sampling, randomness: Randomness) -> ModelDrafter:
        # a middle pass takes as long for the few rows of a short draft as for one, so only the draft's own
        # passes count against it
        costs = Costs(verify=self._plan.expected_middle_ms, row=0.0, middle=self._plan.expected_draft_ms)
        passes = self._draft_passes
        cache = self._streaming(self._draft, store=passes and passes.store)
        return ModelDrafter(passes or self._draft, cache, sampling, randomness, length=ExpectedGain(costs))

    def _middle(
        self,
        below: Drafter,
        model: Model,
        cache: RetrievalKVCache | StreamingKVCache,
        params: Params,
        context_tokens: int,
        sampling: Sampling,
        randomness: Randomness,
    ) -> VerifiedDrafter:
        costs = _costs(self._plan, context_tokens)
        length: DraftLength = (
            FixedLength() if params.gamma else ExpectedGain(costs, self._plan.assumed_acceptance)
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
        """One pass of the draft model over a full window, for timing it."""
        cache, held = self._streaming(self._draft), self._plan.draft_sinks + self._plan.draft_window
        self._draft.forward([0] * held, cache)

        def once() -> None:
            # reading a number waits for the device
            self._draft.forward([0], cache)[-1, 0].item()
            cache.rollback(held)

        return once

    def _retrieval(
        self, source: TargetKVCache, budget: int, policy: str = "mass", store: KVStore | None = None
    ) -> RetrievalKVCache:
        return RetrievalKVCache(
            source,
            budget=budget,
            chunk=self._plan.retrieval_chunk,
            tail_tokens=self._plan.tail_tokens,
            slack=_slack(self._plan),
            policy=policy,
            store=store,
        )

    def _streaming(self, model: LlamaModel, store: KVStore | None = None) -> StreamingKVCache:
        return StreamingKVCache(
            model.config.kv_shape,
            model.backend,
            model.rope.rotate,
            sinks=self._plan.draft_sinks,
            window=self._plan.draft_window,
            slack=_slack(self._plan),
            store=store,
        )


def _slack(plan: Plan) -> int:
    """Rows that speculation may take on top of a cache: what waits to be fed or committed, and the longest
    draft behind it.
    """
    return 2 * (max(plan.gamma, _MAX_GAMMA) + plan.middle_gamma + 2)


def _costs(plan: Plan, context_tokens: int) -> Costs:
    """Pass times in milliseconds that the draft length weighs, for a cache of `context_tokens`; from the
    plan, never from the clock.
    """
    share = context_tokens / max(1, plan.context_tokens)
    beyond_middle = max(0.0, plan.expected_plain_tbt_ms - plan.expected_middle_ms)
    return Costs(
        verify=plan.expected_middle_ms + beyond_middle * share,
        row=plan.expected_row_ms * share,
        middle=plan.expected_middle_ms,
    )
