"""Matrices by their integer codes: the parts that the 4-bit kernel multiplies add up to the checkpoint's weights."""

from __future__ import annotations

import pytest
import torch

from core.backend.base import Codes
from core.backend.linear_cpu import _four_bit_parts


@pytest.mark.parametrize("bits", [4, 8])
def test_parts_add_up_to_the_weights_for_every_code(bits: int):
    """All 16 or 256 codes: a sign lost in a half would be off by 256 steps."""
    codes = torch.arange(16, dtype=torch.uint8) if bits == 4 else torch.arange(-128, 128).to(torch.int8)
    scale, offset = torch.tensor(0.5), torch.tensor(0.25)
    parts = _four_bit_parts(Codes(codes, scale, offset))
    assert all(int(part.min()) >= 0 and int(part.max()) <= 15 and part.dtype == torch.int32 for part, _, _ in parts)
    total = sum((part - 8) * step + zero for part, step, zero in parts)
    assert torch.equal(total, codes.float() * scale + offset)
