"""Recorded passes that verify: over a full cache that lies on the device they are the pass itself, at any
length, for whoever watches, and nothing else is recorded.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.assembly.composition import Composer
from core.backend.shared.kv_rows import CODES
from core.cache.fixed import FixedRows
from core.cache.full import FullKVCache
from core.engine import Engine
from core.model.llama import LlamaModel
from core.model.recorded_verification import OFTEN, RecordedVerification
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.offloaded_engines import offloaded
from tests.support.recording import OneAttention, RecordingBackend
from tests.support.said import values, worded_by
from tests.support.tiny import PLAN, oracle, ours

MOST = 8


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As in the engine."""
    with torch.inference_mode():
        yield


def made(backend: RecordingBackend, **more: int) -> tuple[LlamaModel, RecordedVerification]:
    model = ours(oracle(), backend=backend)
    return model, RecordedVerification(model, most_rows=MOST, **more)


def whole(model: LlamaModel, capacity: int = 320) -> FullKVCache:
    cache = FullKVCache(model.config.kv_shape, capacity, model.backend, block_tokens=capacity)
    model.forward(PROMPT[:70], cache)
    cache.commit(cache.length)
    return cache


def feed(passes: LlamaModel | RecordedVerification, cache: FullKVCache, n: int, kept: int) -> torch.Tensor:
    """A verification of n rows of which `kept` stand."""
    ids = [(cache.length * 7 + 3 * row) % 50 for row in range(n)]
    logits = passes.forward(ids, cache)
    cache.commit(cache.length - n + kept)
    return logits


def test_a_replay_is_the_pass_at_every_length():
    """Bit for bit, in logits and in what is kept: behind growth and rollback, of several numbers of rows, in
    the memory that was recorded.
    """
    backend = OneAttention()
    model, passes = made(backend)
    cache, eager = whole(model), whole(model)
    address = cache.store.k.data_ptr()
    for n, kept in [(5, 3), (1, 1), (5, 5), (3, 1)] * (OFTEN + 4):
        assert torch.equal(feed(passes, cache, n, kept), feed(model, eager, n, kept)), cache.length
        if cache.length > 120:
            cache.rollback(90)
            eager.rollback(90)
    assert passes.rows(cache) == (5, 1, 3) and backend.recorded == 3
    assert backend.replayed > 3 * 3, "hardly a pass was replayed"
    assert cache.store.k.data_ptr() == address and torch.equal(cache.store.k, eager.store.k)


def test_what_does_not_come_often_is_not_recorded():
    """A recording takes as long as six passes. Passes of other numbers of rows, longer ones and those over
    another cache are computed as ever.
    """
    backend = OneAttention()
    model, passes = made(backend)
    cache, other = whole(model), whole(model)
    for _time in range(OFTEN - 1):
        feed(passes, cache, 5, 2)
    feed(passes, other, 5, 2)
    assert passes.rows(cache) == () and backend.recorded == 0
    feed(passes, cache, 5, 2)
    assert passes.rows(cache) == (5,) and passes.rows(other) == ()
    replayed = backend.replayed
    for n in (4, MOST + 1, MOST + 1, MOST + 1, MOST + 1):
        feed(passes, cache, n, 1)
    feed(passes, other, 5, 2)
    assert backend.replayed == replayed and passes.rows(cache) == (5,)


def recorded(model: LlamaModel, passes: RecordedVerification, n: int = 5) -> FullKVCache:
    cache = whole(model)
    for _time in range(OFTEN):
        feed(passes, cache, n, 2)
    assert passes.rows(cache) == (n,)
    return cache


def test_a_pass_that_a_selection_observes_is_not_replayed():
    """It leaves sums of every chunk, which a recording would have to keep for all layers."""
    backend = OneAttention()
    model, passes = made(backend)
    cache, seen = recorded(model, passes), []
    cache.observer = lambda layer, q, k, **how: seen.append(layer)
    replayed = backend.replayed
    feed(passes, cache, 5, 2)
    assert seen == [0, 1] and backend.replayed == replayed
    cache.observer = None
    feed(passes, cache, 5, 2)
    assert backend.replayed == replayed + 1


def test_who_watches_is_shown_the_queries_of_a_replay():
    """Where the model looked is told by them: of every layer, at the pass's own tokens, and once."""
    model, passes = made(OneAttention())
    shown: dict[str, list] = {"eager": [], "replayed": []}
    for name, one in (("eager", model), ("replayed", passes)):
        cache = recorded(model, passes)
        cache.witness = lambda layer, q, start, name=name: shown[name].append((layer, start, q.clone()))
        for _time in range(2):
            feed(one, cache, 5, 2)
    assert [told[:2] for told in shown["replayed"]] == [told[:2] for told in shown["eager"]]
    assert len(shown["replayed"]) == 4
    pairs = zip(shown["eager"], shown["replayed"], strict=True)
    assert all(torch.equal(one[2], other[2]) for one, other in pairs)


def test_rows_in_codes_are_written_as_codes(monkeypatch: pytest.MonkeyPatch):
    """By a recorded pass as by the cache itself."""
    backend = OneAttention()
    model = ours(oracle(), backend=backend)
    caches = [
        FullKVCache(model.config.kv_shape, 64, backend, block_tokens=64, dtype=CODES) for _cache in range(2)
    ]
    monkeypatch.setattr(OneAttention, "attend_slots", lambda self, q, k, v, *, slots: q)
    rows = caches[1].fixed(3)
    rows.place(5, 5)
    caches[0].advance(5)
    dice = torch.Generator().manual_seed(0)
    q = torch.randn(3, 4, 8, generator=dice)
    k, v = (torch.randn(3, 2, 8, generator=dice) for _part in range(2))
    for one in (caches[0], rows):
        one.attend(0, q, k, v)
    assert bool(caches[0].store.k.any()) and torch.equal(caches[0].store.k, caches[1].store.k)
    assert torch.equal(caches[0].store.v, caches[1].store.v)


