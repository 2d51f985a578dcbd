"""The offloaded cache against the full one: the same rows bit for bit, the same attention, and exactly the
bytes it must move.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.backend.cpu.backend import CpuBackend
from core.backend.shared.kv_rows import as_rows
from core.cache import offloaded as offloaded_module
from core.cache.base import KVShape, KVStore
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache, host_pieces
from core.cache.retrieval import RetrievalKVCache
from core.cache.segment import SegmentSizes
from tests.support.late_cache import LateBackend, LateCopies
from tests.tiers import first

SHAPE, HEADS = KVShape(layers=3, kv_heads=2, head_dim=8), 4
BLOCK, CAPACITY, FRESH = 16, 112, 6
# rows of the numbers computed with, and of others
ROWS = [torch.float32, torch.bfloat16, torch.int8]
# (layers that keep blocks on the device, how many blocks each): none, some layers, all layers; the first
# blocks of every layer. Swept: the past of a segment streams too
SPLITS = {
    "none": (0, None),
    "one layer": (1, None),
    "all layers": (3, None),
    "two blocks of each": (3, 2),
    "a block of two": (2, 1),
    "none, swept": (0, None),
    "one layer, swept": (1, None),
    "a block of two, swept": (2, 1),
}
SHARES = (0.0, 0.4, 1.0)  # of what lies in host memory, that the CPU attends to
SWEPT = SegmentSizes(tokens=CAPACITY, heads=HEADS, step=4)


def offloaded(
    split: str, *, backend: CpuBackend | None = None, staging: int = 2, dtype: torch.dtype = torch.float32
) -> OffloadedKVCache:
    layers, blocks = SPLITS[split]
    return OffloadedKVCache(
        SHAPE,
        CAPACITY,
        backend or LateBackend(),
        block_tokens=BLOCK,
        resident_layers=layers,
        resident_blocks=blocks,
        staging_blocks=staging,
        fresh_tokens=FRESH,
        swept=SWEPT if split.endswith("swept") else None,
        dtype=dtype,
    )


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("split", SPLITS)
def test_what_is_made_ready_is_what_a_cache_takes(
    split: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    """A piece of another size would be made a second time, without a word, behind the first."""
    taken: list[int] = []
    backend, take = LateBackend(), CpuBackend.host_memory

    def host_memory(self: CpuBackend, shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
        memory = take(self, shape, kind)
        taken.append(memory.nbytes)
        return memory

    monkeypatch.setattr(CpuBackend, "host_memory", host_memory)
    offloaded(split, backend=backend, dtype=dtype)
    layers, blocks = SPLITS[split]
    sizes = {"block_tokens": BLOCK, "resident_layers": layers, "resident_blocks": blocks}
    wanted = host_pieces(SHAPE, CAPACITY, **sizes, fresh_tokens=FRESH, dtype=dtype)
    assert wanted == [nbytes for nbytes in taken if nbytes]
    assert len(wanted) == (0 if split == "all layers" else 2 * (3 if layers in (0, 2) or blocks else 2) + 2)


class Twins:
    """An offloaded cache and a full one that get the same rows, and must show the same."""

    def __init__(self, cache: OffloadedKVCache) -> None:
        self.cache, self.dtype = cache, cache.dtype
        self.full = FullKVCache(SHAPE, CAPACITY, CpuBackend(), block_tokens=BLOCK, dtype=self.dtype)
        self._dice = torch.Generator().manual_seed(1)

    def feed(self, n: int, *, chunk: int | None = None, layers: int = SHAPE.layers) -> None:
        """A pass of n rows; with `chunk` a segment in such chunks; with fewer layers it is broken off, and
        nobody advances.
        """
        if chunk:
            self.cache.begin_segment()
        for layer in range(layers):
            swept = chunk and layer in self.cache.swept_layers
            found = []
            for start in range(0, n, chunk or n):
                rows = min(chunk or n, n - start)
                q = torch.randn(rows, HEADS, SHAPE.head_dim, generator=self._dice)
                k, v = (
                    torch.randn(rows, SHAPE.kv_heads, SHAPE.head_dim, generator=self._dice) for _ in range(2)
                )
                attend = self.cache.attend_later if swept else self.cache.attend
                got = attend(layer, q, k, v, offset=start)
                found.append((start, got, self.full.attend(layer, q, k, v, offset=start)))
            for start, got, want in found:
                if swept:
                    got = self.cache.attended(layer, start, len(want))
                assert torch.allclose(got, want, atol=1e-5), (
                    f"layer {layer}, rows from {self.full.length + start}"
                )
        if layers == SHAPE.layers:
            for cache in (self.cache, self.full):
                cache.advance(n)

    def cut(self, length: int, *, commit: bool = False) -> None:
        for cache in (self.cache, self.full):
            (cache.commit if commit else cache.rollback)(length)

    def compare(self) -> None:
        """Every row of every layer, by each of the ways out."""
        n = self.full.length
        assert (self.cache.length, self.cache.committed) == (n, self.full.committed)
        if n == 0:
            return
        stores = []
        for cache in (self.cache, self.full):
            stores.append(
                KVStore(SHAPE, CAPACITY, block_tokens=CAPACITY, dtype=self.dtype, device=torch.device("cpu"))
            )
            cache.copy_rows(stores[-1], 0, 0, n)
        assert torch.equal(stores[0].k, stores[1].k) and torch.equal(stores[0].v, stores[1].v)
        for layer in range(SHAPE.layers):
            for got, want in zip(self.cache.rows(layer, 0, n), self.full.rows(layer, 0, n), strict=True):
                assert torch.equal(got, want)


STEPS = st.one_of(
    st.tuples(st.just("pass"), st.integers(1, FRESH + 3), st.none()),
    st.tuples(st.just("segment"), st.integers(1, 40), st.sampled_from([1, 3, 7, 16, 64])),
    st.tuples(
        st.sampled_from(["broken pass", "rollback", "commit", "compare", "newest", "rewrite", "share"]),
        st.integers(1, 20),
        st.none(),
    ),
    st.tuples(st.just("broken segment"), st.integers(1, 40), st.sampled_from([3, 16])),
)


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("split", first(SPLITS))
@settings(max_examples=20, deadline=None)
@given(steps=st.lists(STEPS, max_size=14))
# rows of a broken segment, still on their way to the host, behind a broken pass
@example([("broken segment", 17, 3), ("broken pass", 1, None), ("rewrite", 1, None), ("rewrite", 16, None)])
def test_any_sequence_equals_the_full_cache(
    split: str, dtype: torch.dtype, steps: list[tuple[str, int, int | None]]
):
    """Rows lost between device and host, blocks read before they arrive, rows of a pass that was rolled back
    or broken off.
    """
    twins = Twins(offloaded(split, dtype=dtype))
    for op, n, chunk in steps:
        length = twins.full.length
        if op in ("pass", "segment") and length + n <= CAPACITY:
            twins.feed(n, chunk=chunk)
        elif op in ("broken pass", "broken segment") and length + n <= CAPACITY:
            twins.feed(n, chunk=chunk, layers=2)
        elif op == "rollback":
            twins.cut(max(0, length - n))
        elif op == "commit":
            twins.cut(max(twins.full.committed, length - n), commit=True)
        elif op == "compare":
            twins.compare()
        elif op == "share":
            twins.cache.attend_on_host(SHARES[n % len(SHARES)])
        elif op == "newest" and length:
            newest_rows_arrive(twins, min(n, length))
        elif op == "rewrite" and length + n <= CAPACITY:
            restore(twins, n)
    twins.compare()


def newest_rows_arrive(twins: Twins, n: int) -> None:
    """What the retrieval cache does at each commit."""
    stores = [
        KVStore(SHAPE, 32, block_tokens=32, dtype=dtype, device=torch.device("cpu"))
        for dtype in (twins.dtype, twins.dtype)
    ]
    for cache, store in zip((twins.cache, twins.full), stores, strict=True):
        cache.copy_rows(store, twins.full.length - n, 5, n)
    assert torch.equal(stores[0].k, stores[1].k) and torch.equal(stores[0].v, stores[1].v)


def restore(twins: Twins, n: int) -> None:
    """What loading a snapshot does: rows are written, then counted."""
    dice = torch.Generator().manual_seed(n)
    for layer in range(SHAPE.layers):
        k, v = (torch.randn(n, SHAPE.kv_heads, SHAPE.head_dim, generator=dice) for _ in range(2))
        k, v = (as_rows(part, SHAPE.head_dim, twins.dtype) for part in (k, v))
        for cache in (twins.cache, twins.full):
            cache.write(layer, twins.full.length, k, v)
    for cache in (twins.cache, twins.full):
        cache.advance(n)
    twins.cut(twins.full.length, commit=True)


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("staging", [1, 2, 9])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 48, 63])
@pytest.mark.parametrize("split", SPLITS)
def test_a_short_pass_moves_the_filled_blocks_once(split: str, length: int, staging: int, dtype: torch.dtype):
    """Neither the empty rest of a block nor a block twice, whatever the ring's length; and what it moves is
    right.
    """
    twins = Twins(offloaded(split, staging=staging, dtype=dtype))
    twins.feed(length, chunk=8)
    layers, blocks = SPLITS[split]
    resident = min(length, CAPACITY if blocks is None else blocks * BLOCK)
    away = SHAPE.layers * length - layers * resident
    for n in (1, FRESH):
        before = twins.cache.bytes_moved
        twins.feed(n)
        assert twins.cache.bytes_moved - before == away * SHAPE.token_bytes(dtype)
        twins.cut(length)
    twins.compare()


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_segment_moves_nothing_of_its_own_to_the_device(split: str, dtype: torch.dtype):
    """The first segment moves nothing at all, a later one the earlier rows once per layer; to the host every
    row goes once.
    """
    twins = Twins(offloaded(split, dtype=dtype))
    layers, blocks = SPLITS[split]
    kept = CAPACITY if blocks is None else blocks * BLOCK

    def away(rows: int) -> int:
        return (SHAPE.layers * rows - layers * min(rows, kept)) * SHAPE.token_bytes(dtype)

    copies = twins.cache._copies
    for before, n, chunk in ((0, 40, 7), (40, 30, 16), (70, 20, 64)):
        moved, stored = copies.bytes_to_device, copies.bytes_to_host
        twins.feed(n, chunk=chunk)
        assert copies.bytes_to_device - moved == away(before)
        assert copies.bytes_to_host - stored == away(before + n) - away(before)
    twins.compare()


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("share", [0.4, 1.0])
@pytest.mark.parametrize("length", [3, 100])
@pytest.mark.parametrize("split", SPLITS)
def test_the_cpu_attends_to_its_share_and_the_rest_crosses_the_bus(
    split: str, length: int, share: float, dtype: torch.dtype
):
    """The oldest rows in host memory, whole blocks or not; what it found, late, is joined to the rest."""
    twins = Twins(offloaded(split, dtype=dtype))
    twins.feed(length, chunk=8)
    layers, blocks = SPLITS[split]
    resident = min(length, CAPACITY if blocks is None else blocks * BLOCK)
    aways = [length - resident if layer < layers else length for layer in range(SHAPE.layers)]
    of_host = [away if share == 1.0 else int(share * away) // 4 * 4 for away in aways]
    twins.cache.attend_on_host(share)
    for n in (1, FRESH):
        before, asked = twins.cache.bytes_moved, twins.cache._on_host.questions
        twins.feed(n)
        assert twins.cache.bytes_moved - before == (sum(aways) - sum(of_host)) * SHAPE.token_bytes(dtype)
        assert twins.cache._on_host.questions - asked == sum(rows > 0 for rows in of_host)
        twins.cut(length)
    twins.compare()


def test_keys_that_are_looked_at_all_cross_the_bus():
    """Who chooses by them sees them on the device."""
    twins, seen = Twins(offloaded("none")), []
    twins.feed(40, chunk=8)
    twins.cache.attend_on_host(1.0)
    twins.cache.observer = lambda layer, q, k, *, start, length, own: seen.append(length - own)
    twins.feed(2)
    assert sum(seen) == SHAPE.layers * 40 and twins.cache._on_host.questions == 0


class Order(LateBackend):
    """Notes in which order copies to the device and attentions are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def copies(self) -> LateCopies:
        copies, ask = super().copies(), self.asked

        def noted(target: torch.Tensor, source: torch.Tensor) -> None:
            ask.append("fetch")
            LateCopies.to_device(copies, target, source)

        copies.to_device = noted
        return copies

    def attend(self, *args: torch.Tensor, **more: object) -> torch.Tensor:
        self.asked.append("all rows")
        return super().attend(*args, **more)

    def attend_part(self, *args: object, causal: bool, **more: object) -> tuple[torch.Tensor, torch.Tensor]:
        self.asked.append("own rows" if causal else "block")
        return super().attend_part(*args, causal=causal, **more)


