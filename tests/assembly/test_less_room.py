"""What is done when the device has less room than was planned."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.assembly import cache_factory
from core.assembly.cache_factory import CacheFactory
from core.assembly.engines import build_engine
from core.backend.cpu.backend import CpuBackend
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.config import Settings
from core.errors import UserError
from core.planning.budget import KEPT_FREE, KV_ON_CHIP
from core.planning.plan import BudgetLine
from core.text.words import GB
from tests.support.assembled_engines import GREEDY, OFFLOADED, PROMPT, OutOfMemory, SmallDevice, answer, built
from tests.support.said import figures, values, worded_by
from tests.support.tiny import PLAN, oracle


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint."""
    target = tmp_path_factory.mktemp("tiny")
    oracle().save_pretrained(target)
    return target


def test_no_room_for_a_cache_is_met_with_fewer_layers(folder: Path):
    """Said once, in the answer that was made with it."""
    backend = SmallDevice(refuse=[True])
    engine = built(folder, backend=backend)
    context = engine.new_context(400)
    assert engine.plan.on_chip_layers == 0 and backend.released == 1
    tokens, done = answer(engine, context)
    assert worded_by(cache_factory, *done.notes) == [engine.plan.notes[-1]]
    assert values(done.notes[0]) == {"layers": 0}
    assert answer(engine, context)[1].notes == ()
    plain = built(folder, PLAN)
    assert tokens == answer(plain, plain.new_context(400))[0]


@pytest.mark.parametrize("mode", ["autoregressive", "retrieval", "triforce"])
@pytest.mark.parametrize("at", [3, 9, 30, 60])
def test_out_of_memory_in_the_middle_costs_time_not_the_answer(folder: Path, mode: str, at: int):
    """While reading and while writing: the same answer, each token once, from a context that is made anew."""
    engine = built(folder, backend=SmallDevice(failures=[at]))
    context = engine.new_context(400)
    tokens, done = answer(engine, context, replace(GREEDY, mode=mode))
    plain = built(folder, PLAN)
    assert tokens == answer(plain, plain.new_context(400), replace(GREEDY, mode=mode))[0]
    assert engine.plan.on_chip_layers == 0 and len(done.notes) == 1
    assert done.stats.new_tokens == len(tokens) and context.ids == [*PROMPT, *tokens][: len(context.ids)]
    assert done.stats.prompt_tokens == len(PROMPT)


@pytest.mark.parametrize("at", [30, 60])
def test_out_of_memory_reads_nothing_again(folder: Path, at: int):
    """Rows in host memory are still there: half an hour of reading must not go with a few megabytes of the
    device. Those of the layers that leave it come along.
    """
    engine = built(folder, backend=SmallDevice(failures=[at]))
    context = engine.new_context(400)
    cache, fed = context.cache, []
    feed = engine.model.prefill
    engine.model.prefill = lambda ids, *more, **named: fed.append(len(ids)) or feed(ids, *more, **named)
    tokens, _ = answer(engine, context)
    assert context.cache is cache and cache.layers_on_device == 0
    assert sum(fed) < len(PROMPT) + PLAN.prefill_segment_tokens, "what was read was read again"
    plain = built(folder, PLAN)
    whole = plain.new_context(400)
    assert tokens == answer(plain, whole)[0]
    for layer in range(PLAN.layers):
        for got, want in zip(
            cache.rows(layer, 0, cache.length), whole.cache.rows(layer, 0, cache.length), strict=True
        ):
            assert torch.allclose(got, want, atol=1e-4)


def test_no_room_at_all_names_cause_and_remedy(folder: Path):
    """An endless loop of attempts, or a traceback, would help nobody."""
    engine = built(folder, backend=SmallDevice(refuse=[True, True]))
    with pytest.raises(UserError, match="GPU's memory does not hold.*lower context_tokens"):
        engine.new_context(400)


def test_a_context_outlives_the_answer_that_found_no_room(folder: Path):
    """The next question, perhaps with other programs closed, starts over instead of stumbling over an empty
    context.
    """
    backend = SmallDevice(failures=[3], refuse=[False, True])
    # parts of each layer are on the device: such a cache is made anew
    engine = built(folder, replace(OFFLOADED, residency="blocks"), backend=backend)
    context = engine.new_context(400)
    with pytest.raises(UserError, match="GPU's memory"):
        answer(engine, context)
    assert len(answer(engine, context)[0]) == 16


