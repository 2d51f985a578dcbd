"""Devices that hold every matrix in codes of 4 bits: what a Q4_0 file costs, without the file."""

from __future__ import annotations

import torch

from core.backend.base import Linear
from core.backend.cpu.backend import CpuBackend
from core.backend.cuda.backend import CudaBackend
from core.backend.shared.quantized import CHUNK, QuantizedMatrix

_MIDDLE = 8


def rounded_weight(weight: torch.Tensor) -> QuantizedMatrix:
    """`weight` [rows, columns] as the nearest codes, where it lies."""
    groups = weight.float().unflatten(1, (-1, CHUNK))
    largest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scale = (largest / -_MIDDLE).half()
    step = scale.float()
    codes = (groups / torch.where(step == 0, 1.0, step)).round_().add_(_MIDDLE).clamp_(0, 2 * _MIDDLE - 1)
    low, high = codes.to(torch.uint8).split(CHUNK // 2, dim=-1)
    return QuantizedMatrix(4, CHUNK, (low | (high << 4)).flatten(1), scale.flatten(1), middle=_MIDDLE)


class RoundingCuda(CudaBackend):
    """A card."""

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        return self.coded([rounded_weight(weight.to(self.device))], bias)


class RoundingCpu(CpuBackend):
    """In its place, to test the program."""

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """See Backend."""
        return self.coded([rounded_weight(weight)], bias)