def test_recordings_go_with_their_cache():
    """A book's memory is as large as the card; a recording that held it would be the end of the next one."""
    model, passes = made(OneAttention())
    cache = recorded(model, passes)
    store = weakref.ref(cache.store)
    del cache
    gc.collect()
    assert store() is None and not passes._caches


def test_no_more_memory_is_kept_than_the_plan_has():
    """Logits of many rows over a large vocabulary are megabytes; what has no room is computed as ever."""
    model, counted = made(OneAttention())
    model, passes = made(model.backend, most_bytes=5 * counted._row_bytes)
    cache = recorded(model, passes)
    for _time in range(OFTEN):
        feed(passes, cache, 1, 1)
    assert passes.rows(cache) == (5,)


def test_at_the_end_of_a_cache_nothing_is_recorded():
    """It is made over rows behind those of the pass, which must be there."""
    model, passes = made(OneAttention())
    cache = FullKVCache(model.config.kv_shape, 75, model.backend, block_tokens=75)
    model.forward(PROMPT[:70], cache)
    cache.commit(70)
    for _time in range(OFTEN + 1):
        passes.forward([1, 2, 3, 4, 5], cache)
        cache.rollback(70)
    assert passes.rows(cache) == () and not passes.reason


# ---- what does not serve -----------------------------------------------------------------------------------


def test_where_the_card_cannot_record_it_is_said(caplog: pytest.LogCaptureFixture):
    """Once, and answers go on."""
    model, passes = made(OneAttention(full=0))
    cache, eager = whole(model), whole(model)
    for _time in range(2 * OFTEN):
        assert torch.equal(feed(passes, cache, 5, 2), feed(model, eager, 5, 2))
    assert passes.reason == passes.refusal(cache) and passes.reason.values is None
    assert worded_by(RecordedVerification._tried, passes.reason)
    assert len(caplog.messages) == 1


def slots_stay(rows: FixedRows, position: int, slot: int) -> None:
    """Rows go where they were recorded, and attention reads no further."""
    torch.arange(position, position + rows._n, out=rows._positions)
    if not hasattr(rows, "placed"):
        torch.arange(slot, slot + rows._n, out=rows._slots)
    rows.placed = True


def positions_stay(rows: FixedRows, position: int, slot: int) -> None:
    torch.arange(slot, slot + rows._n, out=rows._slots)
    if not hasattr(rows, "placed"):
        torch.arange(position, position + rows._n, out=rows._positions)
    rows.placed = True


@pytest.mark.parametrize("mistake", [slots_stay, positions_stay])
def test_a_recording_that_gives_other_numbers_is_not_used(monkeypatch, mistake):
    """A length or a position that stayed as it was recorded: found before the first pass that relies on it,
    and none is used from then on.
    """
    monkeypatch.setattr(FixedRows, "place", mistake)
    model, passes = made(OneAttention())
    cache, eager = whole(model), whole(model)
    for _time in range(2 * OFTEN):
        assert torch.equal(feed(passes, cache, 5, 2), feed(model, eager, 5, 2))
    assert values(passes.reason) == {"rows": 5} and passes.rows(cache) == ()


def test_rows_in_several_pieces_are_not_recorded():
    """In blocks, or partly in host memory, where a row lies is more than a number."""
    model, passes = made(OneAttention())
    blocks = FullKVCache(model.config.kv_shape, 128, model.backend, block_tokens=64)
    for cache in (blocks, offloaded(model, "one layer", 128)):
        assert worded_by(RecordedVerification.refusal, passes.refusal(cache))
    assert passes.refusal(whole(model)) == ""


# ---- answers -----------------------------------------------------------------------------------------------


def answered(backend: RecordingBackend, graphs: str, **how: object) -> list[list[int]]:
    """Two conversations in turns, in the product's own composition."""
    model = ours(oracle(), backend=backend)
    plan = replace(PLAN, cuda_graphs=graphs)
    composer = Composer(plan, model, None)
    notes = composer.prepare()
    told = "CUDA graphs: used for verification, where passes of as many rows come again."
    assert (told in notes) == (graphs == "on")
    one = Engine(
        model,
        plan,
        new_cache=lambda capacity: FullKVCache(
            model.config.kv_shape, capacity + 32, backend, block_tokens=capacity + 32
        ),
        compose=composer.compose,
        peak_memory=lambda: 1,
    )
    contexts, params = [one.new_context(400) for _context in range(2)], replace(GREEDY, **how)
    return [run(one, context, ids, params)[0] for ids in (PROMPT, PROMPT[30:]) for context in contexts]


@pytest.mark.parametrize(
    ("mode", "temperature"), [("autoregressive", 0.0), ("draft", 0.8), ("triforce", 0.8)]
)
def test_answers_are_the_same(mode: str, temperature: float):
    """By the same seed; the first passes of an answer and the replayed ones are not told apart."""
    backend = OneAttention()
    how = {"mode": mode, "temperature": temperature, "max_new_tokens": 40, "seed": 3}
    assert answered(backend, "on", **how) == answered(OneAttention(), "off", **how)
    assert backend.replayed > 20
