"""Loads delta.c's library for this computer and calls it: layers with a gated delta rule. torch's form serves
where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from pathlib import Path

import torch

from core.backend.base import DeltaParts
from core.backend.cpu.native.library import ThreadTeam, entry_points, library_path, load_checked
from core.backend.shared.delta_example import ExampleSizes, delta_by_definition, example_layer, example_rows

_MOST_KEYS, _STEP = 256, 16


class _DeltaCall(ctypes.Structure):
    """struct delta of delta.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "source", "target", "out")),
        *((name, ctypes.c_void_p) for name in ("convolution", "decay", "step_bias")),
        *((name, ctypes.c_int64) for name in ("n", "width")),
        *((name, ctypes.c_int32) for name in ("kernel", "key_heads", "value_heads", "key_dim", "value_dim")),
        ("team", ThreadTeam),
        ("before", ctypes.c_char * 64),
        ("next", ctypes.c_int32),
        ("behind", ctypes.c_char * 60),
    ]


class NativeDelta:
    """One library's kernel for one instruction set. Raises OSError where it cannot be loaded.

    `openmp`: the OpenMP library whose threads it runs on, by path; None: on the caller's thread alone.
    """

    def __init__(self, path: Path, instructions: str, *, openmp: Path | None = None) -> None:
        library = ctypes.CDLL(str(path))
        self.instructions = instructions
        self._run = getattr(library, f"delta_{instructions}")
        self._run.restype = None
        self._threads = entry_points(openmp) if openmp is not None else {}

    @staticmethod
    def takes(parts: DeltaParts) -> bool:
        """Whether a layer of these sizes is for this kernel."""
        sizes = parts.sizes
        even = sizes.key_dim % _STEP == 0 and sizes.value_dim % _STEP == 0
        return even and sizes.key_dim <= _MOST_KEYS

    def through(
        self, parts: DeltaParts, source: torch.Tensor, target: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        """See DeltaRows of core.backend.base: rows [kernel - 1 + n, width] to fp32 [n, value_heads,
        value_dim].
        """
        sizes, rows = parts.sizes, rows.float().contiguous()
        n = rows.shape[0] - sizes.kernel + 1
        assert source.is_contiguous() and target.is_contiguous() and rows.shape[1] == sizes.width
        out = rows.new_empty(n, sizes.value_heads, sizes.value_dim)
        call = _DeltaCall(
            rows=rows.data_ptr(),
            source=source.data_ptr(),
            target=target.data_ptr(),
            out=out.data_ptr(),
            convolution=parts.convolution.data_ptr(),
            decay=parts.decay.data_ptr(),
            step_bias=parts.step_bias.data_ptr(),
            n=n,
            width=sizes.width,
            kernel=sizes.kernel,
            key_heads=sizes.key_heads,
            value_heads=sizes.value_heads,
            key_dim=sizes.key_dim,
            value_dim=sizes.value_dim,
            team=ThreadTeam(threads=torch.get_num_threads(), **self._threads),
        )
        self._run(ctypes.byref(call))
        return out


def native_delta(cpu_flags: Collection[str]) -> NativeDelta | None:
    """The kernel for a CPU with these flags (names as in /proc/cpuinfo); None where there is none that
    works.
    """
    return load_checked(
        library_path("delta"),
        cpu_flags,
        lambda path, instructions, openmp: NativeDelta(path, instructions, openmp=openmp),
        _agrees,
        "layers with a state run on torch",
    )


def _agrees(kernel: NativeDelta) -> bool:
    """Against the definition in fp64, over more rows than are made ready at once."""
    sizes, dice = ExampleSizes(2, 4, 32, 48), torch.Generator().manual_seed(0)
    parts = example_layer(sizes, dice)
    source, rows = example_rows(sizes, 37, dice)
    target = torch.empty_like(source)
    found = kernel.through(parts, source, target, rows)
    want, want_state = delta_by_definition(parts, source, rows)
    near = torch.allclose(found.double(), want, atol=1e-4)
    return near and torch.allclose(target.double(), want_state, atol=1e-4)
