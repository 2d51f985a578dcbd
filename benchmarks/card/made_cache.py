"""A text that nobody read: its keys and values are random numbers, made on the device. So a card tells what
decoding over the bus takes before it has read 128K tokens.
"""

from __future__ import annotations

import torch

from core.backend.base import Backend
from core.backend.shared.kv_rows import as_rows
from core.cache.base import KVShape, TargetKVCache

_PIECE = 4096  # tokens of a layer that are made at a time


def fill_cache(
    cache: TargetKVCache, tokens: int, *, shape: KVShape, backend: Backend, rows: torch.dtype
) -> None:
    """The first `tokens` tokens of every layer, in `rows` of this type, wherever the cache has them."""
    for layer in range(shape.layers):
        for start in range(0, tokens, _PIECE):
            n = min(_PIECE, tokens - start)
            size = (2, n, shape.kv_heads, shape.head_dim)
            made = torch.randn(size, device=backend.device, dtype=backend.dtype)
            k, v = (as_rows(part, shape.head_dim, rows) for part in made)
            cache.write(layer, start, k, v)
    cache.advance(tokens)
    cache.commit(tokens)
