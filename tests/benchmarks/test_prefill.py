"""The prefill benchmark's own logic, with tiny models."""

from __future__ import annotations

import pytest
import torch

from benchmarks.lib.layer_timer import Parts
from benchmarks.speed import prefill
from benchmarks.speed.forward_times import OutOfTime
from core.backend.cpu.backend import CpuBackend
from core.backend.shared.linear import RowwiseLinear
from core.model.shapes import ModelShape
from tests.support.tiny import VOCAB, engine, oracle, ours

IDS = [int(token) for token in torch.randint(0, VOCAB, (200,), generator=torch.Generator().manual_seed(5))]


def tiny() -> tuple[Parts, object, ModelShape]:
    reference, parts = oracle(), Parts(CpuBackend())
    return (
        parts,
        engine(ours(reference, backend=parts)),
        ModelShape.from_hf_config(reference.config.to_dict()),
    )


def test_parts_are_parts_of_the_whole():
    """Attention that is counted as a linear layer too, or a part that is not timed, would show here."""
    parts, made, shape = tiny()
    found = prefill.prefill(made, parts, shape, IDS)
    assert found["linear_s"] > 0 and found["attention_s"] > 0
    assert found["linear_s"] + found["attention_s"] < found["seconds"]
    assert found["linear_flops"] == 200 * 2 * shape.layers_parameters
    assert found["attention_flops"] == 4 * (200 * 201 // 2) * 4 * 8 * 2


def test_the_stopwatch_changes_no_number():
    """The measured model computes what the product computes."""
    reference = oracle()
    plain, timed = (ours(reference, backend=backend) for backend in (CpuBackend(), Parts(CpuBackend())))
    logits = [model.forward(IDS, engine(model).new_context(300).cache) for model in (plain, timed)]
    assert torch.equal(*logits)


def test_every_linear_layer_and_every_attention_is_timed_once():
    """By a clock that counts how often it is read: two layers of four products and one attention, and the
    head.
    """
    ticks = iter(range(10_000))
    parts = Parts(CpuBackend(), clock=lambda: float(next(ticks)))
    model = ours(oracle(), backend=parts)
    cache = engine(model).new_context(300).cache
    parts.reset()
    model.forward(IDS[:3], cache)
    assert parts.seconds == {"linear": 2 * 4 + 1, "attention": 2}


def test_the_rates_are_of_the_products_that_prefill_makes(monkeypatch):
    """Other products than the model's own gave shares above 1: every matrix of a layer, as many rows as a
    chunk, and attention of its last rows to all of the prompt.
    """
    ticks = iter(range(10_000))
    monkeypatch.setattr(prefill.time, "perf_counter", lambda: float(next(ticks)))
    _parts, made, shape = tiny()
    model, rows = made.model, []
    monkeypatch.setattr(
        RowwiseLinear, "__call__", lambda self, x: rows.append(tuple(x.shape)) or x @ self.weight.t()
    )
    assert prefill.linear_rate(model, shape, rows=20) == 20 * 2 * shape.layers_parameters / shape.layers / 4
    assert rows == [(20, width) for width in (32, 32, 32, shape.intermediate) for _ in range(prefill.REPEATS)]
    cache, asked = prefill.read_anew(made, IDS), []
    attend = type(model.backend).attend
    monkeypatch.setattr(
        type(model.backend),
        "attend",
        lambda self, q, k, v, **how: asked.append((len(q), how)) or attend(self, q, k, v, **how),
    )
    pairs = 20 * 180 + 20 * 21 // 2
    assert prefill.attention_rate(model, cache, shape, rows=20) == 4 * pairs * 4 * 8
    assert asked == [(20, {"length": 200, "causal": True})] * prefill.REPEATS


def test_half_a_prompt_is_no_result():
    """Stopped by the clock, it must not be reported as fast."""
    parts, made, shape = tiny()
    with pytest.raises(OutOfTime):
        prefill.prefill(made, parts, shape, IDS, out_of_time=lambda: True)


def test_shares_are_of_the_measured_rate():
    """By hand: 6 and 2 GFLOP in 4 and 2 of 8 seconds, alone 2 and 4 GFLOP a second."""
    found = {
        "seconds": 8.0,
        "linear_s": 4.0,
        "attention_s": 2.0,
        "linear_flops": 6e9,
        "attention_flops": 2e9,
        "linear_rate": 2e9,
        "attention_rate": 4e9,
        "transformers_s": None,
    }
    (second, first) = prefill.prefill_table({"8000": found, "1000": found}).rows[::-1]
    assert (first[0], second[0]) == (1000, 8000)
    assert first[1:] == (8.0, 125.0, 1e-3, 2e-3, 4e-3, 3.5 / 8, 4.0, 0.75, 2.0, 0.25, 2.0, None)
