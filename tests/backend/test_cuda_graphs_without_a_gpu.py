"""How the CUDA backend records passes, with stand-ins for streams and graphs: in which order, and what a
failure leaves behind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from core.assembly.composition import Composer
from core.backend.cuda.backend import CudaBackend
from core.cache.full import FullKVCache
from core.engine import Engine
from tests.support.recording import Recording
from tests.support.tiny import PLAN, engine, oracle, ours
from tests.test_engine import GREEDY, PROMPT, run


class Stream:
    """Knows for whom it waits."""

    cuda_stream = 5  # its handle

    def __init__(self, device: object = None) -> None:
        self.waited: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)


class Device:
    """Streams and graphs as torch has them. `breaks`: what goes wrong while recording, before ending the
    recording goes wrong too.
    """

    def __init__(self) -> None:
        self.compute = self.current = Stream()
        self.said: list[str] = []
        self.pools: list[object] = []
        self.breaks: Exception | None = None

    @contextmanager
    def use(self, stream: object) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph: Graph, *, pool: object, stream: object, capture_error_mode: str) -> Iterator[None]:
        """Leaves the stream where it is when ending fails, as torch's does."""
        self.said.append("record")
        self.pools.append(pool)
        before, self.current = self.current, stream
        try:
            with graph.recording:
                yield
            if self.breaks:
                raise self.breaks
        except RuntimeError as error:
            raise RuntimeError("operation failed due to a previous error during capture") from error
        self.current = before


class Graph:
    """What was recorded."""

    def __init__(self) -> None:
        self.recording = Recording()

    def replay(self) -> None:
        self.recording.replay()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda device: "a card",
        "set_device": lambda device: None,
        "Stream": Stream,
        "current_stream": lambda device=None: made.current,
        "stream": made.use,
        "graph": made.graph,
        "CUDAGraph": Graph,
        "graph_pool_handle": object,
        "get_device_properties": lambda device: SimpleNamespace(total_memory=1 << 30),
        "set_per_process_memory_fraction": lambda fraction, device: None,
        "empty_cache": lambda: None,
        "synchronize": lambda device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


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


def test_an_answer_by_graphs(device: Device):
    """The product's own composition on this backend: the CPU's tokens."""
    backend = backend_on_the_cpu()
    model = ours(oracle(), backend=backend)
    plan = replace(PLAN, cuda_graphs="on")
    composer = Composer(plan, model, ours(oracle(tied=True), backend=backend))
    assert composer.prepare() == tuple(
        f"CUDA graphs: used for {level} passes of 1, 2, 3 rows." for level in ("middle", "draft")
    )
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
