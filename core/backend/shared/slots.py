"""Attention over all rows of a store, of which each query sees those up to a slot that is data: nothing here
depends on a length.

What a captured pass needs: the same operations on the same tensors whatever the caches hold. Knows no device.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch

log = logging.getLogger(__name__)

# rows of values that one product sums: few queries over many keys then still occupy the whole device
STEP = 128


class ScaledProduct(Protocol):
    """a [b, n, m] @ b [b, m, o] summed in fp32 -> fp32 [b, n, o]."""

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor: ...


def by_bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """See ScaledProduct. 16-bit factors as they are, the sum as it was computed."""
    return torch.bmm(a, b, out_dtype=torch.float32)


def by_float(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """See ScaledProduct. Copies of the factors in fp32: runs anywhere, reads the keys twice."""
    return torch.bmm(a.float(), b.float())


def choose_product(device: torch.device, dtype: torch.dtype) -> ScaledProduct:
    """The product that leaves its factors as they are, where this device has it and it is right."""
    if dtype == torch.float32:
        return by_float  # copies nothing then
    a, b = torch.randn(2, 2, 16, 16, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    try:
        good = torch.allclose(by_bmm(a, b), by_float(a, b), atol=1e-3)
    except (RuntimeError, TypeError) as error:
        log.info(
            "captured attention: no product of 16-bit factors with an fp32 sum (%s)",
            str(error).splitlines()[0],
        )
        return by_float
    return by_bmm if good else by_float


def attend_slots(
    product: ScaledProduct, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: torch.Tensor
) -> torch.Tensor:
    """See Backend.attend_slots. Scores and softmax in fp32."""
    n, heads, head_dim = q.shape
    kv_heads, capacity = k.shape[:2]
    # [kv_heads, n * group, head_dim]
    rows = q.view(n, kv_heads, -1, head_dim).transpose(0, 1).reshape(kv_heads, -1, head_dim)
    # [kv_heads, n * group, capacity]
    scores = product(rows, k.transpose(1, 2)).mul_(head_dim**-0.5)
    hidden = torch.arange(capacity, device=q.device) > slots.view(n, 1, 1)
    scores.view(kv_heads, n, -1, capacity).masked_fill_(hidden, -torch.inf)
    weights = torch.softmax(scores, -1).to(v.dtype)
    step = STEP if capacity % STEP == 0 else capacity
    # [kv_heads * steps, n * group, step]
    parts = weights.unflatten(-1, (-1, step)).transpose(1, 2).flatten(0, 1)
    out = product(parts, v.reshape(-1, step, head_dim)).view(kv_heads, -1, rows.shape[1], head_dim).sum(1)
    return out.view(kv_heads, n, -1, head_dim).transpose(0, 1).reshape(n, heads, head_dim).to(q.dtype)
