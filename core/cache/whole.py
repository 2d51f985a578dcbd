"""What a recorded pass asks of a target's cache all of whose rows lie on the device in one block. Knows no
kind of cache.
"""

from __future__ import annotations

from typing import Protocol

import torch

from core.cache.base import GraphInputs, TargetKVCache


class WitnessedInputs(GraphInputs, Protocol):
    """Keeps each layer's queries [n, heads, head_dim] where a recorded pass leaves them."""

    queries: dict[int, torch.Tensor]  # by layer


class WholeKVCache(TargetKVCache, Protocol):
    """The place of a row is one number (TargetKVCache.of_one_block)."""

    def place(self) -> tuple[int, int]:
        """See SlotCache."""
        ...

    def fixed(self, n: int) -> WitnessedInputs:
        """See SlotCache."""
        ...
