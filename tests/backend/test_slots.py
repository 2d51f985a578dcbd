"""Attention over a whole store, hidden behind each query's slot, against the definition in fp64."""

from __future__ import annotations

import pytest
import torch

from core.backend.cpu import CpuBackend
from core.backend.slots import STEP, by_float, choose


def defined(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: list[int]) -> torch.Tensor:
    """Row by row and head by head over the rows that are seen."""
    group, out = q.shape[1] // k.shape[0], torch.zeros(q.shape, dtype=torch.float64)
    for i, slot in enumerate(slots):
        for head in range(q.shape[1]):
            keys, values = (part[head // group, : slot + 1].double() for part in (k, v))
            out[i, head] = torch.softmax(keys @ q[i, head].double() * q.shape[-1] ** -0.5, 0) @ values
    return out


@pytest.mark.parametrize("capacity", [2 * STEP, STEP + 9], ids=["in steps", "in one"])
@pytest.mark.parametrize("kv_heads", [6, 2], ids=["MHA", "GQA"])
@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("slots", [[0], [130], [126, 127, 128, 129], [5, 3, 100]])
def test_it_is_attention(slots: list[int], dtype: torch.dtype, off: float, kv_heads: int, capacity: int):
    """Over the border of a step, from the very first row, with huge numbers in the rows that nobody sees."""
    dice = torch.Generator().manual_seed(0)
    q = torch.randn(len(slots), 6, 16, generator=dice).to(dtype)
    k, v = torch.randn(2, kv_heads, capacity, 16, generator=dice).to(dtype)
    k[:, max(slots) + 1 :], v[:, max(slots) + 1 :] = 1e4, 1e4
    got = CpuBackend(dtype).attend_slots(q, k, v, slots=torch.tensor(slots))
    assert got.dtype == dtype and float((got.double() - defined(q, k, v, slots)).abs().max()) < off


def test_a_product_that_is_not_there_is_not_used(monkeypatch: pytest.MonkeyPatch):
    """A CPU has none with 16-bit factors and an fp32 sum; and one that is wrong is none."""
    assert choose(torch.device("cpu"), torch.bfloat16) is by_float
    monkeypatch.setattr(
        torch, "bmm", lambda a, b, **more: torch.zeros(2, 16, 16) if more else torch.matmul(a, b)
    )
    assert choose(torch.device("cpu"), torch.bfloat16) is by_float
