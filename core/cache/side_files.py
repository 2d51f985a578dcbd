"""Windows and states as they were at the end of a stored text, one file each. What is damaged or of another
model is not there.
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
from core.cache.states import KeptStates
from core.cache.windows import KeptWindows

log = logging.getLogger(__name__)

Kept = KeptWindows | KeptStates


def save_side(path: Path, model_key: str, kept: Kept) -> None:
    """Writes them under another name, and renames the file when it is whole. Raises OSError."""
    part, values = part_of(path), kept._asdict()
    tensors = {name: value.contiguous() for name, value in values.items() if isinstance(value, torch.Tensor)}
    facts = {name: str(value) for name, value in values.items() if name not in tensors}
    facts |= {"model": model_key, "checksum": str(_checksum(tensors))}
    try:
        save_file(tensors, part, metadata=facts)
        os.replace(part, path)
    except SafetensorError as error:
        raise OSError(str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def load_side(path: Path, model_key: str, kind: type[Kept]) -> Kept | None:
    """What `save_side` wrote for this model; None where it is not there or not whole."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            kept = set(file.keys())
            tensors = {name: file.get_tensor(name) for name in kind._fields if name in kept}
        numbers = {name: int(facts[name]) for name in kind._fields if name not in tensors}
        if facts["model"] == model_key and int(facts["checksum"]) == _checksum(tensors):
            return kind(**numbers, **tensors)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        log.warning("what stands beside a KV snapshot is not used: %s", error)
    return None


def _checksum(tensors: dict[str, torch.Tensor]) -> int:
    found = 0
    for part in tensors.values():
        found = zlib.crc32(part.contiguous().view(torch.uint8).flatten().numpy(), found)
    return found
