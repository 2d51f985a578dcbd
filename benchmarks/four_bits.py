"""Ways to round matrices to codes of 4 bits in groups of 32, and a model's weights that are rounded so.

HQQ is the half-quadratic solver of Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning
Models" (2023, https://mobiusml.github.io/hqq_blog/), with the constants published there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from core.model.config import ModelConfig
from core.model.gguf.dequantize import planes
from core.model.gguf.quantize_blocks import GROUP, q4_0, q8_0

TOP = 15  # the highest code
SHARES = (1.0, 0.9, 0.8)  # of either end of a group that a search tries
# HQQ's: the norm's power, the first weight of the split, its growth, most rounds
POWER, BETA, KAPPA, ROUNDS = 0.7, 10.0, 1.01, 20
EMBEDDING = "model.embed_tokens.weight"
Rounding = Callable[[torch.Tensor], torch.Tensor]  # weights [rows, columns] -> those that the codes stand for


# ---- ways --------------------------------------------------------------------------------------------------


def nearest(weight: torch.Tensor) -> torch.Tensor:
    """Codes of one scale a group, by its largest weight (llama.cpp's Q4_0)."""
    groups = weight.view(len(weight), -1, GROUP)
    step = (groups.gather(-1, groups.abs().argmax(-1, keepdim=True)) / -8).half().float()
    codes = (groups / _divisor(step)).round().clamp(-8, 7)
    return (codes * step).view_as(weight)


def searched(weight: torch.Tensor) -> torch.Tensor:
    """What the program does: the scale of the least squared error out of seven."""
    return planes(q4_0(weight), "Q4_0", tuple(weight.shape)).decoded()


def nearest_offset(weight: torch.Tensor) -> torch.Tensor:
    """Codes of a scale and an offset a group, from its least weight to its largest (llama.cpp's Q4_1)."""
    groups = weight.view(len(weight), -1, GROUP)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    return _by_offset(groups, (high - low) / TOP, low).view_as(weight)


def searched_offset(weight: torch.Tensor) -> torch.Tensor:
    """The same with either end drawn in, by the least squared error."""
    groups = weight.view(len(weight), -1, GROUP)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    found = least = None
    for below in SHARES:
        for above in SHARES:
            tried = _by_offset(groups, (high * above - low * below) / TOP, low * below)
            error = (tried - groups).square().sum(-1, keepdim=True)
            if found is None:
                found, least = tried, error
                continue
            found = torch.where(error < least, tried, found)
            least = torch.minimum(error, least)
    return found.view_as(weight)


def half_quadratic(weight: torch.Tensor) -> torch.Tensor:
    """HQQ: the scale from the least weight to the largest stays; the zero point is moved to where the error,
    of which a part that is shrunk towards zero counts as outliers, is least in the mean.
    """
    groups = weight.view(len(weight), -1, GROUP)
    low, high = groups.aminmax(dim=-1, keepdim=True)
    step = _divisor((high - low) / TOP)
    zero, best, before, beta = -low / step, -low / step, torch.inf, BETA
    for _round in range(ROUNDS):
        codes = (groups / step + zero).round().clamp(0, TOP)
        apart = groups - (codes - zero) * step
        error = float(apart.abs().mean())
        if error >= before:
            break
        best, before = zero, error
        outliers = apart.sign() * (apart.abs() - apart.abs().pow(POWER - 1) / beta).clamp(min=0)
        zero = (codes - (groups - outliers) / step).mean(-1, keepdim=True)
        beta *= KAPPA
    return _by_offset(groups, step, -best * step).view_as(weight)


def eight_bits(weight: torch.Tensor) -> torch.Tensor:
    """Q8_0, for an embedding."""
    return planes(q8_0(weight), "Q8_0", tuple(weight.shape)).decoded()


def _by_offset(groups: torch.Tensor, step: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """The nearest offset + code * step, both factors in 16 bits as a file holds them."""
    step, offset = step.half().float(), offset.half().float()
    return ((groups - offset) / _divisor(step)).round().clamp(0, TOP) * step + offset


def _divisor(step: torch.Tensor) -> torch.Tensor:
    return torch.where(step == 0, 1.0, step)


@dataclass(frozen=True, slots=True)
class Way:
    """How matrices are rounded; `ends`: how the embedding is, which also makes the logits."""

    name: str
    bits: float  # of a weight, its share of the factors included
    layers: Rounding
    ends: Rounding


def unrounded(weight: torch.Tensor) -> torch.Tensor:
    """The weights as they are."""
    return weight


WAYS = (
    Way("not rounded", 16.0, unrounded, unrounded),
    Way("scale, nearest", 4.5, nearest, nearest),
    Way("scale, search", 4.5, searched, searched),
    Way("scale and offset, nearest", 5.0, nearest_offset, nearest_offset),
    Way("scale and offset, search", 5.0, searched_offset, searched_offset),
    Way("scale and offset, HQQ", 5.0, half_quadratic, half_quadratic),
    Way("scale, search; embedding in 8 bits", 4.5, searched, eight_bits),
    Way("scale and offset, HQQ; embedding in 8 bits", 5.0, half_quadratic, eight_bits),
)


# ---- the model ---------------------------------------------------------------------------------------------


class Reordered:
    """Weights by name with the channels between the matrices in another order: the same function, since who
    writes a channel and who reads it agree. Rows of q and k stay, for the rotation's sake.
    """

    def __init__(self, weights: Any, config: ModelConfig) -> None:
        dice = torch.Generator().manual_seed(0)
        self._weights, self._heads = weights, config.heads
        self._hidden = torch.randperm(config.hidden, generator=dice)
        self._wide = torch.randperm(config.intermediate, generator=dice)
        self._head = torch.randperm(config.head_dim, generator=dice)

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        """The weight, in fp32."""
        found, part = self._weights.tensor(name).float(), name.split(".")[-2]
        if part == "v_proj":
            found = found.unflatten(0, (-1, len(self._head)))[:, self._head].flatten(0, 1)
        if part in ("gate_proj", "up_proj"):
            found = found[self._wide]
        if part == "o_proj":
            columns = found.unflatten(1, (self._heads, -1))[:, :, self._head].flatten(1)
            return columns[self._hidden]
        return found[:, self._wide][self._hidden] if part == "down_proj" else found[..., self._hidden]


class InFull:
    """Weights by name, in fp32."""

    def __init__(self, weights: Any, config: ModelConfig) -> None:
        self._weights = weights

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        """The weight."""
        return self._weights.tensor(name).float()


class Rounded:
    """Weights by name, the matrices rounded as `way` says."""

    def __init__(self, weights: Any, way: Way) -> None:
        self._weights, self._way = weights, way

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str) -> torch.Tensor:
        """The weight that computes."""
        found = self._weights.tensor(name)
        if found.ndim < 2:
            return found
        return self._way.ends(found) if name == EMBEDDING else self._way.layers(found)


ORDERS = {"in another order": Reordered, "as they stand": InFull}
