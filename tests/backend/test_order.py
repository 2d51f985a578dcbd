"""The order of copies and computation on a card, without one: every access to the memory that both use is
ordered, and each slip in that order is found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.backend.cuda.streams import CudaCopies, CudaHostAttention, contiguous_runs
from core.cache import offloaded as offloaded_module
from core.cache.host import HostBlocks, RowGather
from core.cache.offloaded import OffloadedKVCache
from tests.support.fake_cuda import FakeCuda
from tests.support.happens import Races
from tests.support.ordered_programs import (
    KINDS,
    SPLITS,
    Card,
    a_conversation,
    beside_the_cpu,
    races_in,
    rounds_with_a_share,
)
from tests.tiers import first


@pytest.fixture(autouse=True)
def fine_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cache of a few blocks."""
    monkeypatch.setattr(offloaded_module, "_SHARE_STEP", 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.wide
def test_everything_that_is_shared_is_ordered(cuda: FakeCuda, tmp_path: Path, split: str, kind: str):
    """A block read before it arrived or refilled under its reader, rows fetched by the host before they
    landed, memory given back under a copy.
    """
    races = races_in(a_conversation, cuda, tmp_path, split, kind)
    assert races.found == []
    assert races.accesses > 3000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
def test_what_the_cpu_reads_and_finds_is_ordered(cuda: FakeCuda, split: str, kind: str):
    """A thread of its own beside the one that launches, and two streams."""
    races = races_in(beside_the_cpu, cuda, split, kind)
    assert races.found == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
def test_rounds_with_a_share_are_ordered(cuda: FakeCuda, split: str, kind: str):
    """What the CPU reads beside blocks on the bus, rows that land and chunks that are gathered."""
    races = races_in(rounds_with_a_share, cuda, split, kind)
    assert races.found == []
    assert races.accesses > 3000


# ---- each slip is found ------------------------------------------------------------------------------------


def no_order_behind_the_computation(self: CudaCopies, target: torch.Tensor, source: torch.Tensor) -> None:
    """A copy starts at once: a buffer is refilled under its reader."""
    with torch.cuda.stream(self._stream):
        for into, rows in contiguous_runs(target, source):
            into.copy_(rows, non_blocking=True)


def nothing(self: CudaCopies, mark: object) -> None:
    """Neither computation nor host waits."""


def marked_on_the_wrong_stream(self: CudaCopies) -> object:
    """The place behind the computation, not behind the copies."""
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(self._device))
    return event


def marked_too_early(self: CudaCopies) -> object:
    """The place before the last copy."""
    before, self.last = getattr(self, "last", None), torch.cuda.Event()
    self.last.record(self._stream)
    return before or self.last


