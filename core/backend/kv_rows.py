"""How a row of keys or values lies in a KV cache. The type of the cache's tensors says it: numbers of that
type, which need not be the one computed with.

Caches, copies and files move rows without knowing what is in them; only who appends, attends and scores
looks inside, through this module.
"""

from __future__ import annotations

import torch


def row_width(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of `dtype` that a row of `head_dim` numbers takes."""
    return head_dim


def row_bytes(head_dim: int, dtype: torch.dtype) -> int:
    """Bytes that a row takes."""
    return row_width(head_dim, dtype) * dtype.itemsize


def row_format(dtype: torch.dtype) -> str:
    """The name of such rows in files."""
    return str(dtype).removeprefix("torch.")


def as_rows(x: torch.Tensor, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """x [..., head_dim], or rows of another cache, as rows of `dtype` [..., width]; x itself where it is
    that.
    """
    return x.to(dtype)


def numbers(rows: torch.Tensor, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """What rows [..., width] stand for: [..., head_dim] of `dtype`, the rows themselves where they are
    that.
    """
    return rows.to(dtype)


def run_of(blocks: torch.Tensor, start: int, end: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows [start, end) of block-major [blocks, kv_heads, block_tokens, width] as numbers [kv_heads, end -
    start, head_dim]; a copy.
    """
    _, kv_heads, block_tokens, _ = blocks.shape
    first, inside = divmod(start, block_tokens)
    # [kv_heads, blocks, block_tokens, width]
    touched = blocks[first : -(-end // block_tokens)].transpose(0, 1)
    if touched.shape[1] == 1:
        touched, inside = touched[:, :, inside : inside + end - start], 0
    run = torch.empty(*touched.shape[:3], head_dim, dtype=dtype, device=blocks.device)
    run.copy_(touched)
    return run.view(kv_heads, -1, head_dim)[:, inside : inside + end - start]
