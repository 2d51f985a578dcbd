"""Windows: attention put together from parts against the definition, and caches of layers that have one."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.cache.base import KVShape
from core.cache.layered import LayeredKVCache
from core.cache.layered_retrieval import retrieval_over
from core.cache.retrieval import RetrievalKVCache
from core.cache.windows import WindowRows, attend_window
from tests.support.tiny import SHARED, VOCAB, oracle, ours, whole_cache

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
IDS = torch.randint(0, VOCAB, (160,), generator=torch.Generator().manual_seed(6)).tolist()


def rows(n: int, length: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [n, heads, head_dim]; k, v [1, kv_heads, length and some, head_dim]"""
    dice = torch.Generator().manual_seed(n + length)
    k, v = torch.randn(2, 1, KV_HEADS, length + 7, HEAD_DIM, generator=dice)
    return torch.randn(n, HEADS, HEAD_DIM, generator=dice), k, v


def by_definition(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, window: int
) -> torch.Tensor:
    """In fp64, with a mask."""
    k, v = (part[0, :, :length].double().repeat_interleave(HEADS // KV_HEADS, 0) for part in (k, v))
    own, keys = torch.arange(length - len(q), length)[:, None], torch.arange(length)
    scores = torch.einsum("nhd,hmd->hnm", q.double(), k) * HEAD_DIM**-0.5
    scores.masked_fill_((keys > own) | (keys <= own - window), -torch.inf)
    return torch.einsum("hnm,hmd->nhd", scores.softmax(-1), v)


@pytest.mark.parametrize("window", [2, 3, 16, 50, 64, 400])
@pytest.mark.parametrize(
    ("n", "length"),
    [(1, 1), (1, 300), (7, 7), (7, 300), (41, 41), (64, 65), (100, 100), (130, 300), (299, 300)],
)
def test_a_row_sees_its_window_and_nothing_else(n: int, length: int, window: int):
    """Rows of a short pass and of pieces, from the beginning of a text and behind much of it."""
    q, k, v = rows(n, length)
    found = attend_window(CpuBackend(), q, k, v, length=length, window=window)
    assert torch.allclose(found.double(), by_definition(q, k, v, length=length, window=window), atol=1e-5)


def test_a_row_among_few_has_the_bits_that_it_has_alone():
    n, length, window = SHORT_PASS_ROWS, 300, 48
    q, k, v = rows(n, length)
    found = attend_window(CpuBackend(), q, k, v, length=length, window=window)
    for row in range(n):
        end = length - n + row + 1
        alone = attend_window(CpuBackend(), q[row : row + 1], k, v, length=end, window=window)
        assert torch.equal(found[row], alone[0])


def test_a_run_that_is_full_moves_and_keeps_what_a_window_reaches():
    """Fed token by token through a run of a window and a few rows, as if all were kept."""
    shape = KVShape(3, KV_HEADS, HEAD_DIM, window=24, windowed=(0, 2))
    narrow = WindowRows(shape, CpuBackend(), room=8)
    whole = WindowRows(shape, CpuBackend(), room=400)
    for start in range(0, 200, 5):
        q, k, v = (part.transpose(0, 1) for part in torch.randn(3, HEADS, 5, HEAD_DIM))
        k, v = k[:, :KV_HEADS], v[:, :KV_HEADS]
        for one in (narrow, whole):
            one.make_room(start, start + 5)
        for place in range(2):
            found = narrow.attend(place, q, k, v, start=start)
            assert torch.allclose(found, whole.attend(place, q, k, v, start=start), atol=1e-6)
    assert narrow.base > 0 and whole.base == 0


@pytest.fixture(scope="module", params=["gemma3_text", "gemma4_text", SHARED])
def model(request: pytest.FixtureRequest):
    """With heads of one size, of two, and with layers that read what others hold."""
    return ours(oracle(request.param))


def fed(model, cache, ids: list[int]) -> torch.Tensor:
    """The last row's logits."""
    with torch.inference_mode():
        return model.forward(ids, cache)[-1]


def test_the_middle_level_sees_windows_as_they_are(model):
    """Where the budget holds everything, its logits are the full cache's, over rounds whose drafts were
    rejected. Were its windows sparse, or a round behind, they would not be.
    """
    source = whole_cache(model, 300)
    middle = retrieval_over(source, budget=160, chunk=8, recent=8, tail_tokens=64, slack=24)
    assert isinstance(source, LayeredKVCache) and isinstance(middle.full, RetrievalKVCache)
    with torch.inference_mode():
        model.forward(IDS[:90], source)
        source.observer = middle.policy.observe
        model.forward(IDS[90:96], source)
        source.observer = None
        source.commit(96)
        assert middle.refresh()
        for length in range(96, 150, 6):
            want = model.forward(IDS[length : length + 6], source)
            found = model.forward(IDS[length : length + 6], middle)
            assert float((found - want).abs().max()) < 1e-4 * float(want.abs().max())
            middle.rollback(length + 2)
            model.forward([1, 2, 3], middle)  # what will not be accepted
            source.commit(length + 6)
            middle.rollback(length)
            model.forward([7] * 6, middle)  # its own rows: those of the full cache take their place
            middle.commit(length + 6)
    assert middle.side.base > 0  # its run moved


def test_windows_of_another_round_would_show(model):
    """The comparison above is worth something: with the newest windows left out, logits differ."""
    source = whole_cache(model, 300)
    want = fed(model, source, IDS[:60])
    source.rollback(0)
    fed(model, source, IDS[:50])
    source.side.store.k.zero_()
    assert float((fed(model, source, IDS[50:60]) - want).abs().max()) > 1e-2


def prefilled(model, cache, ids: list[int], *, layers: int) -> None:
    """In segments; stopped behind so many layers."""
    left = iter(range(layers))
    with torch.inference_mode():
        for _ in model.prefill(
            ids, cache, segment_tokens=64, chunk_tokens=13, should_stop=lambda: next(left, None) is None
        ):
            pass


OPS = [
    [("feed", 1), ("feed", 45), ("rollback", 20), ("feed", 3), ("prefill", 70), ("rollback", 60)],
    [("prefill", 100), ("stopped", 40), ("feed", 2), ("rollback", 99), ("prefill", 30), ("feed", 5)],
    [("feed", 30), ("rollback", 0), ("prefill", 33), ("stopped", 50), ("stopped", 9), ("feed", 41)],
    [("prefill", 90), ("remember", 0), ("prefill", 60), ("feed", 3), ("rollback", 91), ("feed", 30)],
    [("prefill", 90), ("remember", 0), ("stopped", 99), ("prefill", 70), ("rollback", 50), ("prefill", 64)],
    [("feed", 100), ("remember", 0), ("uncommitted", 60), ("feed", 1), ("rollback", 100), ("feed", 2)],
    [("feed", 100), ("uncommitted", 12), ("uncommitted", 80), ("feed", 5)],
]


@pytest.mark.parametrize("room", [1, 40, 400], ids=["runs grow", "runs move", "all is kept"])
@pytest.mark.parametrize("ops", OPS)
def test_after_any_sequence_the_cache_is_one_that_was_fed_at_once(
    model, ops: list[tuple[str, int]], room: int
):
    """Passes, prefills in segments, rollbacks, and prefills that were stopped in the middle of a segment."""
    cache, ids = whole_cache(model, 400, room=room), list[int]()
    dice = torch.Generator().manual_seed(1)
    for op, n in ops:
        new = torch.randint(0, VOCAB, (n,), generator=dice).tolist()
        if op == "rollback":
            length = cache.resumable(n)
            assert length <= n
            cache.rollback(length)
            del ids[length:]
            continue
        if op == "remember":
            cache.remember()
            continue
        if op in ("feed", "uncommitted"):
            fed(model, cache, new)
            if op == "feed":
                cache.commit(cache.length)
        else:
            prefilled(model, cache, new, layers=2 if op == "stopped" else 100)
        ids += new[: cache.length - len(ids)]
    assert cache.length == len(ids)
    found = fed(model, cache, [7])
    want = fed(model, whole_cache(model, 400), [*ids, 7])
    assert float((found - want).abs().max()) < 1e-4 * float(want.abs().max())
