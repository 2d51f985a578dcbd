"""Attention kernels that leave their log-sum-exp, from whichever library has one that works here. Knows
nothing of blocks or caches.

A kernel takes q [b, heads, n, d], k and v [b, kv_heads, m, d] (views whose last dimension is contiguous) and
`causal`, which means that the last n keys are the queries' own: query i sees all but the last n - 1 - i. It
returns out [b, heads, n, d] and lse fp32 [b, heads, n]. Two of them lean on operations that their libraries
do not promise to keep, so each is tried on small numbers before it is used.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch

log = logging.getLogger(__name__)

_SCORES = 1 << 26  # scores that exist at a time in the plain kernel: 256 MB in fp32
_TOLERANCE = 3e-2  # of 16-bit kernels against fp32, for numbers around 1


class Kernel(Protocol):
    """See above."""

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


def by_flash_attn(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The flash-attn package, where the user has installed it
    (https://github.com/Dao-AILab/flash-attention).
    """
    from flash_attn import flash_attn_func

    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    # the third is empty without dropout
    out, lse, _ = flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    return out.transpose(1, 2), lse


def by_torch(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's own flash kernel, which the public attention function hides together with its log-sum-exp."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    return out, lse


def by_matmul(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Matrix products and a softmax in fp32, as many queries at a time as memory allows: runs anywhere."""
    b, heads, n, d = q.shape
    kv_heads, m = k.shape[1:3]
    k, v = k.float(), v.float()
    out, lse = torch.empty(q.shape, dtype=q.dtype, device=q.device), torch.empty(b, heads, n, device=q.device)
    step = max(1, _SCORES // (b * heads * m))
    for start in range(0, n, step):
        # [b, kv_heads, group, rows, d]
        rows = q[:, :, start : start + step].unflatten(1, (kv_heads, -1)).float()
        # [b, kv_heads, group, rows, m]
        scores = torch.matmul(rows * d**-0.5, k.unsqueeze(2).transpose(-1, -2))
        if causal:
            last = torch.arange(m - n + start, m - n + start + rows.shape[3], device=q.device)
            scores.masked_fill_(torch.arange(m, device=q.device) > last.unsqueeze(1), -torch.inf)
        out[:, :, start : start + step] = torch.matmul(torch.softmax(scores, -1), v.unsqueeze(2)).flatten(
            1, 2
        )
        lse[:, :, start : start + step] = torch.logsumexp(scores, -1).flatten(1, 2)
    return out, lse


def choose(device: torch.device, dtype: torch.dtype, head_dim: int) -> Kernel:
    """The first kernel that works for these, the plain one at last."""
    for kernel in (by_flash_attn, by_torch):
        problem = _problem(kernel, device, dtype, head_dim)
        if problem is None:
            log.info("attention: %s, for heads of %d in %s", kernel.__name__, head_dim, dtype)
            return kernel
        log.info("attention: not %s (%s)", kernel.__name__, problem)
    log.warning("attention: plain matrix products, for heads of %d in %s", head_dim, dtype)
    return by_matmul


def _problem(kernel: Kernel, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """What is wrong with a kernel: whether it runs, takes grouped heads, views and one query for several key
    sets, aligns causal rows.
    """
    dice = torch.Generator().manual_seed(0)
    for n, m, causal in (
        (1, 40, False),
        (5, 40, False),
        (1, 37, True),
        (5, 37, True),
        (70, 133, True),
        (64, 64, True),
    ):
        q = torch.randn(1, 4, n, head_dim, generator=dice).to(device, dtype).expand(2, -1, -1, -1)
        k, v = (
            torch.randn(2, 2, m + 3, head_dim, generator=dice).to(device, dtype)[:, :, :m] for _ in range(2)
        )
        want, want_lse = by_matmul(q, k, v, causal=causal)
        try:
            out, lse = kernel(q, k, v, causal=causal)
        except (ImportError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            return (str(error).splitlines() or [type(error).__name__])[0]
        if out.shape != want.shape or lse.shape != want_lse.shape:
            return f"it returns {tuple(out.shape)} and {tuple(lse.shape)} for {n} rows over {m} keys"
        off = max(float((out.float() - want.float()).abs().max()), float((lse - want_lse).abs().max()))
        if not off < _TOLERANCE:
            return f"it is off by {off:.2g} for {n} rows over {m} keys, causal {causal}"
    return None
