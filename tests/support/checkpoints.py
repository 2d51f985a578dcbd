"""Small 16-bit checkpoints to quantize."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.gguf_models import wide


def checkpoint(folder: Path, family: str = "llama", **more) -> torch.nn.Module:
    """A tiny model in `folder`, with a tokenizer's file beside it."""
    model = wide(family, **more)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return model
