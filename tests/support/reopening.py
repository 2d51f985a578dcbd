"""A session opened anew on the same data."""

from __future__ import annotations

from pathlib import Path

import torch

from core.cache.base import TargetKVCache
from core.cache.disk import GB, SnapshotFolder
from core.cache.layered import with_side
from core.cache.offloaded import OffloadedKVCache
from core.cache.snapshot import SnapshotStore
from core.engine import Engine
from core.planning.plan import ASSISTANT, MTP
from tests.support.ahead import ahead_weights, layer_ahead
from tests.support.assistant import assistant_oracle, our_assistant
from tests.support.tiny import engine, oracle, ours, whole_cache


def reopened(
    root: Path,
    *,
    family: str = "llama",
    dtype: torch.dtype = torch.float32,
    key: str = "tiny",
    offloaded: bool = False,
    along: bool = False,
) -> Engine:
    """An engine as a new process makes it, with rows of `dtype`; `along`: what came along with
    the model drafts.
    """
    computed = torch.float32 if dtype == torch.int8 else dtype
    reference = oracle(family, max_position_embeddings=2048)
    model = ours(reference, positions=2048, dtype=computed)
    drafts = {}
    if along and family == "qwen3_5_text":
        layer = layer_ahead(model, reference, ahead_weights(reference, like=1.0))
        drafts = {"draft": layer, "drafter": MTP, "straight": True}
    elif along:
        assistant = our_assistant(model, assistant_oracle(reference))
        drafts = {"draft": assistant, "drafter": ASSISTANT, "straight": True}

    def here(capacity: int) -> TargetKVCache:
        return whole_cache(model, capacity + 32, dtype=dtype, room=8)

    def away(capacity: int) -> TargetKVCache:
        shape = model.config.kv_shape
        cache = OffloadedKVCache(
            shape.of_full,
            capacity + 32,
            model.backend,
            block_tokens=64,
            resident_layers=1,
            resident_blocks=3,
            dtype=dtype,
        )
        return with_side(shape, cache, room=8)

    made = engine(
        model,
        context_tokens=1800,
        prefill_segment_tokens=256,
        prefill_chunk_tokens=128,
        new_cache=away if offloaded else here,
        **drafts,
    )
    made._snapshots = SnapshotStore(SnapshotFolder(root), key, model.config.kv_shape, dtype, quota_bytes=GB)
    return made
