"""Loads delta.c's library for this computer and calls it: layers with a gated delta rule. torch's form serves
where there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from core.backend.base import DeltaParts
from core.backend.cpu.native.library import ThreadTeam, entry_points, library_path, load_checked

_MOST_KEYS, _STEP = 256, 16
_LEAST_LENGTH = 1e-6


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


class _Sizes(NamedTuple):
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 32
    value_dim: int = 48
    kernel: int = 4
    width: int = 2 * 2 * 32 + 4 * 48 + 2 * 4


class _Example(NamedTuple):
    """See DeltaParts."""

    sizes: _Sizes
    convolution: torch.Tensor
    decay: torch.Tensor
    step_bias: torch.Tensor


def _agrees(kernel: NativeDelta) -> bool:
    """Against the definition in fp64, over more rows than are made ready at once."""
    sizes, dice = _Sizes(), torch.Generator().manual_seed(0)
    channels = sizes.width - 2 * sizes.value_heads
    convolution = torch.randn(sizes.kernel, channels, generator=dice) * 0.5
    decay, bias = torch.randn(2, sizes.value_heads, generator=dice)
    parts = _Example(sizes, convolution, -decay.abs(), bias)
    rows = torch.randn(sizes.kernel - 1 + 37, sizes.width, generator=dice)
    source = torch.randn(sizes.value_heads, sizes.key_dim, sizes.value_dim, generator=dice)
    target = torch.empty_like(source)
    found = kernel.through(parts, source, target, rows)
    want, want_state = delta_by_definition(parts, source, rows)
    near = torch.allclose(found.double(), want, atol=1e-4)
    return near and torch.allclose(target.double(), want_state, atol=1e-4)


def delta_by_definition(
    parts: DeltaParts, state: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """By the definition, in fp64: what is found [n, value_heads, value_dim], and the state behind the
    rows.
    """
    sizes, rows, state = parts.sizes, rows.double(), state.double()
    n, found = rows.shape[0] - sizes.kernel + 1, []
    channels, keys = sizes.width - 2 * sizes.value_heads, sizes.key_heads * sizes.key_dim
    for at in range(n):
        taps = rows[at : at + sizes.kernel, :channels] * parts.convolution.double()
        q, k, v = F.silu(taps.sum(0)).split((keys, keys, channels - 2 * keys))
        v = v.view(sizes.value_heads, sizes.value_dim)
        q, k = (part.view(sizes.key_heads, sizes.key_dim) for part in (q, k))
        q, k = (part * torch.rsqrt(part.square().sum(-1, keepdim=True) + _LEAST_LENGTH) for part in (q, k))
        q, k = (part.repeat(sizes.value_heads // sizes.key_heads, 1) for part in (q, k))
        corrected, kept = rows[at + sizes.kernel - 1, channels:].chunk(2)
        kept = (parts.decay.double() * F.softplus(kept + parts.step_bias.double())).exp()
        state = state * kept[:, None, None]
        lacking = (v - torch.einsum("hk,hkv->hv", k, state)) * corrected.sigmoid()[:, None]
        state = state + k[:, :, None] * lacking[:, None]
        found.append(torch.einsum("hk,hkv->hv", q, state) * sizes.key_dim**-0.5)
    return torch.stack(found), state
