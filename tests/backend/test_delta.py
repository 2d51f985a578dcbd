"""The kernel for layers with a gated delta rule, compiled for CPUs: against the definition, its bits, its
threads, and that it is used only where it can run.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native import delta
from core.backend.cpu.native.delta import NativeDelta, native_delta
from core.backend.cpu.native.library import instruction_sets, library_path, torch_openmp
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.backend.shared.delta_example import delta_by_definition
from core.hardware.cpu import cpu_flags
from core.model.delta import STEP_ROWS, GatedDelta
from core.model.mixer_sizes import DeltaSizes
from tests.support.delta_layers import rule, some

HERE = instruction_sets(cpu_flags()) if library_path("delta") else []
# key heads, value heads, their sizes, the convolution: Qwen3.5's of 2B and 27B, a strip that is cut, others
SIZES = [
    DeltaSizes(2, 2, 128, 128, 4),
    DeltaSizes(1, 3, 128, 128, 4),
    DeltaSizes(2, 4, 16, 16, 4),
    DeltaSizes(1, 2, 256, 112, 2),
]


@pytest.fixture(scope="module", params=HERE or [""])
def kernel(request) -> NativeDelta:
    """Every instruction set that this CPU has, not only the best."""
    if not request.param:
        pytest.skip("no library for this computer")
    return NativeDelta(library_path("delta"), request.param, openmp=torch_openmp())


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("n", [1, 5, 33, 70])
def test_equals_the_definition(kernel, sizes: DeltaSizes, n: int):
    """Value heads that share a key head, rows behind one block of them, columns that fill no strip."""
    state, rows = some(sizes, n)
    want, want_state = delta_by_definition(rule(sizes), state, rows)
    target = torch.full_like(state, torch.nan)
    found = kernel.through(rule(sizes), state, target, rows)
    assert torch.allclose(found.double(), want, atol=2e-5)
    assert torch.allclose(target.double(), want_state, atol=2e-5)
    assert float(want.abs().max()) > 0.1


@pytest.mark.parametrize("steps", [0.0, 30.0, 1000.0])
def test_gates_of_any_size(kernel, steps: float):
    """Kept almost whole, or nothing; and rows of zeros, whose keys have no direction."""
    state, rows = some(SIZES[2], 9)
    rows[4:] = 0
    rows[:, SIZES[2].channels :] *= steps
    want, want_state = delta_by_definition(rule(SIZES[2], steps=steps), state, rows)
    found = kernel.through(rule(SIZES[2], steps=steps), state, state, rows)
    assert torch.allclose(found.double(), want, atol=1e-5)
    assert torch.allclose(state.double(), want_state, atol=1e-5)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_row_among_many_has_the_bits_it_has_alone(kernel, sizes: DeltaSizes):
    """Of a verification, of rows that wait, of a prefill: and the state behind them."""
    n = SHORT_PASS_ROWS + 30
    state, rows = some(sizes, n)
    whole, alone = torch.empty_like(state), state.clone()
    found = kernel.through(rule(sizes), state, whole, rows)
    for at in range(n):
        own = kernel.through(rule(sizes), alone, alone, rows[at : at + sizes.kernel])
        assert torch.equal(own[0], found[at]), at
    assert torch.equal(alone, whole)


def test_threads_do_not_change_the_bits(kernel, monkeypatch):
    sizes, found = SIZES[0], []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        state, rows = some(sizes, 40)
        found.append((kernel.through(rule(sizes), state, state, rows), state))
    for out, state in found[1:]:
        assert torch.equal(out, found[0][0]) and torch.equal(state, found[0][1])


def test_backend_takes_it_for_sizes_that_it_knows(kernel):
    fast = CpuBackend(delta=kernel)
    odd = [rule(DeltaSizes(2, 4, *dims, 4)) for dims in ((8, 16), (512, 16), (16, 8))]
    assert (
        rule(SIZES[0]).served_by(fast).compiled.steps is not None
        and rule(SIZES[0]).served_by(CpuBackend()).compiled is None
    )
    assert all(one.served_by(fast).compiled is None for one in odd)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torchs_form_finds_the_same(kernel, dtype):
    """By rows and by steps of 64, whatever numbers the rows are held in."""
    torchs = rule(SIZES[0])
    both = torchs, torchs.served_by(CpuBackend(delta=kernel))
    state, rows = some(SIZES[0], 2 * STEP_ROWS)
    for n, run in ((7, lambda one, own, few: one.one_by_one(own, own, few)), (128, GatedDelta.steps)):
        states = state.clone(), state.clone()
        few = rows[: SIZES[0].kernel - 1 + n].to(dtype)
        found = [run(one, own, few) for one, own in zip(both, states, strict=True)]
        assert torch.allclose(*found, atol=1e-4) and torch.allclose(*states, atol=1e-4)


def test_a_library_that_computes_wrongly_is_not_used(monkeypatch, caplog):
    """Or is not there for this CPU: then torch's form serves."""
    assert native_delta(frozenset()) is None
    if native_delta(cpu_flags()) is None:
        pytest.skip("no library for this computer")
    right = NativeDelta.through
    monkeypatch.setattr(NativeDelta, "through", lambda *args: right(*args) + 1e-2)
    with caplog.at_level(logging.WARNING):
        assert native_delta(cpu_flags()) is None
    assert "wrongly" in caplog.text
    monkeypatch.setattr(delta, "library_path", lambda name: Path(__file__))
    assert native_delta(cpu_flags()) is None
