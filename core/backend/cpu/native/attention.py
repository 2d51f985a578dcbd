"""Loads attention.c's library for this computer and calls it. torch's kernel serves where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from pathlib import Path

import torch

from core.backend.base import ScoreRequest
from core.backend.cpu.native.library import ThreadTeam, entry_points, library_path, load_checked
from core.backend.shared.compiled import CPU_HEAD_DIMS
from core.backend.shared.kv_rows import CODES, as_rows, dequantized
from core.backend.shared.reference_attention import defined

KINDS = {torch.float32: 0, torch.bfloat16: 1, CODES: 2}
_TILE = 64  # keys; chunks are parts of it
_MOST_KV_HEADS = 256


class AttentionCall(ctypes.Structure):
    """struct attention of attention.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "lse", "scratch", "chunk_lse")),
        *((name, ctypes.c_int64) for name in ("length", "chunks", "block_bytes", "head_bytes", "row_bytes")),
        *((name, ctypes.c_int32) for name in ("kind", "n", "heads", "kv_heads", "head_dim", "block_tokens")),
        *((name, ctypes.c_int32) for name in ("causal", "chunk")),
        ("team", ThreadTeam),
        ("before", ctypes.c_char * 64),
        ("next", ctypes.c_int32),
        ("done", ctypes.c_int32 * _MOST_KV_HEADS),
        ("behind", ctypes.c_char * 64),
    ]


class NativeAttention:
    """One library's kernel for one instruction set. Raises OSError where it cannot be loaded.

    `openmp`: the OpenMP library whose threads it runs on, by path; None: on the caller's thread alone.
    """

    def __init__(self, path: Path, instructions: str, *, openmp: Path | None = None) -> None:
        library = ctypes.CDLL(str(path))
        self.instructions = instructions
        self._run: Callable[..., None] = getattr(library, f"attend_{instructions}")
        self.entry = ctypes.cast(self._run, ctypes.c_void_p).value
        self._scratch: Callable[..., int] = getattr(library, f"scratch_floats_{instructions}")
        self._chunks: Callable[..., None] = getattr(library, f"chunks_{instructions}")
        self._run.restype, self._chunks.restype, self._scratch.restype = None, None, ctypes.c_int64
        self._threads = entry_points(openmp) if openmp is not None else {}

    @staticmethod
    def takes(q: torch.Tensor, k: torch.Tensor) -> bool:
        """Whether q [n, heads, head_dim] over keys like k is for this kernel."""
        return q.shape[-1] in CPU_HEAD_DIMS and NativeAttention.takes_rows(k)

    @staticmethod
    def takes_rows(k: torch.Tensor) -> bool:
        """Whether keys like k [blocks, kv_heads, block_tokens, width] are for this kernel."""
        return k.dtype in KINDS and k.shape[1] <= _MOST_KV_HEADS

    def scratch_floats(self, call: AttentionCall) -> int:
        """Numbers of work space that the call needs."""
        return self._scratch(ctypes.byref(call))

    @staticmethod
    def lay_out(call: AttentionCall, k: torch.Tensor, v: torch.Tensor, *, n: int, length: int) -> None:
        """Says where the rows of a cache lie, k and v [blocks, kv_heads, block_tokens, width], and how many
        of them are filled for how many queries.
        """
        block, head, row, number = strides = k.stride()
        assert strides == v.stride() and number == 1, f"{strides} is not the layout of a KV cache"
        size = k.element_size()
        call.k, call.v, call.n, call.length = k.data_ptr(), v.data_ptr(), n, length
        call.block_bytes, call.head_bytes, call.row_bytes = block * size, head * size, row * size
        call.kind, call.block_tokens = KINDS[k.dtype], k.shape[2]

    @staticmethod
    def leave(call: AttentionCall, sums: ScoreRequest | None, k: torch.Tensor, *before: int) -> None:
        """Has a call that is laid out leave sums of its scores over k's keys where they are asked for and can
        be: sums.found is fp32 [*before, heads, chunks].
        """
        call.chunk_lse = None
        if sums is None or not NativeAttention.takes_chunk(k, sums.chunk):
            return
        call.chunk, call.chunks = sums.chunk, k.shape[0] * k.shape[2] // sums.chunk
        sums.found = torch.full((*before, call.heads, call.chunks), -torch.inf)
        call.chunk_lse = sums.found.data_ptr()

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        length: int,
        causal: bool,
        sums: ScoreRequest | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See Backend.attend_part. k and v are of one layout, their rows and heads contiguous.

        Rows are what core.backend.shared.kv_rows makes of them: numbers, or codes and then one float32.
        """
        n, heads, head_dim = q.shape
        queries = q.float().contiguous()
        out, lse = queries.new_empty(n, heads, head_dim), queries.new_empty(n, heads)
        call = AttentionCall(
            q=queries.data_ptr(),
            out=out.data_ptr(),
            lse=lse.data_ptr(),
            heads=heads,
            kv_heads=k.shape[1],
            head_dim=head_dim,
            causal=causal,
            team=ThreadTeam(threads=torch.get_num_threads(), **self._threads),
        )
        self.lay_out(call, k, v, n=n, length=length)
        self.leave(call, sums, k)
        scratch = queries.new_empty(self.scratch_floats(call))
        call.scratch = scratch.data_ptr()
        self._run(ctypes.byref(call))
        return out, lse

    @staticmethod
    def takes_chunks(q: torch.Tensor, k: torch.Tensor, chunk: int) -> bool:
        """Whether `chunk_lse` of q [heads, head_dim] is for this kernel."""
        return NativeAttention.takes(q, k) and NativeAttention.takes_chunk(k, chunk)

    @staticmethod
    def takes_chunk(k: torch.Tensor, chunk: int) -> bool:
        """Whether sums over `chunk` keys at a time, of k [blocks, kv_heads, block_tokens, width], are for
        this kernel.
        """
        return _TILE % chunk == 0 and k.shape[2] % chunk == 0

    def chunk_lse(self, q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
        """See Backend.chunk_lse."""
        (blocks, kv_heads, block_tokens, _width), (heads, head_dim) = k.shape, q.shape
        queries, chunks = q.float().contiguous(), blocks * block_tokens // chunk
        found = queries.new_full((heads, chunks), -torch.inf)
        call = AttentionCall(
            q=queries.data_ptr(),
            chunk_lse=found.data_ptr(),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            chunks=chunks,
            chunk=chunk,
            team=ThreadTeam(threads=torch.get_num_threads(), **self._threads),
        )
        self.lay_out(call, k, k, n=1, length=length)
        self._chunks(ctypes.byref(call))
        return found


def native_attention(cpu_flags: Collection[str]) -> NativeAttention | None:
    """The kernel for a CPU with these flags (names as in /proc/cpuinfo); None where there is none that
    works.
    """
    return load_checked(
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
    for dtype in KINDS:
        k, v = (as_rows(part, 64, dtype) for part in (keys, values))
        seen = (dequantized(part, 64, torch.float32) for part in (k, v))
        out, lse = kernel.attend(q, k, v, length=length, causal=True)
        want, want_lse = defined(q, *seen, length=length, causal=True)
        near = 5e-4 if dtype == CODES else 1e-5  # queries and weights have 16 bits beside codes
        pairs = ((out, want), (lse, want_lse))
        if not all(torch.allclose(got.double(), right, atol=near) for got, right in pairs):
            return False
    return True
