"""How many operations a streamed pass asks of a card: each takes microseconds of the thread that launches,
which the bus must not wait for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.cache.base import KVShape
from core.cache.offloaded import OffloadedKVCache
from tests.backend.fake_cuda import FakeCuda
from tests.backend.test_peak_memory import flash

BLOCK, HEADS = 8, 4
# as counted; a block of 128 MB is on the bus for milliseconds, so many launches take a tenth of one
PER_BLOCK = 24  # two copies, queries laid out, the library's attention joined to the others
PER_LAYER = 4  # the new rows; their own attention is the first part
PER_PASS = 4  # the landing of the new rows


class Launches(TorchDispatchMode):
    """Counts what is no view."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        views = any(result.alias_info and not result.alias_info.is_write for result in func._schema.returns)
        self.count += not views and "empty" not in func.__name__
        return out


def launches(cuda: FakeCuda, *, layers: int, blocks: int) -> int:
    """Of a verification of 5 rows over so many full blocks of each layer in host memory."""
    backend = cuda.backend()
    backend._kernels[64] = flash
    shape = KVShape(layers=layers, kv_heads=2, head_dim=64)
    cache = OffloadedKVCache(
        shape, 8 * BLOCK, backend, block_tokens=BLOCK, resident_layers=0, staging_blocks=2, fresh_tokens=6
    )
    cache.advance(blocks * BLOCK)
    cache.commit(blocks * BLOCK)
    q, k = torch.zeros(5, HEADS, 64), torch.zeros(5, 2, 64)
    with torch.inference_mode(), Launches() as counted:
        for layer in range(layers):
            cache.attend(layer, q, k, k)
        cache.advance(5)
    return counted.count


def test_a_streamed_pass_is_few_operations(cuda: FakeCuda):
    """A loop over heads or rows, or a join by ten small steps, would starve the bus behind it."""
    one, two = (launches(cuda, layers=2, blocks=blocks) for blocks in (3, 4))
    per_block = (two - one) / 2
    per_layer = launches(cuda, layers=3, blocks=3) - one - 3 * per_block
    per_pass = one - 2 * (per_layer + 3 * per_block)
    assert 4 <= per_block <= PER_BLOCK
    assert 1 <= per_layer <= PER_LAYER
    assert per_pass <= PER_PASS
