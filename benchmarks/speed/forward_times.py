"""Times of the passes that a token is made of, over one prefilled cache, beside what memory and bus would
take at least.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from core.cache.base import TargetKVCache
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.streaming import StreamingKVCache
from core.engine import Engine
from core.model.cuda_graphs import GraphedForward
from core.model.llama import LlamaModel
from core.model.recorded_verification import OFTEN, RecordedVerification
from core.model.shapes import ModelShape
from core.planning import costs, tuned
from core.planning.budget import GRAPH_BYTES
from core.planning.plan import Plan
from core.text.words import GB

VERIFY_ROWS = (1, 9, 17, 33)
MIDDLE_ROWS = (1, 2, 4, 9)
REPEATS = 3
# published: TriForce on 122K tokens at temperature 0; retrieval alone on PG-19
ACCEPTANCES = (0.9234, 0.965)
DRAFT_ACCEPTANCE = costs.ACCEPTANCE_TINY_DRAFT
DRAFT_S = 0.001  # a pass of a 68M draft, assumed: no draft runs here
CARD_4090_LINK, CARD_4090_MEMORY = 25 * GB, 920 * GB  # bytes per second that an RTX 4090 reaches


@dataclass(frozen=True, slots=True)
class MeasuredSpeeds:
    """What the device was measured to do; None: not measured."""

    link_gb_per_s: float | None = None
    memory_gb_per_s: float | None = None
    matmul_tflops: float | None = None


class OutOfTime(Exception):
    """The run's time is over; what is unfinished is done by the next one."""


def measure_forward(
    model: LlamaModel,
    shape: ModelShape,
    plan: Plan,
    cache: TargetKVCache,
    ids: Sequence[int],
    speeds: MeasuredSpeeds,
    *,
    draft: LlamaModel,
    out_of_time: Callable[[], bool],
) -> dict[str, Any]:
    """Prefills `ids` but the last `max(VERIFY_ROWS)` and times passes over that, and those of `draft`. Raises
    OutOfTime.
    """
    context = len(ids) - max(VERIFY_ROWS)
    retrieval = RetrievalKVCache(
        cache, budget=plan.retrieval_budget, chunk=plan.retrieval_chunk, tail_tokens=plan.tail_tokens
    )
    started = time.perf_counter()
    for _ in model.prefill(
        ids[:context],
        cache,
        segment_tokens=plan.prefill_segment_tokens,
        chunk_tokens=plan.prefill_chunk_tokens,
        should_stop=out_of_time,
        tap=retrieval.policy.tap,
    ):
        pass
    if cache.length < context:
        raise OutOfTime
    _wait(model)
    prefill_s, prefill_bytes = time.perf_counter() - started, cache.bytes_moved
    refresh_ms = pass_ms(model, retrieval.refresh)
    verify_ms: dict[int, float] = {}
    moved: dict[int, int] = {}
    for rows in VERIFY_ROWS:
        before = cache.bytes_moved
        verify_ms[rows] = median_ms(model, cache, ids[context : context + rows], out_of_time)
        moved[rows] = (cache.bytes_moved - before) // REPEATS
    middle_ms = {
        rows: median_ms(model, retrieval, ids[context : context + rows], out_of_time) for rows in MIDDLE_ROWS
    }
    passes = RecordedVerification(model, most_rows=max(VERIFY_ROWS), most_bytes=GRAPH_BYTES)
    graphs = {
        "verification": verification_replays(passes, model, cache, ids[context:], out_of_time),
        "middle": replays(model, middle_cache(retrieval, plan)),
        "draft": replays(draft, draft_cache(draft, plan)),
    }
    found = {
        "context": context,
        "graphs": graphs,
        "verification_launched": passes.refusal(cache),
        "prefill_s": prefill_s,
        "prefill_bytes_moved": prefill_bytes,
        "prefill_bytes_of_earlier_segments": _earlier(plan, context, moved[1]),
        "refresh_ms": refresh_ms,
        "verify_ms": verify_ms,
        "verify_bytes_moved": moved[1],
        "middle_ms": middle_ms,
        "speeds": asdict(speeds),
        "prefill_tflops": (context * shape.linear_flops_per_token + shape.attention_flops(context, 0))
        / prefill_s
        / 1e12,
        "weight_bytes": shape.pass_bytes(plan.dtype),
        "kv_bytes": context * shape.kv_bytes_per_token(plan.kv_rows),
        "middle_bytes": shape.pass_bytes(plan.dtype)
        + plan.retrieval_budget * shape.kv_bytes_per_token(plan.dtype),
    }
    return {**found, **floors(found, speeds), "expected": [expectation(found, p) for p in ACCEPTANCES]}


