"""The order of copies and computation on a card, without one: every access to the memory that both use is
ordered, and each slip in that order is found.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core.backend.cuda.backend import CudaBackend
from core.backend.cuda.streams import CudaCopies, CudaHostAttention, contiguous_runs
from core.cache import offloaded as offloaded_module
from core.cache.base import KVShape
from core.cache.disk import SnapshotFolder
from core.cache.host import HostBlocks, RowGather
from core.cache.offloaded import OffloadedKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.segment import SegmentSizes
from core.cache.snapshot import SnapshotStore
from tests.support.fake_cuda import FakeCuda, SteppedWorker
from tests.support.happens import Races
from tests.tiers import first

SHAPE, HEADS = KVShape(layers=3, kv_heads=2, head_dim=4), 4
BLOCK, CAPACITY, FRESH = 8, 64, 6
SPLITS = {"none": (0, None), "one layer": (1, None), "a block of two": (2, 1)}
SWEPT = SegmentSizes(tokens=20, heads=HEADS, step=4)
KINDS = {
    "whole layers": (None, torch.float32),
    "swept layers": (SWEPT, torch.float32),
    "rows of codes": (None, torch.int8),
}


class Card:
    """The product's cache on a card whose order is watched."""

    def __init__(
        self, cuda: FakeCuda, races: Races, split: str = "one layer", kind: str = "whole layers"
    ) -> None:
        self.backend: CudaBackend = cuda.backend()
        self.races = races
        take = self.backend.host_memory
        self.backend.host_memory = lambda shape, dtype: races.is_host(take(shape, dtype))
        self.backend.host_attention()._worker = SteppedWorker(cuda)
        (layers, blocks), (swept, rows) = SPLITS[split], KINDS[kind]
        self.cache = OffloadedKVCache(
            SHAPE,
            CAPACITY,
            self.backend,
            block_tokens=BLOCK,
            resident_layers=layers,
            resident_blocks=blocks,
            staging_blocks=2,
            fresh_tokens=FRESH,
            swept=swept,
            dtype=rows,
        )

    def feed(self, n: int, *, chunk: int | None = None, layers: int = SHAPE.layers) -> None:
        """A pass, or with `chunk` a segment; with fewer layers it is broken off."""
        if chunk:
            self.cache.begin_segment()
        for layer in range(layers):
            swept = chunk and layer in self.cache.swept_layers
            attend = self.cache.attend_later if swept else self.cache.attend
            for start in range(0, n, chunk or n):
                rows = min(chunk or n, n - start)
                q = torch.randn(rows, HEADS, SHAPE.head_dim)
                k, v = (torch.randn(rows, SHAPE.kv_heads, SHAPE.head_dim) for _ in range(2))
                attend(layer, q, k, v, offset=start)
            if swept:
                self.cache.attended(layer, 0, n)
        if layers == SHAPE.layers:
            self.cache.advance(n)

    def break_inside_a_layer(self) -> None:
        """A short pass fails when the CPU was asked and nobody has taken what it found."""

        def full(*args: object, **how: object) -> None:
            raise RuntimeError

        self.backend.attend_part = full
        with pytest.raises(RuntimeError):
            self.feed(1)
        del self.backend.attend_part


