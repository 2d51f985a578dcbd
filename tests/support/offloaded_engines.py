"""Engines whose caches lie partly in host memory."""

from __future__ import annotations

import torch

from core.cache.offloaded import OffloadedKVCache
from core.cache.segment import SegmentSizes
from core.engine import Engine
from core.model.llama import LlamaModel
from tests.support.tiny import engine, oracle, ours

BLOCK, CHUNK, SEGMENT = 32, 20, 48


SPLITS = {
    "none": (0, None),
    "one layer": (1, None),
    "both layers": (2, None),
    "two blocks of each": (2, 2),
    "one layer, swept": (1, None),
    "two blocks of each, swept": (2, 2),
}


def offloaded(
    model: LlamaModel,
    split: str,
    capacity: int = 480,
    *,
    block: int = BLOCK,
    dtype: torch.dtype | None = None,
) -> OffloadedKVCache:
    layers, blocks = SPLITS[split]
    return OffloadedKVCache(
        model.config.kv_shape,
        capacity,
        model.backend,
        block_tokens=block,
        resident_layers=layers,
        resident_blocks=blocks,
        staging_blocks=2,
        fresh_tokens=40,
        dtype=dtype,
        swept=SegmentSizes(tokens=SEGMENT, heads=model.config.heads, step=8) if "swept" in split else None,
    )


def offloaded_engine(model: LlamaModel, split: str, **plan: object) -> Engine:
    return engine(
        model,
        draft=ours(oracle(tied=True)),
        new_cache=lambda capacity: offloaded(model, split, capacity + 32),
        **plan,
    )
