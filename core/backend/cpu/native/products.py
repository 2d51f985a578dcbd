"""Loads products.c's library for this computer and calls it. torch decodes and multiplies where there is
none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from pathlib import Path

import torch

from core.backend.cpu.native.library import ThreadTeam, entry_points, library_path, load_checked
from core.backend.shared.quantized import CHUNK, QuantizedMatrix
from core.backend.shared.quantized_example import KINDS, example

MOST_PARTS = 4
_FIELDS = ("low", "high", "scale", "offset", "scale_steps", "offset_steps")
_INSTEAD = "weights in codes are decoded by torch"
_DOT_PRODUCTS = "avx512_vnni"  # without it the registers of AVX2 serve better
_COARSE_ERROR = 0.01  # of the sum of all products' sizes: inputs to 8 bits in spans of 256 are a third of it


class QuantizedCall(ctypes.Structure):
    """struct planes of products.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _FIELDS),
        ("rows", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("bits", "group", "middle", "unused")),
    ]


class ProductCall(ctypes.Structure):
    """struct product of products.h."""

    _fields_ = [
        ("parts", QuantizedCall * MOST_PARTS),
        *((name, ctypes.c_void_p) for name in ("x", "out", "scratch", "decoded")),
        *((name, ctypes.c_int64) for name in ("first", "count", "columns")),
        *((name, ctypes.c_int32) for name in ("n", "num_parts", "as_bf16")),
        ("team", ThreadTeam),
        ("before", ctypes.c_char * 64),
        *((name, ctypes.c_int32) for name in ("next", "seats")),
        ("behind", ctypes.c_char * 56),
    ]


class NativeProducts:
    """One library's kernel for one instruction set. Raises OSError where it cannot be loaded.

    `openmp`: the OpenMP library whose threads it runs on, by path; None: on the caller's thread alone.
    `coarse`: the inputs of few rows are rounded to 8 bits, which is quicker; another rounding than that of
    all other products, for what only drafts.
    """

    def __init__(
        self, path: Path, instructions: str, *, openmp: Path | None = None, coarse: bool = False
    ) -> None:
        library = ctypes.CDLL(str(path))
        self.instructions = instructions
        self._run = getattr(library, f"{'coarse' if coarse else 'multiply'}_{instructions}")
        self.entry = ctypes.cast(self._run, ctypes.c_void_p).value
        # of each thread, for a matrix of so many columns
        self.scratch_floats = getattr(library, f"{'coarse' if coarse else 'scratch'}_floats_{instructions}")
        self._run.restype, self.scratch_floats.restype = None, ctypes.c_int64
        self.scratch_floats.argtypes = (ctypes.c_int64,)
        self._threads = entry_points(openmp) if openmp is not None else {}
        self._scratch = torch.empty(0)

    def multiply(
        self, x: torch.Tensor, parts: Sequence[QuantizedMatrix], bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [n, columns] times the transposed matrices, one above the other, and `bias` fp32 [sum of rows]:
        [n, sum of rows] of x's type.
        """
        inputs = x.float().contiguous()
        assert all(inputs.shape[1] == part.columns for part in parts), [part.columns for part in parts]
        out = inputs.new_empty(inputs.shape[0], sum(part.rows for part in parts))
        self._call(parts, x=inputs.data_ptr(), out=out.data_ptr(), n=inputs.shape[0])
        return (out if bias is None else out.add_(bias)).to(x.dtype)

    def decode(self, planes: QuantizedMatrix, out: torch.Tensor, *, first: int = 0) -> torch.Tensor:
        """Writes the weights of as many rows as `out` [rows, columns] (fp32 or bf16, contiguous) has, from
        row `first` on. Returns `out`.
        """
        assert out.is_contiguous() and first + out.shape[0] <= planes.rows, (out.stride(), first, planes.rows)
        as_bf16 = {torch.float32: 0, torch.bfloat16: 1}[out.dtype]
        where = {"decoded": out.data_ptr(), "first": first, "count": out.shape[0]}
        self._call([planes], as_bf16=as_bf16, **where)
        return out

    def team(self) -> ThreadTeam:
        """The threads that a call is to use now."""
        return ThreadTeam(threads=torch.get_num_threads(), **self._threads)

    def _call(self, parts: Sequence[QuantizedMatrix], **given: int) -> None:
        columns, team = parts[0].columns, self.team()
        assert len(parts) <= MOST_PARTS and columns % CHUNK == 0, f"{len(parts)} parts of {columns} columns"
        floats = team.threads * self.scratch_floats(columns)
        if self._scratch.numel() < floats:
            self._scratch = torch.empty(floats)
        call = ProductCall(
            parts=(QuantizedCall * MOST_PARTS)(*map(matrix_call, parts)),
            scratch=self._scratch.data_ptr(),
            columns=columns,
            num_parts=len(parts),
            team=team,
            **given,
        )
        self._run(ctypes.byref(call))


def matrix_call(planes: QuantizedMatrix) -> QuantizedCall:
    """Where the planes lie. They are contiguous: they were made so."""
    tensors = {name: getattr(planes, name) for name in _FIELDS}
    assert all(part is None or part.is_contiguous() for part in tensors.values())
    places = {name: part.data_ptr() for name, part in tensors.items() if part is not None}
    return QuantizedCall(
        rows=planes.rows, bits=planes.bits, group=planes.group, middle=planes.middle, **places
    )


def native_products(cpu_flags: Collection[str]) -> NativeProducts | None:
    """The kernel for a CPU with these flags (names as in /proc/cpuinfo); None where there is none that
    works.
    """
    return load_checked(
        library_path("products"),
        cpu_flags,
        lambda path, instructions, openmp: NativeProducts(path, instructions, openmp=openmp),
        _agrees,
        _INSTEAD,
    )


def coarse_products(cpu_flags: Collection[str]) -> NativeProducts | None:
    """The kernel that rounds its inputs, likewise."""
    suited = set(cpu_flags) if _DOT_PRODUCTS in cpu_flags else set(cpu_flags) - {"avx512f"}
    return load_checked(
        library_path("products"),
        suited,
        lambda path, instructions, openmp: NativeProducts(path, instructions, openmp=openmp, coarse=True),
        _nearly_agrees,
        "drafts are verified by exact products",
    )


def _examples(dice: torch.Generator) -> list[QuantizedMatrix]:
    numbers = torch.randn(5, 512, generator=dice).bfloat16()
    return [*(example(kind, dice) for kind in KINDS), QuantizedMatrix.of_numbers(numbers)]


def _agrees(kernel: NativeProducts) -> bool:
    """Against torch's decoding: every format, few rows and many."""
    dice = torch.Generator().manual_seed(0)
    for planes in _examples(dice):
        weights = planes.decoded()
        x = torch.randn(6, planes.columns, generator=dice)
        want = x.double() @ weights.double().t()
        if not torch.equal(kernel.decode(planes, torch.empty_like(weights)), weights):
            return False
        for n in (1, 3, 6):
            if not torch.allclose(kernel.multiply(x[:n], [planes]).double(), want[:n], atol=1e-3):
                return False
    return True


def _nearly_agrees(kernel: NativeProducts) -> bool:
    """Against torch's decoding: every format, within what rounding the inputs may do."""
    dice = torch.Generator().manual_seed(0)
    for planes in _examples(dice):
        weights = planes.decoded()
        x = torch.randn(6, planes.columns, generator=dice)
        found, most = kernel.multiply(x, [planes]) - x @ weights.t(), x.abs() @ weights.abs().t()
        if not bool((found.abs() <= _COARSE_ERROR * most).all()):
            return False
    return True
