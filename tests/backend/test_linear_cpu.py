"""The 4-bit kernels compute with the checkpoint's own weights: the product equals that of the dequantised
matrix.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core.backend.base import Codes
from core.backend.linear import FloatLinear
from core.backend.linear_cpu import Int4Linear

OUT, IN, GROUP = 48, 128, 32
BF16 = 2.0**-8  # relative rounding of one bf16 number


def codes(kind: str, seed: int = 0) -> Codes:
    """Random codes as a checkpoint has them; Q4_1 with an offset, Q8_0 without."""
    dice = torch.Generator().manual_seed(seed)
    scale = (0.02 * (1 + torch.rand(OUT, IN // GROUP, generator=dice))).half()
    if kind == "Q4_1":
        drawn = torch.randint(0, 16, (OUT, IN), generator=dice, dtype=torch.uint8)
        return Codes(drawn, scale, (0.1 * torch.randn(OUT, IN // GROUP, generator=dice)).half())
    return Codes(
        torch.randint(-128, 128, (OUT, IN), generator=dice, dtype=torch.int8),
        scale / 16,
        torch.zeros_like(scale),
    )


def dequantised(given: Codes) -> torch.Tensor:
    """[OUT, IN] fp64, by the definition."""
    grouped = given.codes.double().view(OUT, -1, GROUP)
    return (grouped * given.scale.double().unsqueeze(-1) + given.offset.double().unsqueeze(-1)).view(OUT, IN)


def prepared(given: Codes) -> Int4Linear:
    return Int4Linear(FloatLinear(dequantised(given).bfloat16()), given)


def error(layer: Int4Linear, weight: torch.Tensor, rows: int) -> float:
    """The largest error relative to what rounding every factor to bf16 could add up to."""
    x = torch.randn(rows, IN, generator=torch.Generator().manual_seed(rows)).bfloat16()
    bound = BF16 * (x.double().abs() @ weight.abs().t())
    return float(((layer(x).double() - x.double() @ weight.t()).abs() / bound).max())


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
@pytest.mark.parametrize("rows", [1, 2, 5, 7, 8, 13, 14, 15, 40])
def test_products_equal_the_dequantised_weights(kind: str, rows: int):
    """Few rows by the 4-bit kernel, many by the float weights: the same matrix on both sides."""
    given = codes(kind)
    assert error(prepared(given), dequantised(given), rows) < 3


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_every_code_counts(kind: str):
    """Each row of an identity reads one column of the matrix: all 16 or 256 codes, at both ends."""
    given = codes(kind)
    spread = torch.arange(OUT * IN).view(OUT, IN)
    ends = (spread % 16).to(torch.uint8) if kind == "Q4_1" else (spread % 256 - 128).to(torch.int8)
    given = replace(given, codes=ends)
    layer, weight = prepared(given), dequantised(given)
    read = torch.cat([layer(row.unsqueeze(0)) for row in torch.eye(IN).bfloat16()])
    assert float((read.double().t() - weight).abs().max()) < 3 * BF16 * float(weight.abs().max())


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_another_weight_would_show(kind: str):
    """The bound is worth something: codes one group further, or off by an eighth of their range, break it."""
    given = codes(kind)
    shifted = replace(given, codes=given.codes.roll(GROUP, dims=1))
    most, eighth = (15, 2) if kind == "Q4_1" else (127, 32)
    off = replace(given, codes=torch.where(given.codes <= most - eighth, given.codes + eighth, given.codes))
    for other in (shifted, off):
        assert error(prepared(other), dequantised(given), 3) > 3
