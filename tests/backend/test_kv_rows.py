"""Rows of a KV cache: what codes stand for, and that every way to look at rows sees what they stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from core.backend.cpu import backend
from core.backend.cpu.backend import CpuBackend
from core.backend.cpu.native.attention import native_attention
from core.backend.shared import blockwise, library_attention
from core.backend.shared.kv_rows import CODES, as_rows, both_as_rows, dequantized, row_bytes, run_of
from core.cache.selection import mean_key
from core.hardware.cpu import cpu_flags
from tests.support.reference import dense, material

KINDS = [torch.bfloat16, CODES]


def coded(x: torch.Tensor, dtype: torch.dtype = CODES) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, the numbers that they stand for)."""
    rows = as_rows(x, x.shape[-1], dtype)
    return rows, dequantized(rows, x.shape[-1], torch.float32)


@pytest.mark.parametrize("head_dim", [8, 64, 96, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_code_is_the_nearest_of_its_row(head_dim: int, dtype: torch.dtype):
    """Off by half a step at most, rows of any length beside each other; a row of zeros is zeros."""
    x = torch.randn(7, 3, head_dim, generator=torch.Generator().manual_seed(1))
    x = (x * torch.logspace(-6, 4, 7).view(7, 1, 1)).to(dtype)
    x[2, 1] = 0
    rows, back = coded(x)
    step = x.float().abs().amax(-1, keepdim=True) / 127
    assert bool(((back - x.float()).abs() <= 0.5001 * step).all()) and not back[2, 1].any()
    assert rows.dtype == torch.int8 and rows.shape[-1] == row_bytes(head_dim, CODES)
    assert rows.shape[-1] % 16 == 0 and head_dim + 4 <= rows.shape[-1] < head_dim + 20


@pytest.mark.parametrize("n", [1, 64, 65])
def test_keys_and_values_are_coded_together_as_apart(n: int):
    """A few of them in one; of many the 32-bit numbers of both at once would be more than a plan counts."""
    k, v = torch.randn(2, n, 2, 64, generator=torch.Generator().manual_seed(n)).bfloat16()
    got = both_as_rows(k, v, 64, CODES)
    assert all(torch.equal(one, as_rows(part, 64, CODES)) for one, part in zip(got, (k, v), strict=True))
    assert (got[0].untyped_storage().data_ptr() == got[1].untyped_storage().data_ptr()) == (n <= 64)


def test_rows_stay_what_they_are():
    """Numbers that were rows once become the same rows: a row that passes through another cache is the one
    it was, and a row alone is coded as among many.
    """
    x = torch.randn(40, 2, 64, generator=torch.Generator().manual_seed(2))
    rows, back = coded(x)
    assert torch.equal(as_rows(back, 64, CODES), rows) and as_rows(rows, 64, CODES) is rows
    assert torch.equal(as_rows(x[5:6], 64, CODES), rows[5:6])
    assert dequantized(back, 64, torch.float32) is back


def in_blocks() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def attend(*given: torch.Tensor, **named: object) -> tuple[torch.Tensor, torch.Tensor]:
        def library(*part: torch.Tensor, **more: object) -> tuple[torch.Tensor, torch.Tensor]:
            return blockwise.attend_blocks(library_attention.by_matmul, *part, **more)

        return blockwise.attend_decoded(library, *given, **named)

    return attend


WAYS = {
    "compiled": lambda: CpuBackend(native=native_attention(cpu_flags())).attend_part,
    "torch's": lambda: CpuBackend().attend_part,
    "decoded for a library": in_blocks,
}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("piece", [16, 40, 8192])
@pytest.mark.parametrize(
    ("n", "length", "block", "causal"),
    [(1, 100, 32, True), (5, 64, 32, True), (5, 70, 128, False), (60, 130, 32, True), (60, 60, 256, True)],
)
def test_attention_sees_what_the_rows_stand_for(
    dtype, way: str, piece: int, n: int, length: int, block: int, causal: bool, monkeypatch
):
    """Own rows as well as earlier ones, in pieces within a block and over several."""
    monkeypatch.setattr(backend, "PIECE_TOKENS", piece)
    monkeypatch.setattr(blockwise, "PIECE_TOKENS", piece)
    q, k, v = material(n, length, block=block, dim=64)
    (k, seen_k), (v, seen_v) = coded(k, dtype), coded(v, dtype)
    out, lse = WAYS[way]()(q, k, v, length=length, causal=causal)
    want, want_lse = dense(q, seen_k, seen_v, length, causal)
    near = 5e-4 if (way, dtype) == ("compiled", CODES) else 2e-5  # it has 16 bits of a query beside codes
    assert torch.allclose(out.double(), want, atol=near) and torch.allclose(lse.double(), want_lse, atol=near)


@pytest.mark.parametrize("way", ["torch's", "decoded for a library"])
def test_no_more_than_a_piece_is_decoded_at_a_time(way: str, monkeypatch):
    """A block of a whole context, as a card has them, is not there twice."""
    monkeypatch.setattr(backend, "PIECE_TOKENS", 64)
    monkeypatch.setattr(blockwise, "PIECE_TOKENS", 64)
    sizes: list[int] = []

    def noted(*given: object) -> torch.Tensor:
        found = run_of(*given)
        sizes.append(found.untyped_storage().nbytes() // (4 * 2 * 16))
        return found

    monkeypatch.setattr(backend, "run_of", noted)
    monkeypatch.setattr(blockwise, "run_of", noted)
    for block in (1024, 96, 32):
        q, k, v = material(5, 1000, block=block)
        WAYS[way]()(q, coded(k)[0], coded(v)[0], length=1000, causal=True)
    assert max(sizes) == 64


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("piece", [16, 64, 8192])
@pytest.mark.parametrize(("length", "block"), [(1, 64), (64, 64), (100, 48), (300, 512), (700, 256)])
def test_scores_see_what_the_rows_stand_for(dtype, piece: int, length: int, block: int, monkeypatch):
    """Attention's mass and mean keys, by which chunks are chosen."""
    monkeypatch.setattr(blockwise, "PIECE_TOKENS", piece)
    q, k, _ = material(1, length, block=block, dim=64)
    k, seen = coded(k, dtype)
    for score in (CpuBackend().chunk_lse, lambda *given, **named: mean_key(CpuBackend(), *given, **named)):
        got, want = (score(q[0], part, length=length, chunk=16) for part in (k, seen))
        hidden = torch.isneginf(want)
        assert torch.equal(torch.isneginf(got), hidden)
        assert torch.allclose(got[~hidden], want[~hidden], atol=2e-5)
