"""A small layer with a gated delta rule, rows of it, and its definition in fp64, by which kernels are tried
before they are used.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from core.backend.base import DeltaParts

_LEAST_LENGTH = 1e-6


class ExampleSizes(NamedTuple):
    """See DeltaShape of core.backend.base."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int = 4

    @property
    def channels(self) -> int:
        """Of a row, before the two numbers of each value head."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def width(self) -> int:
        """Of a row."""
        return self.channels + 2 * self.value_heads


class DeltaExample(NamedTuple):
    """See DeltaParts of core.backend.base."""

    sizes: ExampleSizes
    convolution: torch.Tensor
    decay: torch.Tensor
    step_bias: torch.Tensor


def example_layer(
    sizes: ExampleSizes, dice: torch.Generator, device: torch.device | None = None
) -> DeltaExample:
    """A layer of these sizes."""
    convolution = torch.randn(sizes.kernel, sizes.channels, generator=dice) * 0.5
    decay, bias = torch.randn(2, sizes.value_heads, generator=dice)
    return DeltaExample(sizes, *(part.to(device) for part in (convolution, -decay.abs(), bias)))


def example_rows(sizes: ExampleSizes, n: int, dice: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A state and rows [kernel - 1 + n, width], fp32."""
    state = torch.randn(sizes.value_heads, sizes.key_dim, sizes.value_dim, generator=dice)
    return state, torch.randn(sizes.kernel - 1 + n, sizes.width, generator=dice)


def delta_by_definition(
    parts: DeltaParts, state: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """By the definition, in fp64: what is found [n, value_heads, value_dim], and the state behind the
    rows.
    """
    sizes, rows, state = parts.sizes, rows.double(), state.double()
    n, found = rows.shape[0] - sizes.kernel + 1, []
    channels, keys = sizes.width - 2 * sizes.value_heads, sizes.key_heads * sizes.key_dim
    for at in range(n):
        taps = rows[at : at + sizes.kernel, :channels] * parts.convolution.double()
        q, k, v = F.silu(taps.sum(0)).split((keys, keys, channels - 2 * keys))
        v = v.view(sizes.value_heads, sizes.value_dim)
        q, k = (part.view(sizes.key_heads, sizes.key_dim) for part in (q, k))
        q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + _LEAST_LENGTH) for part in (q, k))
        q, k = (part.repeat(sizes.value_heads // sizes.key_heads, 1) for part in (q, k))
        corrected, kept = rows[at + sizes.kernel - 1, channels:].chunk(2)
        kept = (parts.decay.double() * F.softplus(kept + parts.step_bias.double())).exp()
        state = state * kept[:, None, None]
        lacking = (v - torch.einsum("hk,hkv->hv", k, state)) * corrected.sigmoid()[:, None]
        state = state + k[:, :, None] * lacking[:, None]
        found.append(torch.einsum("hk,hkv->hv", q, state) * sizes.key_dim**-0.5)
    return torch.stack(found), state
