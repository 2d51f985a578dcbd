"""Attention by its definition, in fp64, and material to try kernels with."""

from __future__ import annotations

import torch

HEADS, KV_HEADS, DIM, BLOCK = 6, 2, 16, 32


def material(
    n: int,
    length: int,
    *,
    block: int = BLOCK,
    blocks: int | None = None,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
    dim: int = DIM,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [n, heads, dim]; k, v [blocks, kv_heads, block, dim] with nonsense behind `length`, which must never
    be seen.
    """
    dice = torch.Generator().manual_seed(n * 1000 + length)
    blocks = blocks or max(1, -(-length // block))
    q = torch.randn(n, heads, dim, generator=dice)
    k, v = (torch.randn(blocks, kv_heads, block, dim, generator=dice) for _ in range(2))
    behind = torch.arange(blocks * block).view(blocks, 1, block, 1) >= length
    return q.to(dtype), k.masked_fill(behind, 30.0).to(dtype), v.masked_fill(behind, 1e4).to(dtype)


def dense(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out [n, heads, d], lse [n, heads]), both fp64."""
    n = q.shape[0]
    newest = torch.arange(length - n, length) if causal else torch.full((n,), length - 1)
    return seen_to(q, k, v, newest)


def seen_to(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, newest: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `dense`, where query i sees the keys [0, newest[i]]; none when that is -1."""
    heads, dim = q.shape[1:]
    length = int(newest.max()) + 1
    keys, values = (
        part.double()
        .transpose(1, 2)
        .reshape(-1, k.shape[1], dim)[:length]
        .repeat_interleave(heads // k.shape[1], 1)
        for part in (k, v)
    )
    scores = torch.einsum("nhd,mhd->nhm", q.double(), keys) / dim**0.5
    scores.masked_fill_(torch.arange(length) > newest.view(-1, 1, 1), -torch.inf)
    shares = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("nhm,mhd->nhd", shares, values), scores.logsumexp(-1)
