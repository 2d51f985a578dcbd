"""A flash attention kernel by imitation."""

from __future__ import annotations

import torch


def flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Takes what torch's flash kernel takes of memory: the result and its log-sum-exp."""
    for part in (q, k, v):
        assert part.stride(-1) == 1
    b, heads, n, _ = q.shape
    return torch.empty_like(q), torch.empty(b, heads, n, dtype=torch.float32, device=q.device)
