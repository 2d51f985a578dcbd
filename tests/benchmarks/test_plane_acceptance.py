"""The upper halves of 8-bit rows, and how their drafts are judged."""

from __future__ import annotations

import pytest
import torch

from benchmarks.quality.plane_acceptance import PLANES, accepted, plane_tokens, rounded, turned
from tests.support.tiny import oracle, ours


def test_upper_halves_are_codes_without_their_lower_bits():
    """Of the largest number 127 becomes 112; what is nearest 0 is 0, and a group has a scale of its own."""
    row = torch.tensor([[127.0, 56.0, 7.0, -127.0]])
    assert rounded(row, upper=True).tolist() == [[112.0, 64.0, 0.0, -128.0]]
    assert rounded(row, upper=False).tolist() == row.tolist()
    one, other = rounded(torch.cat((row, row / 8), 1), upper=True, group=4).split(4, 1)
    assert torch.allclose(one, 8 * other)


def test_turning_back_leaves_what_nothing_rounds():
    rows = torch.randn(3, 64)
    assert torch.allclose(turned(rows, lambda x: x), rows, atol=1e-5)


def test_as_many_bytes():
    """Of 64 numbers upper halves and a factor take 36 bytes, 16-bit numbers 128."""
    assert plane_tokens(4096, 64) == 1152


@pytest.mark.wide
def test_what_reads_all_is_always_accepted(monkeypatch):
    """Planes that lose nothing, and a retrieval cache of all of a short text, are the law itself."""
    monkeypatch.setitem(PLANES, "all", lambda x: rounded(x, upper=False))
    model = ours(oracle(head_dim=32))
    dice = torch.Generator().manual_seed(2)
    found = accepted(model, torch.randint(0, 97, (90,), generator=dice).tolist(), 66)
    assert min(found["all"].values()) > 0.999
    assert found["a scale per row"]["T 1"] < 0.999
