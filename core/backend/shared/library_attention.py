"""Attention kernels that leave their log-sum-exp, from whichever library has one that works here. Knows
nothing of blocks or caches.

A kernel takes q [b, heads, n, d], k and v [b, kv_heads, m, d] (views whose last dimension is contiguous) and
`causal`, which means that the last n keys are the queries' own: query i sees all but the last n - 1 - i. It
returns out [b, heads, n, d] and lse fp32 [b, heads, n]. Three of them lean on operations that their libraries
do not promise to keep, so each is tried on small numbers before it is used.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch

from core.backend.shared.merge import merge_into

log = logging.getLogger(__name__)

_SCORES = 1 << 26  # scores that exist at a time in the plain kernel: 256 MB in fp32
_NUMBERS = 1 << 24  # of keys, and of values, that it copies at a time: 64 MB in fp32
_NO_MASK, _FROM_BOTTOM_RIGHT = 0, 2  # torch's CustomMaskType
_TOLERANCE = 3e-2  # of 16-bit kernels against fp32, for numbers around 1


class LibraryKernel(Protocol):
    """Attention of q [b, heads, n, d] over k and v [b, kv_heads, m, d], all of one dtype. causal: the last n
    keys are the queries' own. Returns out [b, heads, n, d] and the log-sum-exp, fp32 [b, heads, n].
    """

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


def by_flash_attn(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """See LibraryKernel. The flash-attn package, where the user has installed it
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
    """See LibraryKernel. torch's own flash kernel, which the public attention function hides together with
    its log-sum-exp.
    """
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)
    return out, lse


def by_efficient(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """See LibraryKernel. torch's memory-efficient kernel, which its Windows wheels have where they lack the
    flash kernel. It knows no groups: without a mask the queries of a group are rows of one head, with one
    each member of the group sees the same keys once more, without a copy.
    """
    b, heads, n, d = q.shape
    group = heads // k.shape[1]
    if not causal:
        rows = q.unflatten(1, (-1, group)).flatten(2, 3)  # [b, kv_heads, group * n, d]
        out, lse = _efficient(rows, k, v, mask=_NO_MASK)
        return out.reshape(q.shape), lse.reshape(b, heads, n)
    parts = []
    for one, keys, values in zip(q, k, v, strict=True):
        rows = one.unflatten(0, (-1, group)).transpose(0, 1)  # [group, kv_heads, n, d]
        seen = (part.expand(group, -1, -1, -1) for part in (keys, values))
        out, lse = _efficient(rows, *seen, mask=_FROM_BOTTOM_RIGHT)
        parts.append((out.transpose(0, 1).flatten(0, 1), lse.transpose(0, 1).flatten(0, 1)))
    outs, lses = zip(*parts, strict=True)
    return torch.stack(outs), torch.stack(lses)


def _efficient(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, mask: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """q [b, h, n, d], k and v [b, h, m, d]. The log-sum-exp comes padded to a multiple of 32 rows."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    out, lse, *_ = torch.ops.aten._efficient_attention_forward(
        q, k, v, None, None, None, None, None, 0.0, mask, True
    )
    return out.transpose(1, 2), lse[..., : q.shape[1]]


def by_matmul(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """See LibraryKernel. Matrix products and a softmax in fp32, as many queries and keys at a time as memory
    allows: runs anywhere, and never copies more than `_NUMBERS` keys.
    """
    b, heads, n, d = q.shape
    kv_heads, m = k.shape[1:3]
    step = max(1, _NUMBERS // (b * kv_heads * d))
    out, lse = torch.zeros(q.shape, device=q.device), torch.full((b, heads, n), -torch.inf, device=q.device)
    for first in range(0, m, step):
        keys, values = (part[:, :, first : first + step].float() for part in (k, v))
        rows_at_once = max(1, _SCORES // (b * heads * keys.shape[2]))
        for start in range(0, n, rows_at_once):
            rows = slice(start, start + rows_at_once)
            # query i sees keys up to m - n + i
            hidden = m - n + start - first if causal else None
            merge_into(out[:, :, rows], lse[:, :, rows], *_products(q[:, :, rows], keys, values, hidden))
    return out.to(q.dtype), lse


def _products(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, last: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """In fp32. `last`: the last key that the first query sees, the next sees one more. None: all."""
    (b, heads, n, d), kv_heads = q.shape, k.shape[1]
    # a group's queries are rows of one product: keys are not repeated
    rows = q.float().reshape(b, kv_heads, -1, d) * d**-0.5
    scores = torch.matmul(rows, k.transpose(-1, -2)).view(b, kv_heads, -1, n, k.shape[2])
    if last is not None:
        seen = torch.arange(last, last + n, device=q.device)
        scores.masked_fill_(torch.arange(k.shape[2], device=q.device) > seen.unsqueeze(1), -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores.sub_(torch.where(torch.isinf(lse), 0.0, lse).unsqueeze(-1)))
    out = torch.matmul(weights.flatten(2, 3), v)
    return out.view(b, heads, n, d), lse.view(b, heads, n)


def choose_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> LibraryKernel:
    """The first kernel that works for these, the plain one at last."""
    for kernel in (by_flash_attn, by_torch, by_efficient):
        problem = _problem(kernel, device, dtype, head_dim)
        if problem is None:
            log.info("attention: %s, for heads of %d in %s", kernel.__name__, head_dim, dtype)
            return kernel
        log.info("attention: not %s (%s)", kernel.__name__, problem)
    log.warning("attention: plain matrix products, for heads of %d in %s", head_dim, dtype)
    return by_matmul


def _problem(kernel: LibraryKernel, device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
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
