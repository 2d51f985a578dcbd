"""What both ranks of a test do."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from core.backend.cpu.backend import CpuBackend
from core.backend.ranks import Ranks
from core.model.llama import LlamaModel
from core.model.loader import load_model
from tests.support.offloaded_engines import offloaded
from tests.support.tiny import whole_cache

IDS = [5, 17, 63, 3, 88, 88, 25, 41, 7, 90, 30, 12]


@cache
def loaded(ranks: Ranks, folder: Path) -> LlamaModel:
    """The model of that folder on the CPU."""
    return load_model(folder, CpuBackend(), positions=512, ranks=ranks)


def logits(
    ranks: Ranks, folder: Path, rows: torch.dtype | None = None, split: str | None = None
) -> torch.Tensor:
    """Of a prefill in two segments, and of two passes of few rows behind it, [4 + 1, vocab]. `split`: how
    much of the cache is on the device; None: all.
    """
    model = loaded(ranks, folder)
    if split is None:
        cache = whole_cache(model, 256, dtype=rows)
    else:
        cache = offloaded(model, split, 256, dtype=rows)
    with torch.inference_mode():
        ids = IDS * 6
        for _done in model.prefill(ids, cache, segment_tokens=48, chunk_tokens=20, should_stop=lambda: False):
            pass
        short = model.forward(IDS[:4], cache)
        cache.rollback(len(ids) + 2)
        return torch.cat((short, model.forward(IDS[4:5], cache)))
