"""Matrices prepared for torch's 4-bit kernel, straight from a checkpoint's own codes."""

from __future__ import annotations

import torch

from core.backend.base import Codes
from core.backend.linear import FloatLinear

_INT4_GROUP = 32
_INT4_MIDDLE = 8  # the kernel computes (code - 8) * scale + zero


class Int4Linear:
    """4-bit codes with bf16 group scales for few rows; the float weights for many, where the matrix product
    is compute-bound.

    8-bit codes are exact as two 4-bit halves, q = 16 * high + low, whose products are added. Scales are
    rounded to bf16 as the kernel asks; float weights in bf16 carry a rounding error of the same size.
    """

    def __init__(self, plain: FloatLinear, codes: Codes) -> None:
        self._plain = plain
        self._parts = [_packed(*part) for part in _four_bit_parts(codes)]
        # measured on two AVX-512 cores: the 4-bit kernel's time grows with its rows and meets bf16 at 16 rows
        # (8 for two halves)
        self._few_rows = 14 // len(self._parts)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, out]"""
        if x.shape[0] > self._few_rows:
            return self._plain(x)
        products = [
            torch._weight_int4pack_mm_for_cpu(x, weight, _INT4_GROUP, scales)
            for weight, scales in self._parts
        ]
        return products[0] if len(products) == 1 else products[0] + products[1]


def _four_bit_parts(codes: Codes) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(codes 0..15, scale, zero) such that the sum over parts of (code - 8) * scale + zero is the weight."""
    scale, offset = codes.scale.float(), codes.offset.float()
    if codes.codes.dtype == torch.uint8:
        return [(codes.codes.int(), scale, offset + _INT4_MIDDLE * scale)]
    # int8, 0..15 each; the shift keeps the sign
    low, high = codes.codes & 15, (codes.codes >> 4) + 8
    return [
        (high.int(), 16 * scale, torch.zeros_like(offset)),
        (low.int(), scale, offset + _INT4_MIDDLE * scale),
    ]


def _packed(
    codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    weight = torch._convert_weight_to_int4pack_for_cpu(codes.contiguous(), 1)
    scales_and_zeros = torch.stack((scale.t(), zero.t()), dim=-1).contiguous()  # [in / 32, out, 2]
    return weight, scales_and_zeros.to(torch.bfloat16)