def test_what_is_beside_a_book_takes_its_own_line_and_never_lowers_the_plan(folder: Path):
    """A page that was asked about took the card from the book: for good, and each later book was slower."""
    backend = SmallDevice(refuse=[False, False, True])
    engine = built(folder, replace(OFFLOADED, beside_tokens=200), backend=backend)
    book = engine.new_context(400)
    short = engine.planned_context(200, beside=True)
    tokens, done = answer(engine, short)
    assert isinstance(short.cache, FullKVCache), "no bus between a passage and its answer"
    long = engine.planned_context(300, beside=True)
    assert (answer(engine, long)[0], done.notes) == (tokens, ())
    assert isinstance(long.cache, OffloadedKVCache) and long.cache.layers_on_device == 0
    with pytest.raises(UserError, match="a context of 301 tokens"):
        engine.complete(engine.planned_context(301, beside=True))
    assert engine.plan.on_chip_layers == 1 and book.cache.layers_on_device == 1
    assert answer(engine, book)[0] == tokens
    assert built(folder, backend=SmallDevice()).planned_context(200, beside=True).beside is False


@pytest.mark.parametrize("at", [3, 30])
def test_a_pass_beside_a_book_that_finds_no_room_leaves_the_plan(folder: Path, at: int):
    """Its question fails, and the next one may work."""
    engine = built(folder, replace(OFFLOADED, beside_tokens=200), backend=SmallDevice(failures=[at]))
    context = engine.planned_context(200, beside=True)
    with pytest.raises(UserError, match="does not hold"):
        answer(engine, context)
    assert engine.plan.on_chip_layers == 1 and context.cache is None
    assert answer(engine, context)[0] == answer(engine, engine.new_context(400))[0]


def test_a_card_that_holds_all_of_a_book_holds_nothing_of_a_second(folder: Path):
    """A plan without a bus says nothing of one: what lies in host memory is planned for itself."""
    whole = replace(PLAN, beside_tokens=20)
    engine = built(folder, whole, on_chip_layers=None)
    book, beside = engine.new_context(400), engine.planned_context(300, beside=True)
    assert isinstance(book.cache, FullKVCache) and answer(engine, beside)[0] == answer(engine, book)[0]
    assert isinstance(beside.cache, OffloadedKVCache) and engine.plan.on_chip_layers == whole.on_chip_layers


def test_weights_that_do_not_fit_are_refused_in_words(folder: Path):
    """Loading is where a full card is met first."""

    class Full(SmallDevice):
        def linear(self, *args: object) -> object:
            raise OutOfMemory("no room for a matrix")

    with pytest.raises(UserError, match="weights of tiny do not fit"):
        built(folder, backend=Full())


def test_planned_and_real_memory_are_compared_after_loading(folder: Path, caplog: pytest.LogCaptureFixture):
    """In the log always; and where the rest will not fit, the plan gives way before anything breaks."""
    caplog.set_level(logging.INFO)
    lines = (
        BudgetLine("weights", 2 * GB, "VRAM"),
        BudgetLine(KV_ON_CHIP, 3 * GB, "VRAM"),
        BudgetLine(KEPT_FREE, 9 * GB, "VRAM"),
    )
    planned = replace(OFFLOADED, device="cuda", budget=lines)
    roomy, tight = (built(folder, planned, backend=SmallDevice(free=free)) for free in (4 * GB, 2 * GB))
    assert ["2.00", "0.00", "3.00", "4.00"] in [figures(one) for one in caplog.messages]
    assert (roomy.plan.on_chip_layers, tight.plan.on_chip_layers) == (1, 0)


def test_a_plan_for_a_gpu_needs_one(folder: Path):
    """On a machine without: a sentence, not a traceback out of torch."""
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UserError, match="device to cpu"):
        build_engine(replace(PLAN, device="cuda", dtype="float16"), Settings(), folder)


def test_without_another_plan_there_is_nothing_to_give():
    """Whoever builds an engine from a fixed plan gets an error instead of another plan."""

    class Model:
        backend = CpuBackend()

    assert CacheFactory(OFFLOADED, Settings(), Model()).give_way() is None
