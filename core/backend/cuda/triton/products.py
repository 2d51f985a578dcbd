"""Calls the compiled kernels of product_kernel.py: matrices in codes times up to 40 inputs in two launches,
and rows of them as numbers in one.

Which columns of the matrix a program takes follows from the matrix alone, never from the number of inputs: an
input among many gives the bits that it gives alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from core.backend.cuda.triton.driver import CudaDriver, LoadedKernel, read_kernel
from core.backend.cuda.triton.sizes import (
    DECODED_CHUNKS,
    DECODED_ROWS,
    SHIFTED_BITS,
    TILE_CHUNKS,
    TILE_INPUTS,
    TILE_JOINED,
    TILE_OUTPUTS,
    compiled_product,
)
from core.backend.shared.quantized import CHUNK, QuantizedMatrix

_PROGRAMS = 1024  # at least so many are wanted, for some hundred multiprocessors of a card
_MOST_SPLITS = 8
_LEAST_CHUNKS = 4 * TILE_CHUNKS  # of a split
_WORDS = {5: torch.int16, 6: torch.int32}  # the bits above the nibbles of 16 codes


class QuantizedProducts:
    """For codes of one number of bits on one card. Raises OSError, ValueError or DriverError where the
    kernels cannot be loaded.

    `stream()` is the handle of the stream to compute on.
    """

    def __init__(
        self, driver: CudaDriver, dtype: torch.dtype, bits: int, *, stream: Callable[[], int]
    ) -> None:
        def load(function: str, *sizes: int, shifted: bool = False) -> LoadedKernel:
            return driver.load(read_kernel(compiled_product(function, dtype, *sizes, shifted=shifted)))

        # by whether the codes have an offset
        kinds = (False, True) if bits in SHIFTED_BITS else (False,)

        self.dtype, self.bits, self._stream = dtype, bits, stream
        self._multiply = {
            (inputs, shifted): load("multiply_codes", bits, inputs, shifted=shifted)
            for inputs in TILE_INPUTS
            for shifted in kinds
        }
        self._join = load("join_products")
        self._decode = {shifted: load("decode_rows", bits, shifted=shifted) for shifted in kinds}

    def into(self, parts: torch.Tensor, x: torch.Tensor, planes: QuantizedMatrix, first: int) -> None:
        """x [n, columns] times the transposed matrix, into the columns from `first` on of `parts` fp32
        [splits, n, all rows].
        """
        splits, n, total = parts.shape
        chunks = planes.columns // CHUNK
        tile = TILE_INPUTS[0] if n <= TILE_INPUTS[0] else TILE_INPUTS[1]
        pointers, numbers = _described(planes)
        self._multiply[tile, planes.offset is not None](
            (-(-n // tile), -(-planes.rows // TILE_OUTPUTS), splits),
            self._stream(),
            (
                *(x, *pointers, parts, x.stride(0), *numbers),
                *(n, planes.rows, first, total, chunks, _split_chunks(chunks, total)),
            ),
        )

    def join(self, parts: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`parts` fp32 [splits, n, all rows] as one, with a bias fp32: [n, all rows]."""
        splits, n, total = parts.shape
        out = parts.new_empty((n, total), dtype=self.dtype)
        self._join(
            (-(-total // TILE_JOINED), n, 1),
            self._stream(),
            (parts, parts if bias is None else bias, out, splits, total, int(bias is not None), n * total),
        )
        return out

    def rows(self, planes: QuantizedMatrix, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The rows that `ids` [count] names, into `out` [count, columns], which is returned."""
        return self._decoded(planes, ids, 0, out)

    def decode(self, planes: QuantizedMatrix, out: torch.Tensor, *, first: int = 0) -> torch.Tensor:
        """As many rows from `first` on as `out` [rows, columns] has, into it."""
        return self._decoded(planes, None, first, out)

    def _decoded(
        self, planes: QuantizedMatrix, ids: torch.Tensor | None, first: int, out: torch.Tensor
    ) -> torch.Tensor:
        assert out.is_contiguous() and out.dtype == self.dtype, (out.stride(), out.dtype)
        chunks, count = planes.columns // CHUNK, out.shape[0]
        pointers, numbers = _described(planes)
        self._decode[planes.offset is not None](
            (-(-count // DECODED_ROWS), -(-chunks // DECODED_CHUNKS), 1),
            self._stream(),
            (
                *(planes.low if ids is None else ids, *pointers, out, *numbers),
                *(first, int(ids is not None), count, chunks),
            ),
        )
        return out


class CardProducts:
    """As core.backend.cpu.native.products.NativeProducts, for matrices on a card: a QuantizedProducts for
    each number of bits.
    """

    def __init__(self, by_bits: dict[int, QuantizedProducts]) -> None:
        self._by_bits = by_bits

    def add(self, kernel: QuantizedProducts) -> None:
        """For codes of its number of bits."""
        self._by_bits[kernel.bits] = kernel

    def takes(self, parts: Sequence[QuantizedMatrix]) -> bool:
        """Whether these matrices, one above the other, are for these kernels."""
        return parts[0].columns % CHUNK == 0 and all(
            part.bits in self._by_bits and (part.offset is None or part.bits in SHIFTED_BITS)
            for part in parts
        )

    def multiply(
        self, x: torch.Tensor, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [n, columns] times the transposed matrices, one above the other, and `bias` fp32 [sum of rows]:
        [n, sum of rows] of x's type.
        """
        x = x.contiguous()
        total, chunks = sum(part.rows for part in parts), parts[0].columns // CHUNK
        splits = -(-chunks // _split_chunks(chunks, total))
        sums, first = x.new_empty((splits, x.shape[0], total), dtype=torch.float32), 0
        for part in parts:
            self._by_bits[part.bits].into(sums, x, part, first)
            first += part.rows
        return self._by_bits[parts[0].bits].join(sums, bias)

    def decode(self, planes: QuantizedMatrix, out: torch.Tensor, *, first: int = 0) -> torch.Tensor:
        """See QuantizedProducts."""
        return self._by_bits[planes.bits].decode(planes, out, first=first)

    def rows(self, planes: QuantizedMatrix, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """See QuantizedProducts."""
        return self._by_bits[planes.bits].rows(planes, ids, out)


def _split_chunks(chunks: int, rows: int) -> int:
    """Chunks of a split of a matrix with so many chunks in a row."""
    tiles = -(-rows // TILE_OUTPUTS)
    splits = min(_MOST_SPLITS, max(1, _PROGRAMS // tiles))
    return max(_LEAST_CHUNKS, -(-chunks // splits // TILE_CHUNKS) * TILE_CHUNKS)


def _described(planes: QuantizedMatrix) -> tuple[tuple[torch.Tensor, ...], tuple[int, int]]:
    """The planes, in place of those that are not there any other address; and what says so."""
    low, high = planes.low, planes.high
    stepped, shifted = planes.scale_steps is not None, planes.offset is not None
    assert (planes.offset_steps is not None) == (stepped and shifted)
    pointers = (
        low,
        low if high is None else high.view(_WORDS[planes.bits]),
        planes.scale,
        planes.offset if shifted else low,
        planes.scale_steps if stepped else low,
        planes.offset_steps if stepped and shifted else low,
    )
    assert all(part.is_contiguous() for part in pointers)
    return pointers, (int(stepped), planes.middle)


class TritonRows:
    """Rows of a matrix in codes, decoded in one launch: an embedding."""

    def __init__(self, planes: QuantizedMatrix, products: CardProducts, dtype: torch.dtype) -> None:
        self._planes, self._products, self._dtype = planes, products, dtype

    def __getitem__(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [n] -> [n, columns]"""
        out = ids.new_empty((ids.shape[0], self._planes.columns), dtype=self._dtype)
        return self._products.rows(self._planes, ids.contiguous(), out)
