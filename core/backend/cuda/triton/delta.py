"""Calls the compiled kernel of delta_kernel.py: rows of a layer with a gated delta rule, their convolution
and gates among them, in one launch. Knows no caches or models.

Which columns of a state a program takes follows from the layer alone, and it takes rows one after the other:
a row among many has the bits it has alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.backend.base import DeltaParts
from core.backend.cuda.triton.driver import CudaDriver, read_kernel
from core.backend.cuda.triton.sizes import DELTA_COLUMNS, DELTA_KEYS, DELTA_TAPS, compiled_delta

_WHOLE = 16  # numbers that rows and values are multiples of: they are read 16 bytes at a time


class CardDelta:
    """For rows in one 16-bit type on one card. Raises OSError, ValueError or DriverError where the kernel
    cannot be loaded.

    `stream()` is the handle of the stream to compute on.
    """

    def __init__(self, driver: CudaDriver, dtype: torch.dtype, *, stream: Callable[[], int]) -> None:
        self._dtype, self._stream = dtype, stream
        self._take = driver.load(read_kernel(compiled_delta(dtype)))

    @staticmethod
    def takes(parts: DeltaParts) -> bool:
        """Whether a layer of these sizes is for this kernel."""
        sizes = parts.sizes
        known = sizes.key_dim == DELTA_KEYS and sizes.kernel == DELTA_TAPS
        return known and sizes.value_dim % DELTA_COLUMNS == 0 and sizes.width % _WHOLE == 0

    def through(
        self, parts: DeltaParts, source: torch.Tensor, target: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """See DeltaRows of core.backend.base: rows [kernel - 1 + n, width] to fp32 [n, value_heads,
        value_dim].
        """
        sizes = parts.sizes
        n = rows.shape[0] - sizes.kernel + 1
        assert rows.dtype == self._dtype and rows.shape[1] == sizes.width, (rows.dtype, rows.shape)
        assert all(one.is_contiguous() for one in (source, target, rows))
        out = source.new_empty(n, sizes.value_heads, sizes.value_dim)
        self._take(
            (sizes.value_dim // DELTA_COLUMNS, sizes.value_heads, 1),
            self._stream(),
            (
                *(rows, source, target, out, parts.convolution, parts.decay, parts.step_bias),
                *(n, sizes.width, sizes.key_heads, sizes.value_heads, sizes.value_dim),
            ),
        )
        return out
