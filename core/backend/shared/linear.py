"""A matrix prepared for products as it is, and products whose rows have the bits that they have alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from core.backend.shared.compiled import SHORT_PASS_ROWS


class FloatLinear:
    """x @ weight.T + bias in the weight's own dtype, whatever x is of."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight = weight  # [out, in]
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, out]"""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class RowwiseLinear(FloatLinear):
    """The same on a CPU: rows of a short pass are multiplied one by one."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, out]"""
        return rowwise(x.to(self.weight.dtype), self.weight, self.bias)


def rowwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [n, in] times weight [out, in] transposed, plus bias [out]: [n, out], all of one dtype.

    Matrix libraries add in another order for another number of rows. Up to SHORT_PASS_ROWS rows are therefore
    multiplied one by one, so that a drafted token is judged by the logits that plain decoding would have.
    """
    if x.shape[0] == 1 or x.shape[0] > SHORT_PASS_ROWS:
        return F.linear(x, weight, bias)
    return torch.cat([F.linear(row, weight, bias) for row in x.split(1)])