def test_the_bus_does_not_wait_for_the_layers():
    """The ring is filled before the first layer, resident or not, and each buffer again right after its
    reader, across layers.
    """
    backend = Order()
    twins = Twins(offloaded("one layer", backend=backend, staging=3))
    twins.feed(64, chunk=64)
    backend.asked.clear()
    twins.feed(2)
    fetch = ["fetch"] * 2  # keys and values
    refilled = ["block", *fetch]
    resident, second, third = (
        ["all rows"],
        ["own rows", *refilled * 4],
        ["own rows", *refilled, *["block"] * 3],
    )
    assert backend.asked == [*fetch * 3, *resident, *second, *third]


# ---- the retrieval cache over it ---------------------------------------------------------------------------


def retrieval(source: OffloadedKVCache | FullKVCache) -> RetrievalKVCache:
    return RetrievalKVCache(source, budget=24, chunk=4, recent=8, tail_tokens=16, slack=16)


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("length", [37, 64, 83])
def test_the_same_chunks_are_chosen_wherever_the_keys_lie(split: str, length: int, dtype: torch.dtype):
    """By the end of a prefill, by a verification part by part, and after rows were rolled back; the chosen
    rows are the exact ones.
    """
    twins = Twins(offloaded(split, dtype=dtype))
    views = retrieval(twins.cache), retrieval(twins.full)
    for cache, view in zip((twins.cache, twins.full), views, strict=True):
        cache.observer = view.policy.tap
    twins.feed(length, chunk=64)
    twins.cut(length, commit=True)
    same_selection(views)
    for cache, view in zip((twins.cache, twins.full), views, strict=True):
        cache.observer = view.policy.observe
    twins.feed(5)
    twins.cut(length + 2, commit=True)
    for view in views:
        view.commit(length + 2)
    equal_stores(views)
    same_selection(views)


