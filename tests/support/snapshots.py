"""Caches and folders of snapshots, as their tests make them."""

from pathlib import Path

import torch

from core.cache.base import KVShape, KVStore
from core.cache.disk import GB, SnapshotFolder
from core.cache.snapshot import BLOCK_TOKENS, SnapshotStore

REPO = Path(__file__).resolve().parent.parent.parent
SHAPE = KVShape(layers=2, kv_heads=2, head_dim=4)
CPU = torch.device("cpu")
N = 2 * BLOCK_TOKENS + 300
TOKEN_BYTES = 2 * 2 * 2 * 4 * 4


def store(
    root: Path, *, key: str = "model", dtype: torch.dtype = torch.float32, quota: int = GB
) -> SnapshotStore:
    return SnapshotStore(SnapshotFolder(root), key, SHAPE, dtype, quota_bytes=quota)


def ids(n: int = N, seed: int = 0) -> list[int]:
    return torch.randint(0, 49_152, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def filled(
    n: int = N, *, seed: int = 0, dtype: torch.dtype = torch.float32, block_tokens: int = 512
) -> KVStore:
    """A cache with n random rows."""
    cache, dice = (
        KVStore(SHAPE, n, block_tokens=block_tokens, dtype=dtype, device=CPU),
        torch.Generator().manual_seed(seed),
    )
    for layer in range(SHAPE.layers):
        cache.write(layer, 0, *(torch.randn(n, 2, 4, generator=dice) for _ in range(2)))
    return cache


def loaded(
    snapshots: SnapshotStore,
    wanted: list[int],
    *,
    start: int = 0,
    book: str = "book",
    block_tokens: int = 512,
) -> tuple:
    """(a cache with what came from disk, its length)"""
    cache = KVStore(SHAPE, len(wanted), block_tokens=block_tokens, dtype=snapshots._dtype, device=CPU)
    return cache, max([start, *snapshots.load(book, wanted, cache, start=start)])


def same(one: KVStore, other: KVStore, start: int, end: int) -> bool:
    return all(
        torch.equal(a, b)
        for layer in range(SHAPE.layers)
        for a, b in zip(
            one.rows(layer, start, end - start), other.rows(layer, start, end - start), strict=True
        )
    )


def files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*/*"))