def gathered_without_looking(self: RowGather, source: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The staging buffer is filled again while its last copy may still read it."""
    self._read = [self._copies.mark()] * 2
    self._copies.finish, finish = lambda mark: None, self._copies.finish
    try:
        return _gather(self, source, index)
    finally:
        self._copies.finish = finish


_gather = RowGather.__call__


def stored_past_the_copies(
    self: HostBlocks, block: int, inside: int, k: torch.Tensor, v: torch.Tensor
) -> None:
    """The host writes rows itself, without waiting for what computes them."""
    for target, source in zip(self.block(block), (k, v), strict=True):
        target[:, inside : inside + source.shape[1]] = source


def fetched_past_the_copies(
    self: HostBlocks, block: int, inside: int, k: torch.Tensor, v: torch.Tensor
) -> None:
    """The computation's stream copies itself, past the order of the others: what lands late is missed."""
    with torch.cuda.stream(torch.cuda.Stream()):
        for target, source in zip((k, v), self.block(block), strict=True):
            target.copy_(source[:, inside : inside + target.shape[1]])


def not_settled(self: OffloadedKVCache) -> None:
    """Rows are put into their places before they have landed."""
    finish, self._copies.finish = self._copies.finish, lambda mark: None
    try:
        _settle(self)
    finally:
        self._copies.finish = finish


_settle = OffloadedKVCache._settle


def hastily(verb: Callable[..., object]) -> Callable[..., object]:
    """A verb of the snapshots that does not wait for the copies of the last pass."""

    def called(self: OffloadedKVCache, *given: object) -> object:
        finish, self._copies.finish = self._copies.finish, lambda mark: None
        try:
            return verb(self, *given)
        finally:
            self._copies.finish = finish

    return called


def began_before_its_queries(
    self: CudaHostAttention, arrived: object, *rest: object, of: Callable[..., object]
) -> object:
    """The CPU does not wait for the copy."""
    return of(self, SimpleNamespace(synchronize=lambda: None), *rest)


def taken_too_early(self: CudaHostAttention) -> object:
    """Nobody waits for the CPU."""
    asked, self._asked = self._asked, SimpleNamespace(result=lambda: len(self._q))
    try:
        return _part(self)
    finally:
        self._asked = asked


def joined_too_early(self: CudaHostAttention) -> object:
    """The computation does not wait for what the CPU found to arrive."""
    current = torch.cuda.current_stream()
    current.wait_stream = lambda other: None
    try:
        return _part(self)
    finally:
        del current.wait_stream


def asked_too_early(self: CudaHostAttention, q: torch.Tensor, *keys: torch.Tensor, length: int) -> None:
    """Queries leave before they are computed."""
    self._down.wait_stream = lambda other: None
    try:
        _ask(self, q, *keys, length=length)
    finally:
        del self._down.wait_stream


_part, _ask, _answer = CudaHostAttention.part, CudaHostAttention.ask, CudaHostAttention._answer
_share_out = OffloadedKVCache._share_out


MUTANTS = {
    "a copy does not wait for the computation": (CudaCopies, "_copy", no_order_behind_the_computation),
    "the computation does not wait": (CudaCopies, "wait", nothing),
    "the host does not wait": (CudaCopies, "finish", nothing),
    "a mark on the wrong stream": (CudaCopies, "mark", marked_on_the_wrong_stream),
    "a mark too early": (CudaCopies, "mark", marked_too_early),
    "a gather that does not look": (RowGather, "__call__", gathered_without_looking),
    "the host stores rows itself": (HostBlocks, "store", stored_past_the_copies),
    "blocks fetched on a stream of their own": (HostBlocks, "fetch", fetched_past_the_copies),
    "settling without landing": (OffloadedKVCache, "_settle", not_settled),
    "a book is stored before its rows have landed": (
        OffloadedKVCache,
        "rows",
        hastily(OffloadedKVCache.rows),
    ),
    "a book is loaded under a copy": (OffloadedKVCache, "write", hastily(OffloadedKVCache.write)),
}


CPU_MUTANTS = {
    "the CPU begins before its queries are there": (
        CudaHostAttention,
        "_answer",
        partialmethod(began_before_its_queries, of=_answer),
    ),
    "a part is taken before it is found": (CudaHostAttention, "part", taken_too_early),
    "a part is joined before it is there": (CudaHostAttention, "part", joined_too_early),
    "queries leave before they are computed": (CudaHostAttention, "ask", asked_too_early),
    "the CPU reads rows that have not landed": (OffloadedKVCache, "_share_out", hastily(_share_out)),
    "rows are written where the CPU reads": (CudaHostAttention, "finish", lambda self: None),
}


@pytest.mark.parametrize("slip", CPU_MUTANTS)
def test_every_slip_beside_the_cpu_is_found(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, slip: str):
    """The third timeline: queries, what is read meanwhile, and what is found."""
    monkeypatch.setattr(*CPU_MUTANTS[slip])
    assert races_in(beside_the_cpu, cuda, "none").found != []


# the other two take a pass right behind a prefill, without a selection, or one broken off after its question
@pytest.mark.parametrize("slip", [slip for slip in CPU_MUTANTS if " rows " not in f" {slip} "])
def test_every_slip_in_rounds_with_a_share_is_found(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, slip: str
):
    """The rounds that people run, with nothing broken off inside a layer."""
    monkeypatch.setattr(*CPU_MUTANTS[slip])
    assert races_in(rounds_with_a_share, cuda, "none").found != []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slip", first(MUTANTS, 4))
def test_every_slip_in_the_order_is_found(
    cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slip: str, kind: str
):
    """The four that passed all tests of results, and more: a test of order that finds none proves nothing."""
    monkeypatch.setattr(*MUTANTS[slip])
    races = races_in(a_conversation, cuda, tmp_path, "one layer", kind)
    assert races.found != []


def test_memory_given_back_under_a_copy_is_found(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """Without the drain at the end of a cache its buffers serve others while copies still fill them."""

    def left_in_the_middle(cuda: FakeCuda, races: Races) -> None:
        card = Card(cuda, races)
        card.feed(20, chunk=7)
        card.feed(2, layers=2)

    assert races_in(left_in_the_middle, cuda).found == []
    monkeypatch.setattr(offloaded_module, "_drain", lambda copies: None)
    found = races_in(left_in_the_middle, cuda).found
    assert any("given" in race for race in found)


# which memory, and who does what to it, one after the other
PLANTED = {
    "a buffer refilled under its reader": ("device", "compute reads", "copy writes"),
    "a block read before it is there": ("device", "copy writes", "compute reads"),
    "two writers": ("device", "copy writes", "compute writes"),
    "rows copied before they are computed": ("device", "compute writes", "copy reads"),
    "rows read before they have landed": ("host", "copy writes", "host reads"),
    "rows changed under a copy": ("host", "copy reads", "host writes"),
}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", PLANTED)
def test_a_race_of_each_kind_is_found_and_none_where_there_is_order(cuda: FakeCuda, kind: str, ordered: bool):
    """Of bytes that meet; beside them, and of two readers, nothing is said."""
    memory, *both = PLANTED[kind]
    with Races(cuda) as races:
        ends = [(torch.zeros(16), races.is_host(torch.zeros(16))) for _ in both]
        shared = ends[0][memory == "host"]
        copy = torch.cuda.Stream()
        torch.cuda.synchronize()
        for place, access in enumerate(both):
            who, how = access.split()
            if place and ordered:
                torch.cuda.synchronize()
            for rows in (slice(0, 8), slice(8 + 3 * place, 11 + 3 * place)):
                act(cuda, copy, who, how, shared[rows], ends[1][memory == "device"][rows])
            act(cuda, copy, who, "reads", shared[15:], ends[1][memory == "device"][15:])
    assert len(races.found) == (0 if ordered else 1), races.found


def act(cuda: FakeCuda, copy: object, who: str, how: str, shared: torch.Tensor, own: torch.Tensor) -> None:
    """One access to shared memory; a copy's other end is its own."""
    if who != "copy":
        shared.fill_(1.0) if how == "writes" else shared.sum()
        return
    with torch.cuda.stream(copy):
        shared.copy_(own) if how == "writes" else own.copy_(shared)
