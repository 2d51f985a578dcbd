"""Windows as they were at the end of a stored text, one file each. What is damaged or of another model is not
there.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from core.cache.disk import part_of
from core.cache.windows import KeptWindows

log = logging.getLogger(__name__)


def save_windows(path: Path, model_key: str, kept: KeptWindows) -> None:
    """Writes them under another name, and renames the file when it is whole. Raises OSError."""
    part = part_of(path)
    facts = {
        "model": model_key,
        "base": str(kept.base),
        "end": str(kept.end),
        "checksum": str(_checksum(kept)),
    }
    try:
        save_file({"k": kept.k.contiguous(), "v": kept.v.contiguous()}, part, metadata=facts)
        os.replace(part, path)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def load_windows(path: Path, model_key: str) -> KeptWindows | None:
    """What `save_windows` wrote for this model; None where it is not there or not whole."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            kept = KeptWindows(
                int(facts["base"]), int(facts["end"]), file.get_tensor("k"), file.get_tensor("v")
            )
        if facts["model"] == model_key and int(facts["checksum"]) == _checksum(kept):
            return kept
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        log.warning("windows of a KV snapshot are not used: %s", error)
    return None


def _checksum(kept: KeptWindows) -> int:
    found = 0
    for part in (kept.k, kept.v):
        found = zlib.crc32(part.contiguous().view(torch.uint8).numpy().data.cast("B"), found)
    return found
