"""The order of value heads in layers with a gated delta rule. A checkpoint has those that share a key head
beside each other; a GGUF, and what is computed here, has them tiled: value head j is of key head j modulo the
number of key heads.
"""

from __future__ import annotations

from pathlib import Path

import torch

from core.model.mixer_sizes import DeltaSizes
from core.model.weight_shapes import WeightReader

_ROWS = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "conv1d", "A_log", "dt_bias")
_COLUMNS = "out_proj"


def order(sizes: DeltaSizes) -> torch.Tensor:
    """Which of a checkpoint's value heads stands at each place, int64 [value_heads]."""
    shared = sizes.value_heads // sizes.key_heads
    return torch.arange(sizes.value_heads).view(sizes.key_heads, shared).T.reshape(-1)


def tiled(name: str, value: torch.Tensor, sizes: DeltaSizes) -> torch.Tensor:
    """A checkpoint's weight `name` with its value heads tiled, of the shape and dtype that it has; other
    weights as they are.
    """
    parts = name.split(".")
    if "linear_attn" not in parts:
        return value
    if _COLUMNS in parts:
        return value[:, _places(sizes, sizes.value_dim)]
    found = next((part for part in _ROWS if part in parts), None)
    if found is None:
        return value
    if found not in ("in_proj_qkv", "conv1d"):
        return value[_places(sizes, sizes.value_dim if found == "in_proj_z" else 1)]
    keys = sizes.channels - sizes.values
    return torch.cat((value[:keys], value[keys:][_places(sizes, sizes.value_dim)]))


def _places(sizes: DeltaSizes, rows: int) -> torch.Tensor:
    """Of as many rows as a head has, each head's in their order."""
    return (order(sizes)[:, None] * rows + torch.arange(rows)).reshape(-1)


class TiledWeights:
    """A checkpoint's weights, its value heads tiled."""

    def __init__(self, weights: WeightReader, sizes: DeltaSizes) -> None:
        self._weights, self._sizes = weights, sizes

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        """See WeightReader."""
        return tiled(name, self._weights.tensor(name), self._sizes)

    def shape(self, name: str) -> tuple[int, ...]:
        """See WeightReader."""
        return self._weights.shape(name)

    def place(self, name: str) -> tuple[Path, str]:
        """See WeightReader."""
        return self._weights.place(name)
