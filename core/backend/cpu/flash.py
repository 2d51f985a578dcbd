"""Whether torch's flash attention for CPUs can be used, and what serves in its place."""

from __future__ import annotations

import logging

import torch
import torch.nn.functional as F

log = logging.getLogger(__name__)


def matmul_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q [1, h, n, d] over k, v [1, h, m, d] with an additive mask [n, m]: out of q's shape, and
    the log-sum-exp of the scaled scores, fp32 [1, h, n].
    """
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    return (F.softmax(scores, -1) @ v.float()).to(q.dtype), lse


def flash_works(dtype: torch.dtype) -> bool:
    """The flash kernel is a private operation: use it only where it exists and agrees with plain matrix
    products.
    """
    q, k, v = torch.randn(3, 1, 2, 8, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    try:
        out, lse = torch._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    except (RuntimeError, AttributeError, TypeError) as error:
        log.warning("torch's CPU flash attention is not usable (%s); prefill uses matrix products", error)
        return False
    want, want_lse = matmul_attention(q, k, v, True)
    good = torch.allclose(out.float(), want.float(), atol=3e-2) and torch.allclose(
        lse.float(), want_lse, atol=3e-2
    )
    if not good:
        log.warning(
            "torch's CPU flash attention disagrees with matrix products; prefill uses matrix products"
        )
    return good
