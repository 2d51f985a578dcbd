"""Whole models over the offloaded cache, with copies that come as late as they may: keys, values, logits and
answers as without it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.cache import offloaded as offloaded_module
from core.cache.full import FullKVCache
from core.config import MODES
from core.decoding.decoder import Round
from core.model.llama import LlamaModel
from core.request import Params
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.late_cache import LateBackend
from tests.support.modes import GRID_MODES
from tests.support.offloaded_engines import BLOCK, CHUNK, SEGMENT, SPLITS, offloaded, offloaded_engine
from tests.support.tiny import VOCAB, engine, oracle, ours

DRAWN = Params(temperature=1.0, top_p=0.95, seed=3, max_new_tokens=24)


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    return ours(oracle(), backend=LateBackend())


@pytest.fixture(autouse=True)
def fine_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cache of a few blocks."""
    monkeypatch.setattr(offloaded_module, "_SHARE_STEP", 4)


BORDERS = [CHUNK - 1, CHUNK + 1, SEGMENT, SEGMENT + 1, 2 * BLOCK, 2 * SEGMENT + 1, 150]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kv_heads", [4, 2], ids=["MHA", "GQA"])
@pytest.mark.parametrize("block", [16, BLOCK])
def test_keys_values_and_logits_equal_one_unchunked_pass(split: str, kv_heads: int, block: int):
    """Around the borders of chunks, segments and blocks: within 1e-4 of the largest, after a prefill in
    segments and a streamed pass.
    """
    reference = oracle(kv_heads=kv_heads)
    model, plain = ours(reference, backend=LateBackend()), ours(reference)
    dice = torch.Generator().manual_seed(11)
    ids = [int(token) for token in torch.randint(0, VOCAB, (max(BORDERS) + 5,), generator=dice)]
    for length in BORDERS:
        whole = FullKVCache(plain.config.kv_shape, 200, plain.backend, block_tokens=16)
        cache = offloaded(model, split, 200, block=block)
        with torch.inference_mode():
            want = plain.forward(ids[: length + 5], whole)
            for _ in model.prefill(
                ids[:length], cache, segment_tokens=SEGMENT, chunk_tokens=CHUNK, should_stop=lambda: False
            ):
                pass
            got = model.forward(ids[length : length + 5], cache)
            near(got, want[length:])
            for layer in range(model.config.layers):
                for one, other in zip(
                    cache.rows(layer, 0, length + 5), whole.rows(layer, 0, length + 5), strict=True
                ):
                    near(one, other)


def near(got: torch.Tensor, want: torch.Tensor) -> None:
    assert float((got - want).abs().max()) < 1e-4 * float(want.abs().max())


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("budget", [64, 256], ids=["small budget", "budget above the prompt"])
def test_greedy_answers_equal_those_without_offloading(model: LlamaModel, split: str, mode: str, budget: int):
    """Also for a second prompt that continues the first, and one that goes back into it."""
    params = replace(GREEDY, mode=mode, max_new_tokens=24)
    plain = engine(ours(oracle()), draft=ours(oracle(tied=True)), retrieval_budget=budget)
    other = offloaded_engine(model, split, retrieval_budget=budget)
    contexts = plain.new_context(400), other.new_context(400)
    answer, _ = run(plain, contexts[0], PROMPT, params)
    assert run(other, contexts[1], PROMPT, params)[0] == answer
    for ids in ([*PROMPT, *answer, 9, 8], PROMPT[:70] + PROMPT[:40]):
        assert run(plain, contexts[0], ids, params) == run(other, contexts[1], ids, params)


@pytest.mark.parametrize("split", SPLITS)
def test_a_prefill_broken_off_goes_on_where_it_was(model: LlamaModel, split: str):
    """Finished segments stay, the half one leaves no trace, and the answer is the same."""
    tiny = offloaded_engine(model, split)
    context, polls = tiny.new_context(400), iter([False] * 5 + [True] * 100)
    events = list(tiny.generate(context, PROMPT, GREEDY, should_stop=lambda: next(polls)))
    assert events[-1].reason == "user" and context.cache.length == 2 * SEGMENT
    answer, _ = run(tiny, context, PROMPT, GREEDY)
    assert answer == run(tiny, tiny.new_context(400), PROMPT, GREEDY)[0]


def test_rounds_say_what_crossed_the_bus(model: LlamaModel):
    """Plain decoding: in each round all earlier rows of the streamed layers, nothing else; the answer's
    figure is their sum.
    """
    tiny = offloaded_engine(model, "one layer")
    events = list(
        tiny.generate(tiny.new_context(400), PROMPT, replace(GREEDY, mode="autoregressive", max_new_tokens=6))
    )
    moved = [event.bytes_moved for event in events if isinstance(event, Round)]
    row_bytes = 2 * 2 * 8 * 4
    assert moved == [(len(PROMPT) - 1 + i) * row_bytes for i in range(6)]
    assert events[-1].stats.bytes_moved == sum(moved)


