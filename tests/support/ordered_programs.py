"""What runs on a card by imitation while accesses to shared memory are watched: a conversation, passes beside
the CPU, rounds with its share.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from core.backend.cuda.backend import CudaBackend
from core.cache.base import KVShape
from core.cache.disk import SnapshotFolder
from core.cache.offloaded import OffloadedKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.segment import SegmentSizes
from core.cache.snapshot import SnapshotStore
from tests.support.fake_cuda import FakeCuda, SteppedWorker
from tests.support.happens import Races

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


def races_in(program: Callable[..., None], cuda: FakeCuda, *more: object) -> Races:
    """What is found while it runs and when its memory is given back."""
    with torch.inference_mode(), Races(cuda) as races:
        program(cuda, races, *more)
        gc.collect()
    return races
