"""The number of threads that other programs leave to an answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from core.backend.cpu import thread_sharing
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.cpu.native.products import native_products
from core.backend.cpu.thread_sharing import LOOK_EVERY_S, SharedCores
from core.hardware.cpu import cpu_flags


class Machine:
    """A processor whose programs use whole cores: time passes when told, and each second counts for all that
    runs.
    """

    def __init__(self, cores: int, threads: int) -> None:
        self.cores, self.now, self.used_by_all, self.used_by_us = cores, 0.0, 100.0, 7.0
        self.asked = 0
        self.chosen: list[int] = []
        self.shared = SharedCores(
            threads,
            clock=lambda: self.now,
            busy=self._busy,
            own=lambda: self.used_by_us,
            use=self.chosen.append,
        )

    def _busy(self) -> tuple[float, int]:
        self.asked += 1
        return self.used_by_all, self.cores

    def run(self, seconds: float, *, others: float, ours: float) -> None:
        """Lets that pass, then looks."""
        self.now += seconds
        self.used_by_all += seconds * (others + ours)
        self.used_by_us += seconds * ours
        self.shared.look()


@pytest.mark.parametrize(
    ("cores", "threads", "others", "ours", "chosen"),
    [
        (2, 2, 0.0, 2.0, 2),
        (2, 2, 0.2, 1.8, 2),  # a page that is drawn now and then
        (2, 2, 0.67, 1.33, 1),  # one busy program and two threads on two cores
        (2, 1, 1.0, 1.0, None),  # nothing to choose
        (2, 2, 2.0, 0.0, 1),  # never none
        (16, 16, 1.0, 15.0, 15),
        (32, 16, 10.0, 16.0, 16),  # two logical cores per thread: there is room
        (32, 16, 24.0, 8.0, 8),
    ],
)
def test_threads_are_what_other_programs_leave(
    cores: int, threads: int, others: float, ours: float, chosen: int | None
) -> None:
    machine = Machine(cores, threads)
    machine.shared.look()
    machine.run(LOOK_EVERY_S, others=others, ours=ours)
    assert machine.chosen == ([] if chosen is None else [chosen])


def test_threads_come_back_when_the_other_program_ends() -> None:
    machine = Machine(2, 2)
    machine.shared.look()
    for others in (1.0, 1.0, 0.0):
        machine.run(LOOK_EVERY_S, others=others, ours=1.0)
    assert machine.chosen == [1, 1, 2]


def test_it_looks_no_more_often_than_the_system_counts() -> None:
    machine = Machine(2, 2)
    machine.shared.look()
    for _ in range(50):
        machine.run(LOOK_EVERY_S / 50.5, others=1.0, ours=1.0)
    assert (machine.asked, machine.chosen) == (1, [])


def test_what_ran_between_two_answers_says_nothing_of_now() -> None:
    machine = Machine(2, 2)
    machine.shared.look()
    machine.run(3600.0, others=2.0, ours=0.0)
    assert machine.chosen == []
    machine.run(LOOK_EVERY_S, others=0.0, ours=2.0)
    assert machine.chosen == [2]


def test_only_cores_open_to_this_process_count(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [SimpleNamespace(user=10.0 * core, system=1.0, idle=500.0) for core in range(1, 5)]
    monkeypatch.setattr(thread_sharing.psutil, "cpu_times", lambda percpu: times)
    monkeypatch.setattr(thread_sharing.os, "sched_getaffinity", lambda process: {1, 3}, raising=False)
    assert thread_sharing.core_seconds() == (62.0, 2)
    monkeypatch.delattr(thread_sharing.os, "sched_getaffinity")  # Windows
    assert thread_sharing.core_seconds() == (104.0, 4)


def test_this_system_tells_both_times() -> None:
    (busy, cores), own = thread_sharing.core_seconds(), thread_sharing.own_seconds()
    assert cores >= 1
    assert busy >= own > 0


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 300])
def test_another_number_of_threads_computes_the_same_numbers(rows: int, wide: bool) -> None:
    """Large enough for the work to be shared out; few rows and many, as kept and in float32."""
    backend = CpuBackend(
        torch.float32 if wide else torch.bfloat16,
        storage=torch.bfloat16,
        native=native_attention(cpu_flags()),
        products=native_products(cpu_flags()),
    )
    made = torch.Generator().manual_seed(5)
    q, k, v = (
        torch.randn(size, generator=made) for size in ((rows, 6, 64), (4, 2, 512, 64), (4, 2, 512, 64))
    )
    q, k, v = q.to(backend.dtype), k.bfloat16(), v.bfloat16()
    layer = backend.linear(torch.randn(1536, 384, generator=made))
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            mixed = backend.attend(q, k, v, length=1900, causal=True)
            found.append((mixed, layer(mixed.reshape(rows, 384))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