def test_with_the_cpus_attention_nothing_crosses_the_bus(model: LlamaModel):
    """And in the next answer of the same context everything does again."""
    tiny = offloaded_engine(model, "one layer")
    context = tiny.new_context(400)
    for mode, crosses in (("cpu_attention", False), ("autoregressive", True), ("cpu_attention", False)):
        params = replace(GREEDY, mode=mode, max_new_tokens=4)
        rounds = [event for event in tiny.generate(context, PROMPT, params) if isinstance(event, Round)]
        assert [event.bytes_moved > 0 for event in rounds] == [crosses] * 4
        assert {level for event in rounds for level in event.levels} == {"target"}


SHARED = {"cpu_share": 0.4, "cpu_share_plain": 0.7}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("mode", GRID_MODES)
def test_with_a_share_every_mode_answers_as_without(model: LlamaModel, split: str, mode: str):
    """Greedily and drawn by one seed, for a second prompt and one that goes back, with parts that come late
    and are poison before: a row that both attended to, or neither, is another text.
    """
    plain = engine(ours(oracle()), draft=ours(oracle(tied=True)))
    other = offloaded_engine(model, split, **SHARED)
    for params in (replace(GREEDY, mode=mode, max_new_tokens=24), replace(DRAWN, mode=mode)):
        contexts = plain.new_context(400), other.new_context(400)
        answer, _ = run(plain, contexts[0], PROMPT, params)
        assert run(other, contexts[1], PROMPT, params)[0] == answer
        for ids in ([*PROMPT, *answer, 9, 8], PROMPT[:70] + PROMPT[:40]):
            assert run(plain, contexts[0], ids, params) == run(other, contexts[1], ids, params)


def test_each_mode_has_the_share_that_the_plan_gives_it(model: LlamaModel):
    """The CPU's part does not cross the bus; plain decoding has its own, and the next answer of the same
    context the one of its mode.
    """
    row_bytes, away = 2 * 2 * 8 * 4, len(PROMPT) - 1  # of the one streamed layer
    for plan in (SHARED, {"cpu_share": 0.4}, {"cpu_share_plain": 0.7}, {}):
        tiny = offloaded_engine(model, "one layer", **plan)
        context = tiny.new_context(400)
        for mode in ("autoregressive", "ngram", "cpu_attention", "autoregressive"):
            share = plan.get("cpu_share_plain" if mode == "autoregressive" else "cpu_share", 0.0)
            of_cpu = away if mode == "cpu_attention" else int(share * away) // 4 * 4
            params = replace(GREEDY, mode=mode, max_new_tokens=4)
            first = next(one for one in tiny.generate(context, PROMPT, params) if isinstance(one, Round))
            assert first.bytes_moved == (away - of_cpu) * row_bytes, (plan, mode)


def test_a_round_that_is_looked_at_carries_everything(model: LlamaModel):
    """Who selects anew sees every key: the selection is that of a plan without a share, round after round."""
    rounds = {}
    for share in (0.0, 0.4):
        tiny = offloaded_engine(model, "none", cpu_share=share)
        params = replace(GREEDY, mode="retrieval", max_new_tokens=120)
        made = tiny.generate(tiny.new_context(400), PROMPT, params)
        rounds[share] = [one for one in made if isinstance(one, Round)]
    assert [one.tokens for one in rounds[0.0]] == [one.tokens for one in rounds[0.4]]
    moved = {share: [one.bytes_moved for one in made] for share, made in rounds.items()}
    looked_at = [whole == part for whole, part in zip(*moved.values(), strict=True)]
    assert True in looked_at and looked_at.count(False) > looked_at.count(True)
    assert all(part <= whole for whole, part in zip(*moved.values(), strict=True))


def test_drafts_come_from_the_first_round_on(model: LlamaModel):
    """Prefill's tap has selected what the middle level looks at: no round is spent on looking around."""
    tiny = offloaded_engine(model, "one layer")
    rounds = [
        event
        for event in tiny.generate(tiny.new_context(400), PROMPT, replace(GREEDY, mode="retrieval"))
        if isinstance(event, Round)
    ]
    assert rounds[0].acceptance_retrieval.evaluated > 0


def test_without_a_prefill_the_first_round_looks_around(model: LlamaModel):
    """An answer made anew feeds nothing: the selection waits for a verification."""
    tiny, params = (
        offloaded_engine(model, "one layer"),
        Params(mode="retrieval", temperature=0.0, max_new_tokens=12),
    )
    context = tiny.new_context(400)
    first, _ = run(tiny, context, PROMPT, params)
    rounds = [event for event in tiny.generate(context, PROMPT, params) if isinstance(event, Round)]
    assert [event.acceptance_retrieval.evaluated > 0 for event in rounds][:2] == [False, True]
    assert [token for event in rounds for token in event.tokens] == first
