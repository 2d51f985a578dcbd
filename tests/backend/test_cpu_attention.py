"""The CPU backend's attention against dense softmax in fp64, in every shape the caches ask for."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu import backend as cpu
from core.backend.cpu.backend import CpuBackend
from core.backend.shared.merge import merge
from tests.support.attention_cases import SHAPES
from tests.support.reference import BLOCK, dense, material


@pytest.mark.parametrize(("n", "length", "causal"), SHAPES)
def test_attention_equals_dense(n: int, length: int, causal: bool):
    """Few rows and many, a block's border inside and outside the rows' own square."""
    q, k, v = material(n, length)
    want, want_lse = dense(q, k, v, length, causal)
    backend = CpuBackend()
    assert torch.allclose(backend.attend(q, k, v, length=length, causal=causal).double(), want, atol=2e-5)
    out, lse = backend.attend_part(q, k, v, length=length, causal=causal)
    assert out.dtype == lse.dtype == torch.float32
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("n", "length", "causal"),
    [(60, 130, True), (60, 320, True), (33, 64, True), (60, 300, False), (60, 60, True)],
)
@pytest.mark.parametrize("piece", [1, 40, 64, 256])
def test_many_rows_see_all_keys_whatever_the_pieces(
    n: int, length: int, causal: bool, wide: bool, piece: int, monkeypatch
):
    """Pieces inside a block, across blocks and larger than all; keys held in bfloat16 multiplied in float32
    too.
    """
    monkeypatch.setattr(cpu, "PIECE_TOKENS", piece)
    q, k, v = material(n, length)
    storage = torch.bfloat16 if wide else torch.float32
    k, v = k.to(storage), v.to(storage)
    want, want_lse = dense(q, k, v, length, causal)
    backend = CpuBackend(storage=storage)
    out, lse = backend.attend_part(q, k, v, length=length, causal=causal)
    assert out.dtype == lse.dtype == torch.float32
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)
    whole = backend.attend(q, k, v, length=length, causal=causal)
    assert whole.dtype == torch.float32 and torch.equal(whole, out)


@pytest.mark.parametrize("n", [1, 5, 60])
def test_one_block_of_the_whole_capacity(n: int):
    """The streaming cache's layout: one block, most of it empty."""
    q, k, v = material(n, 70, block=128, blocks=1)
    want, _ = dense(q, k, v, 70, True)
    assert torch.allclose(CpuBackend().attend(q, k, v, length=70, causal=True).double(), want, atol=2e-5)


@pytest.mark.parametrize(("n", "split"), [(1, 1), (1, 2), (4, 1), (4, 2), (60, 1)])
def test_parts_merge_to_the_whole(n: int, split: int):
    """Past blocks without a mask, the rows' own blocks with one, joined by log-sum-exp: what offloading does
    block by block.
    """
    length = 3 * BLOCK
    q, k, v = material(n, length)
    backend = CpuBackend()
    past = backend.attend_part(q, k[:split], v[:split], length=split * BLOCK, causal=False)
    own = backend.attend_part(q, k[split:], v[split:], length=length - split * BLOCK, causal=True)
    out, lse = merge(*past, *own)
    want, want_lse = dense(q, k, v, length, True)
    assert torch.allclose(out.double(), want, atol=2e-5) and torch.allclose(lse.double(), want_lse, atol=2e-5)


def test_nothing_to_see_is_zero_and_minus_infinity_never_nan():
    """An empty part contributes nothing, on either side of a merge and on both."""
    q, k, v = material(2, 40)
    backend = CpuBackend()
    empty = backend.attend_part(q, k, v, length=0, causal=False)
    assert bool((empty[0] == 0).all()) and bool((empty[1] == -torch.inf).all())
    full = backend.attend_part(q, k, v, length=40, causal=False)
    for pair in ((empty, full), (full, empty)):
        assert all(
            torch.equal(got, want) or torch.allclose(got, want)
            for got, want in zip(merge(*pair[0], *pair[1]), full, strict=True)
        )
    out, lse = merge(*empty, *empty)
    assert bool((out == 0).all()) and bool((lse == -torch.inf).all())


def test_rms_norm():
    """By the definition, also for values so small that eps decides."""
    x = torch.randn(5, 24, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [1e-4, 1.0, 50.0, 1e-2, 3.0]
    ).unsqueeze(1)
    weight = torch.rand(24, generator=torch.Generator().manual_seed(1)) + 0.5
    want = x.double() / (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert torch.allclose(CpuBackend().rms_norm(x, weight, 1e-5).double(), want, rtol=1e-5, atol=1e-6)


def test_lengths_of_all_kinds_take_few_products_in_16_bits(monkeypatch):
    """torch compiles one for each pair of row counts and keeps it for ever: a tenth of a megabyte each."""
    backend, seen, generator = CpuBackend(torch.bfloat16), set(), torch.Generator().manual_seed(5)
    flash = CpuBackend._flash

    def noted(self, q, k, v, *, causal, mask=None):
        seen.add((q.shape[2] % 256, k.shape[2] % 512))
        return flash(self, q, k, v, causal=causal, mask=mask)

    monkeypatch.setattr(CpuBackend, "_flash", noted)
    for at in range(40):
        n, past = (int(torch.randint(low, 400, (), generator=generator)) for low in (100, 0))
        causal = at % 4 > 0
        length = past + n if causal else past + 1
        q = torch.randn(n, 2, 16, generator=generator).bfloat16()
        k, v = torch.randn(2, 1, 1, 1000, 16, generator=generator).bfloat16()
        out, lse = backend.attend_part(q, k, v, length=length, causal=causal)
        keys, values = (part[0, :, :length].float() for part in (k, v))
        scores = torch.einsum("nhd,lmd->hnm", q.float(), keys) * 16**-0.5
        if causal:
            scores += torch.full((n, length), -torch.inf).triu(1 + length - n)
        assert torch.allclose(lse.t(), torch.logsumexp(scores, -1), atol=2e-2)
        assert torch.allclose(out.transpose(0, 1), scores.softmax(-1) @ values, atol=3e-2)
    assert all(rows % 32 == keys % 32 == 0 for rows, keys in seen), seen
