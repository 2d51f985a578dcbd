"""Layers with a gated delta rule, and rows of them."""

from __future__ import annotations

import torch

from core.model.delta import GatedDelta
from core.model.mixer_sizes import DeltaSizes


def rule(sizes: DeltaSizes, *, steps: float = 1.0) -> GatedDelta:
    dice = torch.Generator().manual_seed(2)
    return GatedDelta(
        sizes=sizes,
        convolution=torch.randn(sizes.kernel, sizes.channels, generator=dice) * 0.5,
        decay=-torch.rand(sizes.value_heads, generator=dice),
        step_bias=torch.randn(sizes.value_heads, generator=dice) * steps,
        norm=torch.ones(sizes.value_dim),
    )


def some(sizes: DeltaSizes, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A state and rows."""
    dice = torch.Generator().manual_seed(n)
    state = torch.randn(sizes.value_heads, sizes.key_dim, sizes.value_dim, generator=dice)
    return state, torch.randn(sizes.kernel - 1 + n, sizes.width, generator=dice)
