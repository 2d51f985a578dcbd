"""The names of the tensors in a checkpoint folder, of headers and index alone. No torch."""

from __future__ import annotations

import json
from pathlib import Path

JOINS_AHEAD = "mtp.fc.weight"  # is there with a layer that predicts one token further
_LONGEST_HEADER = 100 << 20  # bytes; what safetensors itself allows


def tensor_names(folder: Path) -> frozenset[str]:
    """Of a checkpoint of safetensors; none where the folder holds no such, or a file is damaged: who loads it
    will say so.
    """
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    try:
        if index.is_file():
            return frozenset(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        with single.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return frozenset(json.loads(file.read(length))) if length <= _LONGEST_HEADER else frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
