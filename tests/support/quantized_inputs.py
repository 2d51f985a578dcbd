"""Quantized matrices and inputs to multiply them with."""

from __future__ import annotations

import torch

from core.backend.shared.quantized import QuantizedMatrix
from core.model.gguf.dequantize import planes
from core.model.gguf.reader import BITS
from tests.support.gguf_blocks import random_blocks

KINDS = (*BITS, "BF16")  # the last are the weights themselves


def matrix(kind: str, rows: int = 67, columns: int = 512) -> QuantizedMatrix:
    if kind == "BF16":
        return QuantizedMatrix.of_numbers(inputs(rows, columns, torch.bfloat16))
    return planes(random_blocks(kind, rows=rows, columns=columns, seed=rows), kind, (rows, columns))


def inputs(n: int, columns: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, columns, generator=torch.Generator().manual_seed(n)).to(dtype)
