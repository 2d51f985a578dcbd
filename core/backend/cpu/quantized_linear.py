"""Products with matrices whose weights stay in codes: few rows by the compiled kernel, many with the same
weights decoded piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Protocol

import torch

from core.backend.cpu.native.products import MOST_PARTS
from core.backend.shared.compiled import SHORT_PASS_ROWS
from core.backend.shared.linear import rowwise
from core.backend.shared.pieces import PIECE_NUMBERS
from core.backend.shared.quantized import CHUNK, QuantizedMatrix


class CompiledProducts(Protocol):
    """A compiled kernel's: see core.backend.cpu.native.products.NativeProducts."""

    def multiply(
        self, x: torch.Tensor, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None
    ) -> torch.Tensor:
        """x [n, in] times the weights of all `parts`, one above the other, plus `bias` [out]. Returns [n,
        out] in the dtype of x.
        """
        ...

    def decode(self, planes: QuantizedMatrix, out: torch.Tensor, *, first: int) -> torch.Tensor:
        """Rows [first, first + n) as numbers, written into `out` [n, in], which is returned."""
        ...


class Dequantizer:
    """Decodes a matrix for a product, piece by piece into one buffer that all matrices share."""

    def __init__(
        self, dtype: torch.dtype, device: torch.device, products: CompiledProducts | None = None
    ) -> None:
        self.dtype = dtype
        self._products = products
        self._buffer = torch.empty(0, dtype=dtype, device=device)

    def pieces(self, planes: QuantizedMatrix) -> Iterator[torch.Tensor]:
        """The weights [some rows, columns] in `dtype`, from the first row to the last; each until the next is
        asked for.
        """
        if planes.low.dtype == self.dtype:
            yield planes.low  # numbers of this type already
            return
        step = max(1, PIECE_NUMBERS // planes.columns)
        for first in range(0, planes.rows, step):
            yield self._piece(planes, first, min(step, planes.rows - first))

    def _piece(self, planes: QuantizedMatrix, first: int, count: int) -> torch.Tensor:
        if self._products is None or planes.columns % CHUNK:
            return planes.picked(slice(first, first + count)).decoded().to(self.dtype)
        if self._buffer.numel() < count * planes.columns:
            self._buffer = self._buffer.new_empty(count * planes.columns)
        piece = self._buffer[: count * planes.columns].view(count, planes.columns)
        return self._products.decode(planes, piece, first=first)


class QuantizedLinear:
    """x @ weights.T + bias, the weights of `parts` one above the other."""

    def __init__(
        self,
        parts: Sequence[QuantizedMatrix],
        bias: torch.Tensor | None,
        decoder: Dequantizer,
        products: CompiledProducts | None = None,
    ) -> None:
        self.parts, self.columns, self._decoder = list(parts), parts[0].columns, decoder
        suited = len(self.parts) <= MOST_PARTS and parts[0].columns % CHUNK == 0
        self.products = products if suited else None  # by which few rows are multiplied; None: decoded
        self.bias = None if bias is None else bias.to(parts[0].low.device, torch.float32)

    def by(self, products: CompiledProducts) -> QuantizedLinear:
        """The same matrix, few rows multiplied by another kernel."""
        found = copy(self)
        found.products = products
        return found

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[n, in] -> [n, out]"""
        if self.products is not None and x.shape[0] <= SHORT_PASS_ROWS:
            return self.products.multiply(x, self.parts, self.bias)
        inputs = x.to(self._decoder.dtype)
        pieces = (piece for part in self.parts for piece in self._decoder.pieces(part))
        products = [rowwise(inputs, piece) for piece in pieces]
        out = products[0] if len(products) == 1 else torch.cat(products, dim=-1)
        return (out if self.bias is None else out + self.bias).to(x.dtype)


class QuantizedRows:
    """Rows of a matrix in codes: an embedding."""

    def __init__(self, planes: QuantizedMatrix, dtype: torch.dtype) -> None:
        self._planes, self._dtype = planes, dtype

    def __getitem__(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [n] -> [n, columns]"""
        return self._planes.picked(ids).decoded().to(self._dtype)