def a_conversation(
    cuda: FakeCuda, races: Races, folder: Path, split: str = "one layer", kind: str = "whole layers"
) -> None:
    """All that is done with the caches: prefill in segments, verifications, selection, rollback, broken
    passes, storing and loading, a second book.
    """
    card = Card(cuda, races, split, kind)
    cache, view = card.cache, RetrievalKVCache(card.cache, budget=16, chunk=4, recent=8, tail_tokens=8)
    cache.observer = view.policy.tap
    card.feed(20, chunk=7)
    card.feed(13, chunk=6)
    cache.commit(33)
    assert view.refresh()
    cache.observer = view.policy.observe
    for kept in (35, 36, 40):
        card.feed(5)
        cache.commit(kept)
        view.commit(kept)
    assert view.refresh()
    card.feed(3, layers=2)
    cache.rollback(38)
    card.feed(9, chunk=4, layers=2)
    cache.rollback(38)
    card.feed(2)
    cache.commit(40)
    store = SnapshotStore(SnapshotFolder(folder), "tiny", SHAPE, KINDS[kind][1], quota_bytes=10**9)
    assert store.save("book", list(range(40)), cache)
    other = Card(cuda, races, split, kind)
    loaded(store, other.cache)
    other.feed(2)
    other.feed(2)
    other.cache.rollback(24)
    other.feed(12, chunk=8)
    other.cache.rollback(26)
    loaded(store, other.cache)
    other.feed(2)
    cache.reset()
    card.feed(16, chunk=8)
    card.feed(1)


def beside_the_cpu(
    cuda: FakeCuda, races: Races, split: str = "one layer", kind: str = "whole layers"
) -> None:
    """The CPU attends to a share and to everything, right behind a prefill, too, and in passes that are
    broken off, one of them before anybody took what it found.
    """
    card = Card(cuda, races, split, kind)
    card.feed(20, chunk=8)
    for share in (0.5, 1.0):
        card.cache.attend_on_host(share)
        card.feed(3)
        card.feed(2, layers=2)
        card.cache.rollback(17)
        card.feed(4)
        card.break_inside_a_layer()
        card.cache.rollback(17)
        card.feed(12, chunk=8)
        card.feed(2)


def rounds_with_a_share(
    cuda: FakeCuda, races: Races, split: str = "one layer", kind: str = "whole layers"
) -> None:
    """TriForce's rounds over a cache of which the CPU has a share: the newest rows go to the retrieval cache
    at each commit, some verifications are looked at and carry everything, a selection gathers from host
    memory, and another book follows.
    """
    card = Card(cuda, races, split, kind)
    cache, view = card.cache, RetrievalKVCache(card.cache, budget=16, chunk=4, recent=8, tail_tokens=8)
    for _book in range(2):
        cache.reset()
        view.reset()
        cache.observer = view.policy.tap
        card.feed(20, chunk=7)
        card.feed(13, chunk=6)
        cache.commit(33)
        assert view.refresh()
        cache.attend_on_host(0.5)
        for kept, looked_at in ((35, False), (36, True), (40, False), (43, False), (44, True), (46, False)):
            cache.observer = view.policy.observe if looked_at else None
            card.feed(5)
            cache.commit(kept)
            view.commit(kept)
            assert not looked_at or view.refresh()
        card.feed(4, layers=2)
        cache.rollback(45)
        card.feed(2)


def loaded(store: SnapshotStore, cache: OffloadedKVCache) -> None:
    """The rest of the book from the disk."""
    for length in store.load("book", list(range(40)), cache, start=cache.length):
        cache.advance(length - cache.length)
        cache.commit(length)


@pytest.fixture(autouse=True)
def fine_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cache of a few blocks."""
    monkeypatch.setattr(offloaded_module, "_SHARE_STEP", 4)


def races_in(program: Callable[..., None], cuda: FakeCuda, *more: object) -> Races:
    """What is found while it runs and when its memory is given back."""
    with torch.inference_mode(), Races(cuda) as races:
        program(cuda, races, *more)
        gc.collect()
    return races


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
    assert races_in(a_conversation, cuda, tmp_path, "one layer", kind).found != []


def test_memory_given_back_under_a_copy_is_found(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch):
    """Without the drain at the end of a cache its buffers serve others while copies still fill them."""

    def left_in_the_middle(cuda: FakeCuda, races: Races) -> None:
        card = Card(cuda, races)
        card.feed(20, chunk=7)
        card.feed(2, layers=2)

    assert races_in(left_in_the_middle, cuda).found == []
    monkeypatch.setattr(offloaded_module, "_drain", lambda copies: None)
    found = races_in(left_in_the_middle, cuda).found
    assert any("given back" in race for race in found)


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