def same_selection(views: tuple[RetrievalKVCache, RetrievalKVCache]) -> None:
    assert [view.refresh() for view in views] == [True, True]
    equal_stores(views)


def equal_stores(views: tuple[RetrievalKVCache, RetrievalKVCache]) -> None:
    (got, want), end = views, views[1]._slot(views[1].length)
    assert got.length == want.length
    for one, other in ((got.store.k, want.store.k), (got.store.v, want.store.v)):
        assert torch.equal(one[:, 0, :, :end], other[:, 0, :, :end])


@pytest.mark.parametrize(("before", "after"), [("one layer", SWEPT), ("one layer, swept", None)])
def test_a_cache_that_gives_way_may_change_its_way(before: str, after: SegmentSizes | None):
    """The plan with less room has other segments: what is read stays, the next segment has room."""
    twins = Twins(offloaded(before))
    twins.feed(37, chunk=16)
    twins.cut(37, commit=True)
    twins.cache.keep_on_device(0, swept=after)
    assert len(twins.cache.swept_layers) == (SHAPE.layers if after else 0)
    twins.feed(40, chunk=16)
    twins.cut(77, commit=True)
    twins.feed(3)
    twins.compare()


def test_the_chosen_rows_alone_cross_the_bus():
    """A selection from host memory is gathered there: budget and recent rows of the streamed layers, no
    block.
    """
    twins = Twins(offloaded("one layer"))
    view = retrieval(twins.cache)
    twins.cache.observer = view.policy.tap
    twins.feed(64, chunk=64)
    twins.cut(64, commit=True)
    before = twins.cache.bytes_moved
    assert view.refresh()
    recent = view.length - view.oldest_rollback
    assert twins.cache.bytes_moved - before == 2 * (24 + recent) * SHAPE.token_bytes(torch.float32)


def test_a_row_beyond_the_capacity_is_an_error():
    """Not a row that silently overwrites another."""
    twins = Twins(offloaded("none"))
    twins.feed(CAPACITY, chunk=64)
    with pytest.raises(AssertionError, match="113"):
        twins.feed(1)


@pytest.fixture(autouse=True)
def fine_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cache of a few blocks."""
    monkeypatch.setattr(offloaded_module, "_SHARE_STEP", 4)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As in the worker."""
    with torch.inference_mode():
        yield