def _earlier(plan: Plan, context: int, away_bytes: int) -> int:
    """What prefill had to bring back: before each segment, the rows of all earlier ones. Nothing else may
    cross.
    """
    return sum(away_bytes * start // context for start in range(0, context, plan.prefill_segment_tokens))


def floors(found: dict[str, Any], speeds: MeasuredSpeeds) -> dict[str, float | None]:
    """The least time of a verification and of a middle pass, by bytes alone, and of the parts on the
    device.
    """
    link, memory = speeds.link_gb_per_s, speeds.memory_gb_per_s
    on_device = found["weight_bytes"] + found["kv_bytes"] - found["verify_bytes_moved"]
    return {
        "link_floor_ms": found["verify_bytes_moved"] / (link * GB) * 1e3 if link else None,
        "memory_floor_ms": on_device / (memory * GB) * 1e3 if memory else None,
        "middle_floor_ms": found["middle_bytes"] / (memory * GB) * 1e3 if memory else None,
    }


def expectation(found: dict[str, Any], acceptance: float) -> dict[str, Any]:
    """Time between tokens by the measured passes at a stated acceptance, and what it would be on one RTX 4090
    with the same bytes.
    """
    verify_s = [interpolated(found["verify_ms"], rows) / 1e3 for rows in range(1, max(VERIFY_ROWS) + 1)]
    middle_s = [interpolated(found["middle_ms"], rows) / 1e3 for rows in range(1, max(MIDDLE_ROWS) + 1)]
    best = costs.best_speculation(verify_s, middle_s, draft_s=DRAFT_S, p=acceptance, q=DRAFT_ACCEPTANCE)
    tokens_per_middle = costs.expected_tokens(DRAFT_ACCEPTANCE, best.middle_gamma)
    made = {
        "acceptance": acceptance,
        "gamma": best.gamma,
        "middle_gamma": best.middle_gamma,
        "tokens_per_middle_pass": tokens_per_middle,
        "tbt_ms": best.tbt_s * 1e3,
        "against_plain": found["verify_ms"][1] / (best.tbt_s * 1e3),
        "tbt_4090_ms": None,
    }
    memory = found["speeds"]["memory_gb_per_s"]
    if memory and found["verify_bytes_moved"]:
        efficiency = found["middle_bytes"] / (memory * GB) / middle_s[best.middle_gamma]
        passes = best.gamma / tokens_per_middle
        round_s = found["verify_bytes_moved"] / CARD_4090_LINK + passes * (
            found["middle_bytes"] / (CARD_4090_MEMORY * efficiency) + best.middle_gamma * DRAFT_S
        )
        made["tbt_4090_ms"] = round_s / costs.expected_tokens(acceptance, best.gamma) * 1e3
    return made


def interpolated(measured: dict[int, float], rows: int) -> float:
    """The time for so many rows, as the planner reads it from measured passes."""
    return tuned.interpolated_ms(tuple(measured.items()), rows)


def median_ms(
    model: LlamaModel | RecordedVerification,
    cache: TargetKVCache | RetrievalKVCache,
    ids: Sequence[int],
    out_of_time: Callable[[], bool],
) -> float:
    """Median milliseconds of a pass that leaves the cache as it was. Raises OutOfTime."""
    length, found = cache.length, []
    for _ in range(REPEATS):
        if out_of_time():
            raise OutOfTime
        found.append(pass_ms(cache, lambda: model.forward(ids, cache)))
        cache.rollback(length)
    return median(found)


def replays(model: LlamaModel, cache: RetrievalKVCache | StreamingKVCache) -> list[dict[str, float]]:
    """Passes launched operation by operation and replayed, as the product times them; none where they cannot
    be recorded.
    """
    return [asdict(times) for times in GraphedForward(model, cache, MIDDLE_ROWS).times]


def verification_replays(
    passes: RecordedVerification,
    model: LlamaModel,
    cache: TargetKVCache,
    ids: Sequence[int],
    out_of_time: Callable[[], bool],
) -> list[dict[str, float]]:
    """Likewise passes over the full cache; none where that does not lie on the device, or what was recorded
    is not the same to the bit. Raises OutOfTime.
    """
    found, length = [], cache.length
    for rows in VERIFY_ROWS if not passes.refusal(cache) else ():
        for _time in range(OFTEN):
            passes.forward(ids[:rows], cache)
            cache.rollback(length)
        if rows in passes.rows(cache):
            eager, replay = (median_ms(one, cache, ids[:rows], out_of_time) for one in (model, passes))
            found.append({"rows": rows, "eager_ms": eager, "replay_ms": replay})
    return found


def middle_cache(like: RetrievalKVCache, plan: Plan) -> RetrievalKVCache:
    """In the memory of `like`, as full as in the middle of an answer, over a source that holds nothing."""
    source = FullKVCache(
        like.source.shape, plan.retrieval_chunk, like.backend, block_tokens=plan.retrieval_chunk
    )
    cache = RetrievalKVCache(
        source,
        budget=plan.retrieval_budget,
        chunk=plan.retrieval_chunk,
        tail_tokens=plan.tail_tokens,
        store=like.store,
    )
    cache.advance(min(plan.retrieval_budget + cache.recent, plan.context_tokens))
    return cache


def draft_cache(draft: LlamaModel, plan: Plan) -> StreamingKVCache:
    """Its cache, as full as in the middle of an answer."""
    cache = StreamingKVCache(
        draft.config.kv_shape,
        draft.backend,
        draft.rope.rotate,
        sinks=plan.draft_sinks,
        window=plan.draft_window,
    )
    cache.advance(cache.sinks + cache.window)
    return cache


def read_anew(
    engine: Engine, ids: Sequence[int], *, out_of_time: Callable[[], bool] = lambda: False
) -> TargetKVCache:
    """A cache into which `ids` were prefilled as the engine would, as far as there was time."""
    cache, plan = engine.new_context(len(ids) + 1).cache, engine.plan
    with torch.inference_mode():
        for _ in engine.model.prefill(
            ids,
            cache,
            segment_tokens=plan.prefill_segment_tokens,
            chunk_tokens=plan.prefill_chunk_tokens,
            should_stop=out_of_time,
        ):
            pass
        _wait(engine.model)
    return cache


def pass_ms(on: LlamaModel | TargetKVCache | RetrievalKVCache, action: Callable[[], object]) -> float:
    """Milliseconds until the device `on` which something lies is done with it."""
    _wait(on)
    started = time.perf_counter()
    action()
    _wait(on)
    return 1e3 * (time.perf_counter() - started)


def _wait(on: LlamaModel | TargetKVCache | RetrievalKVCache) -> None:
    """Reading a number waits for all that was asked for before it."""
    torch.zeros(1, device=on.backend.device).item()


def measured_speeds(device: torch.device, link_gb_per_s: float | None) -> MeasuredSpeeds:
    """Memory bandwidth by reading 2 GiB, matrix products of 8,192 a side in fp16; the best of five."""
    data = torch.ones(2**30, dtype=torch.float16, device=device)
    read_s = min(_seconds(data.sum) for _ in range(5))
    square = torch.ones(8192, 8192, dtype=torch.float16, device=device)
    product_s = min(_seconds(lambda: (square @ square)[0, 0]) for _ in range(5))
    return MeasuredSpeeds(link_gb_per_s, data.nbytes / read_s / GB, 2 * 8192**3 / product_s / 1e12)


def _seconds(action: Callable[[], torch.Tensor]) -> float:
    started = time.perf_counter()
    action().item()
    return time.perf_counter() - started
