"""Rows whose offsets in memory pass 2^31 bytes: whoever counts them in 32 bits reads and writes elsewhere."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu.backend import CpuBackend
from core.cache.base import KVShape, KVStore
from core.cache.full import FullKVCache
from core.cache.offloaded import OffloadedKVCache
from core.cache.segment import SegmentSizes

WIDTH = 128
SHAPE = KVShape(layers=1, kv_heads=1, head_dim=WIDTH)
BLOCK = 1 << 16
FAR = (1 << 31) // (4 * WIDTH) + 3 * BLOCK + 77  # tokens: their keys alone lie beyond
CAPACITY = FAR + 2 * BLOCK
pytestmark = pytest.mark.slow  # each takes 4.7 GB


def full() -> FullKVCache:
    return FullKVCache(SHAPE, CAPACITY, CpuBackend(torch.float32), block_tokens=BLOCK)


def offloaded() -> OffloadedKVCache:
    return OffloadedKVCache(
        SHAPE,
        CAPACITY,
        CpuBackend(torch.float32),
        block_tokens=BLOCK,
        resident_layers=0,
        resident_blocks=None,
        staging_blocks=2,
        fresh_tokens=8,
        swept=SegmentSizes(tokens=1024, heads=2, step=64),
    )


def planted(cache: FullKVCache | OffloadedKVCache) -> tuple[torch.Tensor, torch.Tensor]:
    """Sixteen rows at FAR, of which the tenth alone is looked for; all before are zeros."""
    cache.advance(FAR)
    cache.commit(FAR)
    k, v = torch.zeros(16, 1, WIDTH), torch.randn(16, 1, WIDTH, generator=torch.Generator().manual_seed(3))
    k[10, 0, 5] = 40.0
    cache.write(0, FAR, k, v)
    cache.advance(16)
    cache.commit(FAR + 16)
    return k, v


@pytest.mark.parametrize("make", [full, offloaded])
def test_rows_and_chunks_from_beyond_are_what_was_written(make):
    cache = make()
    k, v = planted(cache)
    assert all(torch.equal(*pair) for pair in zip(cache.rows(0, FAR, 16), (k, v), strict=True))

    target = KVStore(SHAPE, 32, block_tokens=32, dtype=torch.float32, device=torch.device("cpu"))
    cache.copy_chunks(target, torch.tensor([[[FAR // 8 + 1]]]), 8)
    first = (FAR // 8 + 1) * 8 - FAR
    assert torch.equal(target.rows(0, 0, 8)[1], v[first : first + 8])
    cache.copy_rows(target, FAR + 8, 8, 8)
    assert torch.equal(target.rows(0, 8, 8)[0], k[8:])


@pytest.mark.parametrize("rows", [1, 48])
@pytest.mark.parametrize("make", [full, offloaded])
def test_attention_finds_what_lies_beyond(make, rows: int):
    """By the compiled kernel, and in a segment: the whole past is read, and one row of it weighs all."""
    cache = make()
    _, v = planted(cache)
    q = torch.zeros(rows, 2, WIDTH)
    q[..., 5] = 40.0
    new = torch.zeros(rows, 1, WIDTH)
    if rows > 1:
        cache.begin_segment()
    out = cache.attend(0, q, new, new)
    torch.testing.assert_close(out, v[10].expand(rows, 2, WIDTH))
