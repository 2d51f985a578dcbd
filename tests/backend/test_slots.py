"""Which product serves attention over a whole store. That it is attention: test_decode_kernels.py."""

from __future__ import annotations

import pytest
import torch

from core.backend.shared.slots import by_float, choose_product


def test_a_product_that_is_not_there_is_not_used(monkeypatch: pytest.MonkeyPatch):
    """A CPU has none with 16-bit factors and an fp32 sum; and one that is wrong is none."""
    assert choose_product(torch.device("cpu"), torch.bfloat16) is by_float
    monkeypatch.setattr(
        torch, "bmm", lambda a, b, **more: torch.zeros(2, 16, 16) if more else torch.matmul(a, b)
    )
    assert choose_product(torch.device("cpu"), torch.bfloat16) is by_float
