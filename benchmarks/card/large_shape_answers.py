"""What a model in a large shape says, up to lengths at which it still makes sense: acceptance along a book,
and real answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.lib.ngrams import LOOPS_BELOW, distinct
from benchmarks.lib.results import Table
from benchmarks.speed.forward_times import OutOfTime
from core.assembly.cache_factory import CacheFactory
from core.assembly.composition import Composer
from core.assembly.engines import engine_over
from core.cache.retrieval import RetrievalKVCache
from core.decoding import forced
from core.decoding.decoder import Round
from core.decoding.drafters import next_logits
from core.decoding.refresh import RetrievalRefresh
from core.decoding.sampling import Sampling
from core.engine import Done
from core.model.llama import LlamaModel
from core.planning.plan import Plan
from core.request import Params

TEMPERATURES = (0.6, 0.0)  # the first steers when the retrieval cache selects anew
TOP_P = 0.9


def along(
    model: LlamaModel,
    plan: Plan,
    room: CacheFactory,
    ids: list[int],
    start: int,
    *,
    out_of_time: Callable[[], bool],
) -> dict[str, Any]:
    """Acceptance of the retrieval level along ids[start:], computed from both distributions
    (core.decoding.forced), and how surprising the text is to the model. Raises OutOfTime.
    """
    cache = room.new_cache(len(ids))
    retrieval = RetrievalKVCache(
        cache, budget=plan.retrieval_budget, chunk=plan.retrieval_chunk, tail_tokens=plan.tail_tokens
    )
    watch = forced.SourceStandIn()
    lane = forced.RetrievalLane(retrieval, RetrievalRefresh(watch, retrieval), watch)
    forced.select_first(model, cache, ids[:start], [lane], chunk_tokens=plan.prefill_chunk_tokens)
    logits = next_logits(model, cache, ids[:start], ids[start:-1])
    cache.rollback(start - 1)
    surprise = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[start:], device=logits.device))
    samplings = [_sampling(temperature, start) for temperature in TEMPERATURES]
    sums = forced.force(
        model, cache, ids, start, [lane], samplings, gamma=plan.gamma, going_on=lambda: not out_of_time()
    )[0]
    if out_of_time():
        raise OutOfTime
    rates = [
        {
            "temperature": temperature,
            "acceptance": expected.rate,
            "tokens_per_round": expected.tokens_per_round,
        }
        for temperature, expected in zip(TEMPERATURES, sums, strict=True)
    ]
    return {
        "tokens": len(ids) - start,
        "perplexity": math.exp(surprise.item()),
        "distinct_4grams": distinct(ids[start:]),
        "gamma": plan.gamma,
        "rates": rates,
    }


def answer_figures(
    model: LlamaModel,
    plan: Plan,
    room: CacheFactory,
    ids: list[int],
    *,
    tokens: int,
    out_of_time: Callable[[], bool],
) -> list[dict[str, Any]]:
    """Acceptance, tokens per round and TBT of real answers, with the share of distinct 4-grams that says what
    they are worth.

    Raises OutOfTime.
    """
    composer = Composer(plan, model, None)
    composer.prepare()
    engine = engine_over(room, plan, model, composer)
    context = engine.new_context(len(ids) + 256)
    found = []
    for mode in ("autoregressive", "retrieval", "triforce"):
        for temperature in sorted(TEMPERATURES):
            if out_of_time():
                raise OutOfTime
            params = Params(
                mode=mode, temperature=temperature, top_p=TOP_P if temperature else 1.0, max_new_tokens=tokens
            )
            said: list[int] = []
            for event in engine.generate(context, ids, params):
                if isinstance(event, Done):
                    stats = event.stats
                elif isinstance(event, Round):
                    said += event.tokens
            found.append(
                {
                    "mode": mode,
                    "temperature": temperature,
                    "tbt_ms": stats.tbt_mean_ms,
                    "acceptance": stats.acceptance_retrieval.rate,
                    "draft_acceptance": stats.acceptance_draft.rate,
                    "tokens_per_round": stats.tokens_per_round,
                    "distinct_4grams": distinct(said),
                    "bytes_moved": stats.bytes_moved,
                }
            )
    return found


def large_shape_tables(done: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Both, of the cases that have them."""
    given = tuple(
        (
            name.removeprefix("answers "),
            str(rate["temperature"]),
            rate["acceptance"],
            rate["tokens_per_round"],
            one["gamma"],
            one["perplexity"],
            _kind(one),
        )
        for name, row in done.items()
        if (one := row.get("along"))
        for rate in one["rates"]
    )
    said = tuple(
        (
            name.removeprefix("answers "),
            one["mode"],
            str(one["temperature"]),
            one["tbt_ms"],
            one["acceptance"],
            one["tokens_per_round"],
            _kind(one),
        )
        for name, row in done.items()
        for one in row.get("answers", ())
    )
    return [
        Table(
            "Acceptance of the retrieval level along a book, computed from both distributions",
            ("Case", "temperature", "acceptance", "tokens per round", "gamma", "perplexity", "text"),
            given,
        ),
        Table(
            "Answers up to 8K tokens",
            ("Case", "mode", "temperature", "TBT, ms", "acceptance", "tokens per round", "text"),
            said,
        ),
    ]


def _kind(one: Mapping[str, Any]) -> str:
    return "loops: no evidence" if one["distinct_4grams"] < LOOPS_BELOW else "varied"


def _sampling(temperature: float, start: int) -> Sampling:
    return Sampling(temperature, TOP_P if temperature else 1.0, 1.0, start)
