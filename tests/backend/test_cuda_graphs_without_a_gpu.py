"""How the CUDA backend records passes, with stand-ins for streams and graphs: in which order, and what a
failure leaves behind.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace

import pytest
import torch

from core.assembly.composition import Composer
from core.backend.cuda.backend import CudaBackend
from core.cache.full import FullKVCache
from core.engine import Engine
from tests.support.cuda_device import Device, Pool
from tests.support.engine_runs import GREEDY, PROMPT, run
from tests.support.said import values, worded_by
from tests.support.tiny import PLAN, engine, oracle, ours


def backend_on_the_cpu() -> CudaBackend:
    backend = CudaBackend(torch.float32)
    backend.device = torch.device("cpu")
    return backend


def test_a_pass_is_done_first_and_then_recorded(device: Device):
    """On the side stream, which begins after the computation and which the computation goes on after; one
    pool for all.
    """
    backend, x = backend_on_the_cpu(), torch.zeros(2)

    def run() -> torch.Tensor:
        side = device.current
        device.said.append(
            "run" if side is not device.compute and side.waited[-1:] == [device.compute] else "run too early"
        )
        return x * 2

    replays = [backend.capture(run) for _ in range(2)]
    assert device.said == ["run", "run", "run", "record", "run"] * 2
    assert len(device.compute.waited) == 2 and device.compute.waited[0] is not device.compute
    x.fill_(3)
    assert [replay().tolist() for replay in replays] == [[6, 6], [6, 6]]
    assert device.pools[0] is device.pools[1] and device.current is device.compute


def test_the_memory_of_recordings_stays_when_the_last_of_them_went(device: Device):
    """A conversation's recordings go with its cache: the next one's could not be made in what is left of a
    pool that nobody holds (seen on a card).
    """
    backend = backend_on_the_cpu()
    for _conversation in range(2):
        backend.capture(lambda: torch.zeros(2))  # and is dropped
        gc.collect()
        assert Pool.held[device.pools[-1]].id is device.pools[0]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("operation not permitted")]
)
def test_after_a_failure_none_is_tried(device: Device, caplog: pytest.LogCaptureFixture, error: Exception):
    """The computation goes on where it was, and what broke is said once, not what ending it said."""
    caplog.set_level(logging.WARNING)
    backend, device.breaks = backend_on_the_cpu(), error
    assert [backend.capture(lambda: torch.zeros(1)) for _ in range(3)] == [None] * 3
    assert device.said.count("record") == 1 and device.current is device.compute
    assert len(caplog.messages) == 1 and str(error) in caplog.messages[0]
    assert backend.notes == tuple(caplog.messages)  # for who asks the doctor


def test_an_answer_by_graphs(device: Device):
    """The product's own composition on this backend: the CPU's tokens."""
    backend = backend_on_the_cpu()
    model = ours(oracle(), backend=backend)
    plan = replace(PLAN, cuda_graphs="on")
    composer = Composer(plan, model, ours(oracle(tied=True), backend=backend))
    *levels, verification = composer.prepare()
    assert list(map(values, levels)) == [{"level": one, "rows": "1, 2, 3"} for one in ("middle", "draft")]
    assert worded_by(CudaBackend, values(verification)["reason"])
    graphed = Engine(
        model,
        plan,
        new_cache=lambda capacity: FullKVCache(model.config.kv_shape, capacity + 32, backend),
        compose=composer.compose,
        peak_memory=lambda: 1,
    )
    plain = engine(ours(oracle()), draft=ours(oracle(tied=True)))
    assert run(graphed, graphed.new_context(400), PROMPT, GREEDY) == run(
        plain, plain.new_context(400), PROMPT, GREEDY
    )
