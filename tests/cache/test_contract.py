"""Any sequence of feeding, rolling back, committing, refreshing and resetting equals the history replayed on
a plain list.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.backend.cpu.backend import CpuBackend
from core.backend.shared.kv_rows import as_rows, dequantized
from core.cache.base import KVShape
from core.cache.disk import GB, SnapshotFolder
from core.cache.full import FullKVCache
from core.cache.retrieval import RetrievalKVCache
from core.cache.snapshot import SnapshotStore
from core.cache.streaming import StreamingKVCache

SHAPE = KVShape(layers=1, kv_heads=2, head_dim=8)
SINKS, WINDOW = 3, 6
ROWS = [torch.float32, torch.bfloat16, torch.int8]  # of the numbers computed with, and of others
OPS = st.lists(
    st.tuples(st.sampled_from(["feed", "feed", "rollback", "commit", "refresh", "reset"]), st.integers(1, 7)),
    max_size=25,
)
Row = tuple[torch.Tensor, torch.Tensor]


def _kept_as_they_are(layer: int, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """A rotation that leaves keys alone."""
    return x


def rows(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [n, 4, 8]; k, v [n, 2, 8]"""
    dice = torch.Generator().manual_seed(seed)
    return (torch.randn(n, 4, 8, generator=dice), *(torch.randn(n, 2, 8, generator=dice) for _ in range(2)))


