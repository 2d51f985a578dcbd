"""Attention over block-major keys by kernels that take one contiguous run of keys per head. Knows no
device.
"""

from __future__ import annotations

import torch

from core.backend.base import joined, merge
from core.backend.kernels import Kernel

# up to here all whole blocks go into one launch, as if each were a sequence of its own
_FEW_ROWS = 64

Part = tuple[torch.Tensor, torch.Tensor]  # out fp32 [n, heads, head_dim], lse fp32 [n, heads]


def attend_blocks(
    kernel: Kernel, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, length: int, causal: bool
) -> Part:
    """See Backend.attend_part.

    Blocks wholly before the queries' own rows are seen by every query. What is left lies in the block where
    the own rows begin, which the kernel can take with them; rows that run over the end of that block are
    gathered first.
    """
    n, block_tokens = q.shape[0], k.shape[2]
    if length == 0:
        return torch.zeros_like(q, dtype=torch.float32), q.new_full(
            q.shape[:2], -torch.inf, dtype=torch.float32
        )
    past = length - n if causal else length
    whole, rest = divmod(past, block_tokens)
    parts = list(_whole_blocks(kernel, q, k[:whole], v[:whole]))
    if causal and rest + n <= block_tokens:
        parts.append(_run(kernel, q, k[whole, :, : rest + n], v[whole, :, : rest + n], causal=True))
    else:
        if rest:
            parts.append(_run(kernel, q, k[whole, :, :rest], v[whole, :, :rest], causal=False))
        if causal:
            parts.append(_run(kernel, q, *(_rows(part[whole:], rest, n) for part in (k, v)), causal=True))
    total = parts[0]
    for part in parts[1:]:
        total = merge(*total, *part)
    return total


def _whole_blocks(kernel: Kernel, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[Part]:
    if k.shape[0] == 0:
        return []
    if q.shape[0] > _FEW_ROWS:
        return [_run(kernel, q, keys, values, causal=False) for keys, values in zip(k, v, strict=True)]
    # [blocks, heads, n, head_dim]
    rows = q.transpose(0, 1).unsqueeze(0).expand(k.shape[0], -1, -1, -1).contiguous()
    out, lse = kernel(rows, k, v, causal=False)
    return [(joined(out.float(), lse).transpose(0, 1), torch.logsumexp(lse, 0).t())]


def _run(kernel: Kernel, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Part:
    """One run of keys k, v [kv_heads, m, head_dim]."""
    out, lse = kernel(q.transpose(0, 1).unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), causal=causal)
    return out[0].transpose(0, 1).float(), lse[0].t()


def _rows(blocks: torch.Tensor, start: int, n: int) -> torch.Tensor:
    """Rows [start, start + n) of blocks [blocks, kv_heads, block_tokens, head_dim] as [kv_heads, n, head_dim]
    (a copy).
    """
    used = -(-(start + n) // blocks.shape[2])
    return blocks[:used].transpose(0, 1).flatten(1, 2)[:, start : start + n]


def chunk_lse(q: torch.Tensor, k: torch.Tensor, *, length: int, chunk: int) -> torch.Tensor:
    """See Backend.chunk_lse. Products in the keys' own type, sums in fp32."""
    blocks, kv_heads, block_tokens, head_dim = k.shape
    rows = (q * head_dim**-0.5).view(1, kv_heads, -1, head_dim)
    # [blocks, kv_heads, group, block_tokens]
    scores = torch.matmul(rows, k.transpose(-1, -2)).float()
    hidden = torch.arange(blocks * block_tokens, device=k.device).view(blocks, 1, 1, block_tokens) >= length
    scores.masked_fill_(hidden, -torch.inf)
    top = scores.amax((0, 3), keepdim=True)
    # [blocks, kv_heads, group, chunks]
    sums = (scores - top).exp_().unflatten(-1, (-1, chunk)).sum(-1)
    return (sums.log_() + top).permute(1, 2, 0, 3).reshape(q.shape[0], -1)
