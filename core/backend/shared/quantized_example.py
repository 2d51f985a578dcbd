"""Small matrices of random codes, by which kernels are tried before they are used."""

from __future__ import annotations

import torch

from core.backend.shared.quantized import SPAN, QuantizedMatrix

# bits, codes of a group, whether groups have integer steps and an offset
Kind = tuple[int, int, bool, bool]
KINDS: tuple[Kind, ...] = (
    (4, 32, False, False),
    (4, 32, False, True),
    (4, 32, True, True),
    (5, 32, False, False),
    (5, 32, True, True),
    (6, 16, True, False),
    (8, 32, False, False),
)


def example(kind: Kind, dice: torch.Generator, *, rows: int = 5, columns: int = 512) -> QuantizedMatrix:
    """A matrix of that kind."""
    bits, group, stepped, shifted = kind

    def codes(width: int, low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randint(low, high, (rows, width), generator=dice).to(dtype)

    def factors() -> torch.Tensor:
        return (torch.rand(rows, columns // (SPAN if stepped else group), generator=dice) / 64).half()

    def steps() -> torch.Tensor | None:
        return codes(columns // group, 0, 64, torch.int8) if stepped else None

    wide = bits == 8
    low = codes(columns, -128, 128, torch.int8) if wide else codes(columns // 2, 0, 256, torch.uint8)
    high = codes(columns * (bits - 4) // 8, 0, 256, torch.uint8) if bits in (5, 6) else None
    return QuantizedMatrix(
        bits,
        group,
        low,
        factors(),
        high=high,
        offset=-factors() if shifted else None,
        scale_steps=steps(),
        offset_steps=steps() if shifted else None,
        middle=0 if wide or shifted else 1 << (bits - 1),
    )
