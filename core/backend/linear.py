"""A matrix prepared for products as it is."""

from __future__ import annotations

import torch
import torch.nn.functional as F


class FloatLinear:
    """x @ weight.T + bias in the weight's own dtype, whatever x is of."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight  # [out, in]
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, out]"""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)
