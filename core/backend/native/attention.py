"""Loads attention.c's library for this computer and calls it. torch's kernel serves where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from pathlib import Path

import torch

from core.backend.definition import defined
from core.backend.kv_rows import CODES, as_rows, numbers
from core.backend.native.library import Team, entry_points, library_path, loaded

HEAD_DIMS = (64, 128)
_KINDS = {torch.float32: 0, torch.bfloat16: 1, CODES: 2}
_MOST_KV_HEADS = 256


class _Call(ctypes.Structure):
    """struct attention of attention.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "lse", "scratch")),
        *((name, ctypes.c_int64) for name in ("length", "block_bytes", "head_bytes", "row_bytes")),
        *((name, ctypes.c_int32) for name in ("kind", "n", "heads", "kv_heads", "head_dim", "block_tokens")),
        ("causal", ctypes.c_int32),
        ("team", Team),
        ("next", ctypes.c_int32),
        ("done", ctypes.c_int32 * _MOST_KV_HEADS),
    ]


class NativeAttention:
    """One library's kernel for one instruction set. Raises OSError where it cannot be loaded.

    `openmp`: the OpenMP library whose threads it runs on, by path; None: on the caller's thread alone.
    """

    def __init__(self, path: Path, instructions: str, *, openmp: Path | None = None) -> None:
        library = ctypes.CDLL(str(path))
        self.instructions = instructions
        self._run: Callable[..., None] = getattr(library, f"attend_{instructions}")
        self._scratch: Callable[..., int] = getattr(library, f"scratch_floats_{instructions}")
        self._run.restype, self._scratch.restype = None, ctypes.c_int64
        self._threads = entry_points(openmp) if openmp is not None else {}

    @staticmethod
    def takes(q: torch.Tensor, k: torch.Tensor) -> bool:
        """Whether q [n, heads, head_dim] over keys like k is for this kernel."""
        return q.shape[-1] in HEAD_DIMS and k.dtype in _KINDS and k.shape[1] <= _MOST_KV_HEADS

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend.attend_part. k and v are of one layout, their rows and heads contiguous.

        Rows are what core.backend.kv_rows makes of them: numbers, or codes and then one float32.
        """
        n, heads, head_dim = q.shape
        queries = q.float().contiguous()
        out, lse = queries.new_empty(n, heads, head_dim), queries.new_empty(n, heads)
        size = k.element_size()
        block_bytes, head_bytes, row_bytes = (k.stride(axis) * size for axis in range(3))
        assert k.stride() == v.stride() and k.stride(3) == 1, f"{k.stride()} is not the layout of a KV cache"
        call = _Call(
            q=queries.data_ptr(),
            k=k.data_ptr(),
            v=v.data_ptr(),
            out=out.data_ptr(),
            lse=lse.data_ptr(),
            length=length,
            block_bytes=block_bytes,
            head_bytes=head_bytes,
            row_bytes=row_bytes,
            kind=_KINDS[k.dtype],
            n=n,
            heads=heads,
            kv_heads=k.shape[1],
            head_dim=head_dim,
            block_tokens=k.shape[2],
            causal=causal,
            team=Team(threads=torch.get_num_threads(), **self._threads),
        )
        scratch = queries.new_empty(self._scratch(ctypes.byref(call)))
        call.scratch = scratch.data_ptr()
        self._run(ctypes.byref(call))
        return out, lse


def native_attention(cpu_flags: Collection[str]) -> NativeAttention | None:
    """The kernel for a CPU with these flags (names as in /proc/cpuinfo); None where there is none that
    works.
    """
    return loaded(
        library_path("attention"),
        cpu_flags,
        lambda path, instructions, openmp: NativeAttention(path, instructions, openmp=openmp),
        _agrees,
        "attention runs on torch's kernel",
    )


def _agrees(kernel: NativeAttention) -> bool:
    """Against dense softmax: several units and blocks, own rows, a group of two, every kind of row."""
    dice = torch.Generator().manual_seed(0)
    q = torch.randn(3, 4, 64, generator=dice)
    keys, values = torch.randn(2, 2, 2, 640, 64, generator=dice)
    length = 700
    for dtype in _KINDS:
        k, v = (as_rows(part, 64, dtype) for part in (keys, values))
        seen = (numbers(part, 64, torch.float32) for part in (k, v))
        out, lse = kernel.attend(q, k, v, length=length, causal=True)
        want, want_lse = defined(q, *seen, length=length, causal=True)
        if not torch.allclose(out.double(), want, atol=1e-5):
            return False
        if not torch.allclose(lse.double(), want_lse, atol=1e-5):
            return False
    return True
