"""An engine put together from a plan: the door of this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from core import paths
from core.assembly.cache_factory import CacheFactory, Replan, kv_type
from core.assembly.composition import Composer, DraftModel
from core.assembly.lead_engine import LeadEngine
from core.assembly.models import load_models, new_backend
from core.backend.base import Backend
from core.backend.ranks import SINGLE, Ranks
from core.cache.disk import SnapshotFolder, quota_bytes
from core.cache.snapshot import SnapshotStore
from core.config import Settings
from core.decoding.randomness import Randomness, RankedRandomness, SeededRandomness
from core.engine import Engine
from core.events import Progress
from core.hardware.measured import Measurements, kernels_on
from core.model.llama import LlamaModel
from core.model.store.manifest import fingerprint
from core.planning.costs import MAX_MIDDLE_GAMMA
from core.planning.plan import MTP, Plan
from core.text.words import translated as _


def build_engine(
    plan: Plan,
    settings: Settings,
    model_dir: Path,
    *,
    draft_dir: Path | None = None,
    progress: Progress | None = None,
    replan: Replan | None = None,
    backend: Backend | None = None,
    composer: Callable[[Plan, LlamaModel, DraftModel | None], Composer] | None = None,
    snapshots: Path | None = None,
    ranks: Ranks = SINGLE,
) -> Engine:
    """The engine a plan asks for. Raises UserError when the plan's device is not there or the checkpoint does
    not suit.

    `replan(n)` plans anew with at most n on-chip layers, for a device that has less room than was planned.
    `backend`: another than the plan's. `composer`: another choice of drafters, and `snapshots`: another
    folder than the user's, for benchmarks. `ranks`: those that compute the model together; each builds its
    own engine, rank 0's tells the others what it is asked.
    """
    backend = backend or new_backend(plan, settings, rank=ranks.rank)
    model, draft = ranks.all_or_none(
        lambda: load_models(plan, backend, model_dir, draft_dir, progress, ranks)
    )
    if settings.kernels == "auto" and ranks.rank == 0:
        _remember(backend)
    room = CacheFactory(plan, settings, model, replan, ranks)
    room.compare()
    composed = (composer or partial(Composer, randomness=_chance(ranks)))(plan, model, draft)
    notes = (*room.plan.notes, *backend.notes, *composed.prepare(Measurements(paths.data_dir())))
    if plan.drafter == MTP and draft is None:
        lacking = _(
            "The model's folder lacks its layer that predicts one token further: drafts come from lookup."
        )
        notes = (*notes, lacking)
    leads = ranks.size > 1 and ranks.rank == 0
    return (partial(LeadEngine, ranks=ranks) if leads else Engine)(
        model,
        replace(room.plan, notes=notes),
        new_cache=room.new_cache,
        cache_beside=room.cache_beside if plan.beside_tokens else None,
        host_memory=room.host_memory,
        give_way=room.give_way,
        shrink=room.shrink,
        compose=composed.compose,
        peak_memory=backend.peak_memory_bytes,
        snapshots=_snapshots(settings, plan, model, model_dir, snapshots) if ranks.size == 1 else None,
    )


def _chance(ranks: Ranks) -> Callable[[int], Randomness]:
    return SeededRandomness if ranks.size == 1 else partial(RankedRandomness, ranks=ranks)


def _remember(backend: Backend) -> None:
    """Which compiled kernels do not serve on this card or CPU: the next plan does not count on them."""
    measured, key = Measurements(paths.data_dir()), kernels_on(backend.name)
    known, refused = measured.get(key), sorted(backend.refused)
    if refused != (known["refused"] if known else []):
        measured.put(key, {"refused": refused})


@dataclass(frozen=True, slots=True)
class TuningBench:
    """What a tuner measures with: engines of any plan over the same weights, a pass of the draft model."""

    engine: Callable[[Plan], Engine]
    draft_pass: Callable[[], None] | None = None


def build_bench(
    plan: Plan,
    settings: Settings,
    model_dir: Path,
    *,
    draft_dir: Path | None = None,
    progress: Progress | None = None,
) -> TuningBench:
    """The models of a plan, loaded once. Its engines launch every pass anew, also where `build_engine` would
    replay it.

    Raises as `build_engine`.
    """
    # what the draft's cache and rotations are made for
    longest = replace(plan, middle_gamma=MAX_MIDDLE_GAMMA)
    model, draft = load_models(longest, new_backend(plan, settings), model_dir, draft_dir, progress)

    def engine(other: Plan) -> Engine:
        return engine_over(CacheFactory(other, settings, model), other, model, Composer(other, model, draft))

    return TuningBench(engine, Composer(longest, model, draft).draft_pass() if draft is not None else None)


def engine_over(room: CacheFactory, plan: Plan, model: LlamaModel, composer: Composer) -> Engine:
    """An engine over weights that are loaded, which keeps nothing on disk."""
    return Engine(
        model,
        plan,
        new_cache=room.new_cache,
        compose=composer.compose,
        peak_memory=model.backend.peak_memory_bytes,
    )


def _snapshots(
    settings: Settings, plan: Plan, model: LlamaModel, model_dir: Path, folder: Path | None
) -> SnapshotStore | None:
    """Where books' KV is kept, for this model computed in this very way; None when the user wants none."""
    if settings.snapshot_quota_gb == 0:
        return None
    key = {
        "weights": fingerprint(model_dir),
        "rope": model.rope.fingerprint,
        "dtype": plan.dtype,
        "kernel": plan.weights_kernel,
        "device": plan.device,
        **({"computes": plan.computes} if plan.computes != plan.dtype else {}),
    }
    if plan.kv_rows != plan.dtype:  # else the key is what it always was
        key["kv"] = plan.kv_rows
    root = folder or paths.subdir("snapshots")
    kept = SnapshotFolder(root)
    kept.drop_stale_parts()
    return SnapshotStore(
        kept,
        json.dumps(key),
        model.config.kv_shape,
        kv_type(plan),
        quota_bytes=quota_bytes(settings.snapshot_quota_gb, root),
    )
