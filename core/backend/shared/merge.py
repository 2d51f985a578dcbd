"""Attention over disjoint sets of keys, joined by their log-sum-exps. Knows no device."""

from __future__ import annotations

import torch


def merge(
    out: torch.Tensor, lse: torch.Tensor, other_out: torch.Tensor, other_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Joins attention over two disjoint sets of keys by log-sum-exp (fp32). A side with lse = -inf
    contributes nothing.

    out [n, heads, head_dim], lse [n, heads]. Source: FlashDecoding's split reduction,
    https://arxiv.org/abs/2205.14135 section 3.1.
    """
    top = torch.maximum(lse, other_lse)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    a, b = torch.exp(lse - top), torch.exp(other_lse - top)  # [n, heads]
    total = a + b
    safe = torch.where(total == 0, torch.ones_like(total), total)
    merged = (out * a.unsqueeze(-1) + other_out * b.unsqueeze(-1)) / safe.unsqueeze(-1)
    return merged, torch.log(total) + top


def merge_into(
    out: torch.Tensor, lse: torch.Tensor, other_out: torch.Tensor, other_lse: torch.Tensor
) -> None:
    """As `merge`, into `out` [n, heads, head_dim] and `lse` [n, heads] themselves, both fp32: nothing of
    their size is made on the way. `other_out` may be of 16 bits.
    """
    total = torch.logaddexp(lse, other_lse)  # -inf of two that are
    top = torch.where(torch.isinf(total), torch.zeros_like(total), total)
    out.mul_(torch.exp(lse - top).unsqueeze(-1))
    out.addcmul_(other_out, torch.exp(other_lse - top).unsqueeze(-1))
    lse.copy_(total)


def merge_all(out: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """As `merge`, of all parts at once: out [parts, ..., head_dim] and lse [parts, ...] give [..., head_dim];
    each row needs a finite lse. The log-sum-exp of the whole is that of lse over the parts.
    """
    return (out * torch.softmax(lse, 0).unsqueeze(-1)).sum(0)