def replayed(q: torch.Tensor, seen: list[Row]) -> torch.Tensor:
    """Attention of one query [4, 8] over a plain list of rows, fp64."""
    out = []
    for head in range(4):
        k = torch.stack([row[0][head // 2] for row in seen]).double()
        v = torch.stack([row[1][head // 2] for row in seen]).double()
        out.append(torch.softmax(k @ q[head].double() / 8**0.5, 0) @ v)
    return torch.stack(out)


def kept(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What numbers [n, heads, head_dim] are once they were rows of this type."""
    return dequantized(as_rows(x, SHAPE.head_dim, dtype), SHAPE.head_dim, torch.float32)


def feed(cache: object, history: list[Row], n: int, seed: int, dtype: torch.dtype = torch.float32) -> None:
    """Feeds n rows and compares what each of them sees: rows as the cache keeps them, its own among them."""
    q, k, v = rows(n, seed)
    got = cache.attend(0, q, k, v)
    cache.advance(n)
    k, v = kept(k, dtype), kept(v, dtype)
    for i in range(n):
        history.append((k[i], v[i]))
        assert torch.allclose(got[i].double(), replayed(q[i], history), atol=1e-5), (
            f"row {i} of {n} saw another history"
        )


class Plain:
    """The list that a streaming or full cache must equal."""

    def __init__(self, sinks: int | None) -> None:
        self.sinks, self.rows, self.evicted, self.committed = sinks, [], 0, 0

    @property
    def length(self) -> int:
        return len(self.rows) + self.evicted

    def rollback(self, length: int) -> None:
        del self.rows[length - self.evicted :]
        self.committed = min(self.committed, length)

    def commit(self, length: int) -> None:
        self.rollback(length)
        self.committed = length
        while self.sinks is not None and len(self.rows) > SINKS + WINDOW:
            del self.rows[SINKS]
            self.evicted += 1


@pytest.mark.parametrize(
    ("kind", "dtype"), [*(("streaming", one) for one in ROWS[:2]), *(("full", one) for one in ROWS)]
)
@settings(max_examples=40, deadline=None)
@given(ops=OPS)
def test_any_sequence_equals_the_list(kind: str, dtype: torch.dtype, ops: list[tuple[str, int]]):
    """Rows of a rejected draft that shine through, rows lost by an eviction, lengths that drift, rows that
    are seen before they are what the cache keeps.
    """
    cache = {
        "full": lambda: FullKVCache(SHAPE, 256, CpuBackend(), block_tokens=16, dtype=dtype),
        "streaming": lambda: StreamingKVCache(
            SHAPE, CpuBackend(storage=dtype), _kept_as_they_are, sinks=SINKS, window=WINDOW, slack=200
        ),
    }[kind]()
    plain = Plain(SINKS if kind == "streaming" else None)
    for step, (op, n) in enumerate(ops):
        if op == "feed":
            feed(cache, plain.rows, n, step, dtype)
        elif op == "reset":
            cache.reset()
            plain = Plain(plain.sinks)
        elif op == "rollback":
            length = max(cache.oldest_rollback, cache.length - n)
            cache.rollback(length)
            plain.rollback(length)
        elif op == "commit":
            length = max(cache.committed, cache.length - n + 1)
            cache.commit(length)
            plain.commit(length)
        assert (cache.length, cache.committed) == (plain.length, plain.committed)
    feed(cache, plain.rows, 3, 999, dtype)


@settings(max_examples=25, deadline=None)
@given(
    ops=st.lists(
        st.tuples(
            st.sampled_from(["feed", "feed", "rollback", "commit", "save", "load"]), st.integers(1, 60)
        ),
        max_size=14,
    )
)
def test_any_sequence_with_a_disk_equals_the_list(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, int]]
):
    """A cache saved at any moment and another one loaded go on as if nothing had happened; a text that was
    rolled back and went another way finds what is stored of their common beginning, never rows of the other
    text."""
    disk = SnapshotStore(
        SnapshotFolder(tmp_path_factory.mktemp("disk")), "model", SHAPE, torch.float32, quota_bytes=GB
    )
    cache, history, ids = FullKVCache(SHAPE, 900, CpuBackend(), block_tokens=16), [], []
    for step, (op, n) in enumerate(ops):
        if op == "feed":
            q, k, v = rows(n, step)
            got = cache.attend(0, q, k, v)
            cache.advance(n)
            history += zip(k, v, strict=True)
            ids += range(1_000 * step, 1_000 * step + n)
            assert torch.allclose(got[-1].double(), replayed(q[-1], history), atol=1e-5)
        elif op in ("rollback", "commit"):
            length = max(0 if op == "rollback" else cache.committed, cache.length - n)
            getattr(cache, op)(length)
            del history[length:], ids[length:]
        elif op == "save":
            assert disk.save("book", ids, cache)
            assert len(ids) - 32 <= disk.longest("book", ids) <= len(ids)
        else:
            cache = FullKVCache(SHAPE, 900, CpuBackend(), block_tokens=16)
            held = max([0, *disk.load("book", ids, cache, start=0)])
            cache.advance(held)
            cache.commit(held)
            del history[held:], ids[held:]
        assert cache.length == len(history) == len(ids)
    feed(cache, history, 2, 999)


@settings(max_examples=40, deadline=None)
@given(ops=OPS)
def test_retrieval_with_room_for_everything_equals_the_full_cache(ops: list[tuple[str, int]]):
    """Selected chunks and the tail together are the history: after every commit exact rows stand where
    speculative ones were.
    """
    source = FullKVCache(SHAPE, 256, CpuBackend(), block_tokens=16)
    cache = RetrievalKVCache(source, budget=192, chunk=4, recent=4, tail_tokens=200, slack=60)
    history: list[Row] = []
    source.observer = cache.policy.observe
    feed(source, history, 9, 500)
    source.commit(9)
    assert cache.refresh() and cache.length == 9
    for step, (op, n) in enumerate(ops):
        speculative = list(history)
        if op in ("feed", "commit"):
            feed(cache, speculative, n, step)  # the draft: rows of a partial context
        if op == "rollback":
            cache.rollback(max(cache.committed, cache.length - n))
        if op == "commit":
            feed(source, history, n, 1000 + step)  # the verification: exact rows
            source.commit(source.length)
            cache.commit(source.length)
        if op == "refresh":
            cache.rollback(cache.committed)
            assert cache.refresh() in (True, False)
        if op == "feed":
            cache.rollback(cache.committed)
        assert cache.length == source.length == len(history)
    feed(cache, list(history), 3, 999)


def stale_tail(kind: type[RetrievalKVCache]) -> float:
    """How far the retrieval cache's view is from the exact rows after a commit."""
    source = FullKVCache(SHAPE, 64, CpuBackend(), block_tokens=16)
    cache = kind(source, budget=64, chunk=4, recent=4, tail_tokens=32)
    source.observer = cache.policy.observe
    history: list[Row] = []
    feed(source, history, 10, 1)
    source.commit(10)
    cache.refresh()
    feed(cache, list(history), 3, 2)
    feed(source, history, 3, 3)
    source.commit(13)
    cache.commit(13)
    q, k, v = rows(1, 4)
    return float((cache.attend(0, q, k, v)[0] - replayed(q[0], [*history, (k[0], v[0])])).abs().max())


class KeepsSpeculativeRows(RetrievalKVCache):
    """The mutant: a stale retrieval tail. The law stays right, acceptance falls."""

    def commit(self, length: int) -> None:
        if not self.ready:
            super().commit(length)
        self.length = self.committed = length


def test_a_stale_retrieval_tail_is_caught():
    """Rows computed by a draft must give way to the verification's."""
    assert stale_tail(RetrievalKVCache) < 1e-5
    assert stale_tail(KeepsSpeculativeRows) > 1e-2


def test_a_streaming_cache_jumps_a_long_gap():
    """A book is not read by the draft: only the sinks and the newest window are, and no more than it can hold
    at once.
    """
    cache = StreamingKVCache(SHAPE, CpuBackend(), _kept_as_they_are, sinks=SINKS, window=WINDOW, slack=8)
    fed: list[int] = []
    for piece in cache.missing(1_000):
        fed.extend(piece)
        _, k, v = rows(len(piece), 1)
        cache.attend(0, rows(len(piece), 2)[0], k, v)
        cache.advance(len(piece))
        cache.commit(cache.length)
    assert fed[:SINKS] == list(range(SINKS))
    assert set(fed[SINKS:]) | set(range(cache.length, 1_000)) == set(range(1_000 - WINDOW, 1_000))
    assert cache.kept <= SINKS + WINDOW


@pytest.mark.parametrize("length", [-1, 5])
def test_rolling_back_beyond_what_is_there_is_an_error(length: int):
    """A silent clamp would hide a wrong count."""
    cache = FullKVCache(SHAPE, 16, CpuBackend(), block_tokens=16)
    feed(cache, [], 4, 0)
    with pytest.raises(ValueError, match="roll"):
        cache.rollback(length)


class SeesItsOwnBeforeTheyAreKept(FullKVCache):
    """The mutant: a pass's own rows are attended to as they were computed, and kept as codes."""

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, offset: int = 0
    ) -> torch.Tensor:
        start, n = self.length + offset, k.shape[0]
        super().attend(layer, q, k, v, offset=offset)
        past = [dequantized(part, SHAPE.head_dim, q.dtype) for part in self.store.rows(layer, 0, start)]
        seen = (torch.cat(pair).transpose(0, 1)[None] for pair in zip(past, (k, v), strict=True))
        return self.backend.attend(q, *seen, length=start + n, causal=True)


@pytest.mark.parametrize("n", [1, 5, 60])
def test_own_rows_are_seen_as_they_are_kept(n: int):
    """Of one token, of a draft, of a chunk of a prefill: else the first pass over a token and all later ones
    follow different laws, and what is verified is not what plain decoding reads.
    """

    def off(kind: type[FullKVCache]) -> float:
        cache, (q, k, v) = kind(SHAPE, 96, CpuBackend(), block_tokens=16, dtype=torch.int8), rows(n, n)
        got, seen = cache.attend(0, q, k, v), [kept(part, torch.int8) for part in (k, v)]
        history = list(zip(*seen, strict=True))
        return max(float((got[i] - replayed(q[i], history[: i + 1])).abs().max()) for i in range(n))

    assert off(FullKVCache) < 1e-5
    assert off(SeesItsOwnBeforeTheyAreKept) > 1e-3
