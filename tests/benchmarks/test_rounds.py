"""Where a round's time goes: the parts add up, each kernel is counted for the level whose pass it is in, also
where layers are one call, and the stopwatch changes no token.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from benchmarks.lib.level_timer import MeasuredComposer
from benchmarks.lib.round_timer import (
    DRAFT,
    KERNELS,
    PARTS,
    REST,
    SAMPLING,
    SELECTION,
    RoundRecorder,
    Stopwatch,
)
from benchmarks.speed import rounds
from benchmarks.speed.decode import DecodeBench
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.layers import native_layers
from core.backend.cpu.native.products import native_products
from core.decoding.decoder import Round
from core.hardware.cpu import cpu_flags
from core.model.loader import build_model
from core.request import Params
from core.selftest.random_model import RandomWeights, random_config
from tests.support.tiny import PLAN, engine

IDS = [(7 * at + at * at) % 97 for at in range(200)]


class Prepared(MeasuredComposer):
    """As `build_engine` has it."""

    def __init__(self, *how: object) -> None:
        super().__init__(*how)
        self.prepare()


def bench(recorder: RoundRecorder, **without: Any) -> DecodeBench:
    flags = cpu_flags()
    attention, products = native_attention(flags), native_products(flags)
    layers = native_layers(flags, attention, products)
    if layers is None:
        pytest.skip("no library for this computer")
    kernels = {"native": attention, "products": products, "layers": layers} | without
    config = random_config(layers=2, hidden=96, heads=4, kv_heads=2, head_dim=64, intermediate=160, vocab=97)
    backend = CpuBackend(storage=torch.bfloat16, **kernels)
    model = build_model(config, RandomWeights(config, deviation=0.3), backend, positions=512)
    made = engine(model, composer=functools.partial(Prepared, recorder, PLAN))
    return DecodeBench(made, made.new_context(300), recorder, IDS, lambda: False)


def answer(one: DecodeBench, mode: str) -> tuple[int, list[int]]:
    """How many rounds, and what was said."""
    how = Params(max_new_tokens=24, temperature=0.6, top_p=0.9, mode=mode, seed=3)
    events = [event for event in one.engine.generate(one.context, IDS, how) if isinstance(event, Round)]
    return len(events), [token for event in events for token in event.tokens]


def test_time_is_the_innermost_parts():
    """A part that also held what is inside it would be counted twice."""
    moments = iter([0.0, 1.0, 4.0, 5.0, 7.0, 8.0])
    watch = Stopwatch(lambda: next(moments))
    inner = watch.around("inner", lambda: None)
    watch.around("outer", lambda: (inner(), inner()))()
    assert watch.seconds == {"outer": 1 + 1 + 1, "inner": 3 + 2}


def test_parts_that_raise_are_left():
    """Else all that follows would be counted for them."""
    watch = Stopwatch()
    with pytest.raises(ZeroDivisionError):
        watch.around("broken", lambda: 1 / 0)()
    assert watch._open == []


@pytest.mark.parametrize(("mode", "levels"), [("autoregressive", ["full"]), ("triforce", ["full", "middle"])])
def test_kernels_inside_one_call_are_counted_for_their_level(mode: str, levels: list[str]):
    """By a clock that counts its own questions: a part that was never entered stays at 0."""
    asked = iter(range(10**9))
    recorder = RoundRecorder(lambda: float(next(asked)))
    one = bench(recorder)
    answer(one, mode)  # reads the prompt
    call, want = one.engine.model._in_one._call, answer(one, mode)
    pointers = call.multiply, call.attend
    with recorder.watching(one.engine.model) as watch:
        assert (call.multiply, call.attend) != pointers
        assert answer(one, mode) == want
    assert (call.multiply, call.attend) == pointers and recorder._level is None
    for level, parts in KERNELS.items():
        assert all((watch.seconds[part] > 0) == (level in levels) for part in parts), level
    assert watch.seconds[SAMPLING] > 0 and watch.seconds[REST] > 0
    assert (watch.seconds[SELECTION] > 0) == (mode == "triforce")
    if (
        mode == "autoregressive"
    ):  # four products and one attention a layer, the output's, and one question each
        passes = want[0]
        assert watch.seconds["products"] == passes * (2 * 4 + 1)
        assert watch.seconds["attention, full cache"] == passes * 2


def test_the_table_has_every_part_and_their_sum():
    """Of every answer, by medians over turns."""
    recorder = RoundRecorder()
    found = rounds.profiles(bench(recorder), recorder, turns=1, tokens=12)
    made = rounds.round_table({"200": found, "90": found})
    assert [row[:2] for row in made.rows] == [(at, name) for at in (90, 200) for name in rounds.ANSWERS]
    for one in found.values():
        assert one["a round"] == pytest.approx(sum(one[part] for part in PARTS)) and one["products"] > 0
    assert {"products", "middle products", REST} < set(made.columns) and DRAFT not in made.columns


def test_layers_that_go_one_by_one_are_refused():
    """Their attention would be counted as what lies between kernels."""
    recorder = RoundRecorder()
    with pytest.raises(SystemExit, match="one by one"):
        rounds.profiles(bench(recorder, layers=None), recorder, turns=1, tokens=4)
    assert recorder._level is None, "what breaks off leaves nothing in the way of other answers"
