"""Calls the compiled kernels of delta_kernel.py and delta_chunk_kernel.py: rows of a layer with a gated delta
rule, their convolution and gates among them, few in one launch, and those of a prefill in two for 512. Knows
no caches or models.

Which columns of a state a program takes follows from the layer alone, and it takes rows one after the other:
a row among few has the bits it has alone. Chunks of a prefill begin anew every 16 rows: how many of them come
at once changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from core.backend.base import DeltaParts
from core.backend.cuda.triton.driver import CudaDriver, read_kernel
from core.backend.cuda.triton.sizes import DELTA_CHUNK, DELTA_COLUMNS, DELTA_KEYS, DELTA_TAPS, compiled_delta

_AT_ONCE = 512  # rows of a prefill between whose two launches something is kept: 12 MB at most
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


class CardDeltaChunks:
    """Likewise, of the many rows of a prefill; for layers that CardDelta takes."""

    def __init__(self, driver: CudaDriver, dtype: torch.dtype, *, stream: Callable[[], int]) -> None:
        self._dtype, self._stream = dtype, stream
        self._compare, self._take = (
            driver.load(read_kernel(compiled_delta(dtype, name)))
            for name in ("compare_chunks", "take_chunks")
        )

    def through(self, parts: DeltaParts, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See DeltaSteps of core.backend.base: rows [kernel - 1 + n, width], n a multiple of 64, to fp32 [n,
        value_heads, value_dim].
        """
        sizes = parts.sizes
        n, tail = rows.shape[0] - sizes.kernel + 1, sizes.kernel - 1
        assert rows.dtype == self._dtype and rows.shape[1] == sizes.width, (rows.dtype, rows.shape)
        assert n % DELTA_CHUNK == 0 and state.is_contiguous() and rows.is_contiguous(), n
        most = min(n, _AT_ONCE)
        between = (
            rows.new_empty(most, sizes.key_heads, 4, sizes.key_dim, dtype=torch.bfloat16),
            *state.new_empty(2, most // DELTA_CHUNK, sizes.value_heads, DELTA_CHUNK, DELTA_CHUNK),
        )
        factors = parts.convolution, parts.decay, parts.step_bias
        heads = sizes.width, sizes.key_heads, sizes.value_heads
        out = state.new_empty(n, sizes.value_heads, sizes.value_dim)
        for start in range(0, n, _AT_ONCE):
            some, found = rows[start : start + _AT_ONCE + tail], out[start : start + _AT_ONCE]
            self._compare(
                (len(found) // DELTA_CHUNK, sizes.value_heads, 1),
                self._stream(),
                (some, *between, *factors, *heads),
            )
            self._take(
                (sizes.value_dim // DELTA_COLUMNS, sizes.value_heads, 1),
                self._stream(),
                (some, state, state, found, *between, *factors, len(found), *heads, sizes.value_dim),
            )
        return out
