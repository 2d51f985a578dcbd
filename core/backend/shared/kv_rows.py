"""How a row of keys or values lies in a KV cache. The type of the cache's tensors says it: numbers of that
type, which need not be the one computed with, or, of int8, codes and behind them what they are to be
multiplied by.

Caches, copies and files move rows without knowing what is in them; only who appends, attends and scores looks
inside, through this module. A code is the nearest whole number of 127ths of the row's largest: what
`dequantized` gives back is off by at most half of one. A row ends at a multiple of 16 bytes, so that any part
of a block is one run for each head, and rows can be read 16 bytes at a time.
"""

from __future__ import annotations

import torch

CODES = torch.int8
_WHOLE = 16  # bytes that a row of codes ends at a multiple of
_MOST = 127
_FEW = 64  # rows, of which both keys and values may be numbers of 32 bits at once
_LEAST = _MOST * torch.finfo(torch.float32).tiny  # of a row's largest number: of zeros the codes are 0


def row_width(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of `dtype` that a row of `head_dim` numbers takes."""
    if dtype != CODES:
        return head_dim
    return -(-(head_dim + torch.float32.itemsize) // _WHOLE) * _WHOLE


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
    if x.dtype == dtype:
        return x
    if dtype == CODES:
        return _coded(x)
    return dequantized(x, head_dim, dtype)


def both_as_rows(
    k: torch.Tensor, v: torch.Tensor, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """`as_rows` of both, k and v [n, kv_heads, head_dim] or rows of another cache. A few with one set of
    operations: launching them is what they take on a card.
    """
    if k.dtype == dtype:
        return k, v
    if len(k) > _FEW:
        return as_rows(k, head_dim, dtype), as_rows(v, head_dim, dtype)
    k, v = as_rows(torch.stack((k, v)), head_dim, dtype)
    return k, v


def dequantized(rows: torch.Tensor, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """What rows [..., width] stand for: [..., head_dim] of `dtype`, the rows themselves where they are
    that.
    """
    if rows.dtype == dtype:
        return rows
    found = torch.empty(*rows.shape[:-1], head_dim, dtype=dtype, device=rows.device)
    return _decode(rows, found)


def run_of(blocks: torch.Tensor, start: int, end: int, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows [start, end) of block-major [blocks, kv_heads, block_tokens, width] as numbers [kv_heads, end -
    start, head_dim]; a copy.
    """
    _, kv_heads, block_tokens, _ = blocks.shape
    run = torch.empty(kv_heads, end - start, head_dim, dtype=dtype, device=blocks.device)
    at = start
    while at < end:
        block, inside = divmod(at, block_tokens)
        count = min(block_tokens - inside, end - at)
        _decode(blocks[block, :, inside : inside + count], run[:, at - start : at - start + count])
        at += count
    return run


def _coded(x: torch.Tensor) -> torch.Tensor:
    """x [..., head_dim] as codes with their factor behind them."""
    head_dim, x = x.shape[-1], x.float()
    factor = x.abs().amax(-1, keepdim=True).clamp_(min=_LEAST).div_(_MOST)
    rows = x.new_zeros((*x.shape[:-1], row_width(head_dim, CODES)), dtype=CODES)
    rows[..., :head_dim] = x.div(factor).round_()
    rows[..., head_dim : head_dim + factor.itemsize] = factor.view(CODES)
    return rows


def _decode(rows: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Writes what `rows` stand for into `into` [..., head_dim], and returns that."""
    if rows.dtype != CODES:
        return into.copy_(rows)
    head_dim = into.shape[-1]
    place = head_dim // torch.float32.itemsize
    factor = rows.view(torch.float32)[..., place : place + 1]
    return into.copy_(rows[..., :head_dim]).mul_(factor)
