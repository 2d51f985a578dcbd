"""Where a text is looked at: against the attention that transformers computes of the same weights."""

from __future__ import annotations

import pytest
import torch

from core.cache.full import FullKVCache
from core.cache.query_recorder import AttentionHead, QueryRecorder
from core.model.llama import LlamaModel
from core.request import Params
from tests.support.dense_attention import dense
from tests.support.engine_runs import PROMPT, run
from tests.support.late_cache import LateBackend
from tests.support.modes import GRID_MODES
from tests.support.offloaded_engines import SPLITS, offloaded, offloaded_engine
from tests.support.tiny import engine, oracle, ours

BORDERS = [7, 20, 21, 64, 111]
HEADS = (AttentionHead(1, 3), AttentionHead(0, 0), AttentionHead(1, 0), AttentionHead(0, 2))


def read(model: LlamaModel, cache, looking: QueryRecorder, ids: list[int], *, prefilled: int) -> None:
    """Prefill in segments and chunks, then passes of three, each rolled back once and fed again."""
    cache.witness = looking
    for _ in model.prefill(
        ids[:prefilled], cache, segment_tokens=48, chunk_tokens=20, should_stop=lambda: False
    ):
        pass
    while cache.length < len(ids):
        start, rest = cache.length, ids[cache.length :]
        model.forward([5, 6, 7], cache)  # a draft that is rejected
        cache.rollback(start)
        model.forward(rest[:3], cache)
        cache.commit(cache.length)


@pytest.mark.parametrize("split", ["on chip", *SPLITS])
@pytest.mark.parametrize(("family", "kv_heads"), [("llama", 4), ("llama", 2), ("llama", 1), ("qwen3", 2)])
@pytest.mark.parametrize("tokens", [range(115, 150), range(130, 140), range(139, 140), range(111, 112)])
def test_masses_equal_dense_attention(split: str, family: str, kv_heads: int, tokens: range):
    """The wrong head of a group, unrotated queries, a row too early, rows of a rejected draft, keys of the
    question counted with the text's: each shows here.
    """
    theirs = oracle(family, kv_heads=kv_heads)
    model = ours(theirs, backend=LateBackend())
    cache = (
        FullKVCache(model.config.kv_shape, 256, model.backend, block_tokens=64)
        if split == "on chip"
        else offloaded(model, split)
    )
    looking = QueryRecorder(HEADS, group=4 // kv_heads)
    looking.begin(105)
    with torch.inference_mode():
        read(model, cache, looking, PROMPT, prefilled=125)
    got = looking.masses(cache, tokens, BORDERS)
    for ours_, theirs_ in zip(got, dense(theirs, PROMPT, HEADS, _thinned(tokens), BORDERS), strict=True):
        assert ours_ == pytest.approx(theirs_, rel=2e-4, abs=1e-6)


def _thinned(tokens: range) -> range:
    """Of more than 32 rows every second one is scored."""
    return tokens if len(tokens) <= 32 else tokens[::2]


@pytest.mark.parametrize("place", ["on chip", "none", "two blocks of each"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("mode", GRID_MODES)
def test_answers_are_the_same_and_their_rows_are_kept(mode: str, temperature: float, place: str):
    """Whatever drafts and rejects: not a token differs, and the rows of the question and of the answer are
    those of the text that came of it.
    """
    theirs = oracle()
    model = ours(theirs, backend=LateBackend())
    made = (
        engine(model, draft=ours(oracle(tied=True))) if place == "on chip" else offloaded_engine(model, place)
    )
    params = Params(temperature=temperature, top_p=1.0, max_new_tokens=24, mode=mode, seed=3)
    without, watched = made.new_context(400), made.new_context(400)
    watched.looking = QueryRecorder(HEADS, group=2)
    watched.looking.begin(111)
    answer, reason = run(made, without, PROMPT, params)
    assert run(made, watched, PROMPT, params) == (answer, reason)
    rows = range(len(PROMPT) - 1, len(PROMPT) + len(answer) - 1)
    for tokens in (range(115, 146), rows):
        got = watched.looking.masses(watched.cache, tokens, BORDERS)
        want = dense(theirs, [*PROMPT, *answer], HEADS, tokens, BORDERS)
        assert all(a == pytest.approx(b, rel=5e-4, abs=1e-6) for a, b in zip(got, want, strict=True))


def test_an_answer_made_anew_still_knows_its_question():
    """Its prompt is in the cache but for one token, and what is not fed again is not seen again."""
    model = ours(oracle())
    made = engine(model)
    context = made.new_context(400)
    context.looking = QueryRecorder(HEADS, group=2)
    params = Params(temperature=0.0, max_new_tokens=8, mode="autoregressive")
    found = []
    for _ in range(2):
        context.looking.begin(111)
        run(made, context, PROMPT, params)
        found.append(context.looking.masses(context.cache, range(115, 149), BORDERS))
    assert found[0] == found[1]


def test_nothing_was_seen_where_nothing_was_kept():
    """Rows before the first that matters are not kept; a context that gave its memory up holds none."""
    made = engine(ours(oracle()))
    context = made.new_context(400)
    context.looking = QueryRecorder(HEADS, group=2)
    context.looking.begin(120)
    run(made, context, PROMPT, Params(temperature=0.0, max_new_tokens=4))
    assert context.looking.masses(context.cache, range(110, 120), BORDERS) is None
    assert context.looking.masses(context.cache, range(118, 122), BORDERS) is not None
    cache = context.cache
    context.close()
    assert context.looking.masses(cache, range(118, 122), BORDERS) is None


class WrongLayer(QueryRecorder):
    def __call__(self, layer, q, start):
        super().__call__(1 - layer, q, start)


class Unrotated(QueryRecorder):
    """Turned by a quarter."""

    def __call__(self, layer, q, start):
        super().__call__(layer, torch.cat((q[..., 4:], q[..., :4]), -1), start)


class RowTooLate(QueryRecorder):
    def __call__(self, layer, q, start):
        super().__call__(layer, q, start + 1)


class KeepsRejected(QueryRecorder):
    def _queries(self, head, tokens):
        return super()._queries(head, range(tokens.start, tokens.stop + 3))


class OwnRowsToo(QueryRecorder):
    """The question's keys count with the text's."""

    def masses(self, cache, tokens, borders):
        return [one[:-1] for one in super().masses(cache, tokens, [*borders, tokens.stop])]


@pytest.mark.parametrize("wrong", [WrongLayer, Unrotated, RowTooLate, KeepsRejected, OwnRowsToo])
def test_mutants_die(wrong: type[QueryRecorder]):
    """The reference above tells each of these from the right one, by more than its tolerance."""
    theirs = oracle()
    model = ours(theirs)
    cache = FullKVCache(model.config.kv_shape, 256, model.backend, block_tokens=64)
    looking, tokens = wrong(HEADS, group=2), range(130, 140)
    looking.begin(105)
    with torch.inference_mode():
        read(model, cache, looking, PROMPT, prefilled=125)
    got, want = looking.masses(cache, tokens, BORDERS), dense(theirs, PROMPT, HEADS, tokens, BORDERS)
    off = max(
        abs(a - b) for one, other in zip(got, want, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert off > 1e-3
