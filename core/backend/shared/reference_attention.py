"""Attention as it is defined, in fp64: what self-tests compare a kernel with."""

from __future__ import annotations

import torch


def defined(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """See Backend.attend_part; in host memory and fp64. Each query sees a key."""
    (n, heads, head_dim), kv_heads = q.shape, k.shape[1]
    q, k, v = (part.cpu().double() for part in (q, k, v))
    # [length, heads, head_dim]
    keys, values = (
        part.transpose(1, 2).reshape(-1, kv_heads, head_dim)[:length].repeat_interleave(heads // kv_heads, 1)
        for part in (k, v)
    )
    scores = torch.einsum("nhd,mhd->nhm", q, keys) * head_dim**-0.5
    if causal:
        hidden = torch.arange(length) > torch.arange(length - n, length)[:, None]
        scores.masked_fill_(hidden[:, None], -torch.inf)
    return torch.einsum("nhm,mhd->nhd", scores.softmax(-1), values), scores.logsumexp(-1)
