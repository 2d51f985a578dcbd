"""Decoding whose acceptance is stated: with random weights every launch, copy and refresh of TriForce is
real, and which tokens stand is not. The real decoder, with coins in the place of distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.lib.results import Table
from core.assembly.cache_factory import CacheFactory
from core.assembly.composition import Composer
from core.assembly.engines import engine_over
from core.cache.base import TargetKVCache
from core.decoding.context import Context
from core.decoding.decoder import Decoder, Round
from core.decoding.randomness import SeededRandomness
from core.engine import Done, Engine
from core.model.llama import LlamaModel
from core.planning import costs
from core.planning.plan import Plan
from core.request import Params

# published: TriForce on 122K tokens at temperature 0, and of a draft of 68M parameters
RETRIEVAL, DRAFT = 0.9234, costs.ACCEPTANCE_TINY_DRAFT
PLAIN_TOKENS, TRIFORCE_TOKENS = 24, 160
_WARM_ROUNDS = 2  # the first looks where to select, and kernels are loaded


class StatedRandomness(SeededRandomness):
    """Draws tokens by their distributions, and accepts each that they allow with the chance `acceptance`."""

    def __init__(self, seed: int, acceptance: float) -> None:
        super().__init__(seed)
        self._acceptance = acceptance

    def first_rejection(self, accept_probs: torch.Tensor) -> torch.Tensor:
        """See Randomness."""
        return super().first_rejection((accept_probs > 0) * self._acceptance)


class StatedComposer(Composer):
    """The product's decoders: the full cache accepts with one chance, the retrieval level with another."""

    def __init__(
        self,
        plan: Plan,
        model: LlamaModel,
        draft_model: LlamaModel,
        *,
        retrieval: float = RETRIEVAL,
        draft: float = DRAFT,
    ) -> None:
        super().__init__(plan, model, draft_model, randomness=partial(StatedRandomness, acceptance=draft))
        self._acceptance = retrieval

    def compose(self, params: Params, context: Context, answer_start: int) -> Decoder:
        """See Composer."""
        decoder = super().compose(params, context, answer_start)
        decoder.randomness = StatedRandomness(params.seed + 1, self._acceptance)
        return decoder


def decoded_stated(
    model: LlamaModel,
    draft: LlamaModel,
    plan: Plan,
    room: CacheFactory,
    cache: TargetKVCache,
    ids: Sequence[int],
    *,
    out_of_time: Callable[[], bool],
) -> dict[str, Any]:
    """What an answer behind `ids`, which `cache` holds, takes plainly and by TriForce. Drafts are as long as
    planned: the confidence of random weights says nothing. Ends early when the time is over.
    """
    plan = replace(plan, fixed_gamma=True, plain=False)
    composer = StatedComposer(plan, model, draft)
    composer.prepare()
    engine = engine_over(room, plan, model, composer)
    context = Context(cache, len(ids) + TRIFORCE_TOKENS + 2)
    context.hold(ids)
    answers = [
        _answer(engine, context, ids, mode, tokens, out_of_time)
        for mode, tokens in (("autoregressive", PLAIN_TOKENS), ("triforce", TRIFORCE_TOKENS))
    ]
    return {
        "acceptance": "stated",
        "stated": {"retrieval": RETRIEVAL, "draft": DRAFT},
        "gamma": plan.gamma,
        "middle_gamma": plan.middle_gamma,
        "answers": answers,
    }


def _answer(
    engine: Engine,
    context: Context,
    ids: Sequence[int],
    mode: str,
    tokens: int,
    out_of_time: Callable[[], bool],
) -> dict[str, Any]:
    # a nucleus costs its sorting; this one leaves out almost nothing, so a draft is hardly ever impossible
    params = Params(mode=mode, temperature=1.0, top_p=0.999_999, max_new_tokens=tokens)
    rounds: list[Round] = []
    for event in engine.generate(context, ids, params, should_stop=out_of_time):
        if isinstance(event, Round):
            rounds.append(event)
        elif isinstance(event, Done):
            stats, reason = event.stats, event.reason
    counted = rounds[_WARM_ROUNDS:]
    seconds, said = sum(one.seconds for one in counted), sum(len(one.tokens) for one in counted)
    return {
        "mode": mode,
        "ended": reason,
        "tokens": said,
        "rounds": len(counted),
        "tbt_ms": 1e3 * seconds / said if said else None,
        "tokens_per_round": said / len(counted) if counted else None,
        "accepted": stats.acceptance_retrieval.rate,
        "accepted_of_draft": stats.acceptance_draft.rate,
        "bytes_moved": stats.bytes_moved,
    }


def stated_table(done: dict[str, dict[str, Any]]) -> Table:
    """Of the cases that were decoded so."""
    rows = tuple(
        (name.removeprefix("stated "), one["mode"], one["tbt_ms"], one["tokens_per_round"], one["tokens"])
        for name, row in done.items()
        if "decoded" in row
        for one in row["decoded"]["answers"]
    )
    note = f"Acceptance stated: {RETRIEVAL} at the retrieval level, {DRAFT} of the draft's tokens."
    columns = ("Case", "mode", "TBT, ms", "tokens per round", "tokens")
    return Table("Decoding with random weights, acceptance stated", columns, rows, (note,))
