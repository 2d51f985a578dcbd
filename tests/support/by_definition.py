"""The next-token logits of a Llama by their definition in fp64, over the KV rows that a cache has kept: what
they come to does not depend on how many rows any pass had.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from core.backend.shared.kv_rows import CODES, dequantized
from core.backend.shared.reference_attention import defined

KeptRows = Sequence[tuple[torch.Tensor, torch.Tensor]]  # of each layer: k, v [tokens, kv_heads, width]


def logits_over(reference: torch.nn.Module, newest: int, kept: KeptRows) -> tuple[torch.Tensor, float]:
    """(logits fp64 [vocab] behind `newest`, the last of the tokens whose rows are `kept`; by how many steps
    of its code a number of its own rows is off at most). `reference`: transformers' model.
    """
    model, head_dim = reference.model, reference.config.head_dim
    cos, sin = _rotation(reference, len(kept[0][0]) - 1)
    x, steps = model.embed_tokens.weight[newest].double(), 0.0
    for layer, rows in zip(model.layers, kept, strict=True):
        attention, own = layer.self_attn, _normed(x, layer.input_layernorm)
        q, k, v = (
            _times(part, own).view(-1, head_dim)
            for part in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = (part * cos + torch.cat(part.chunk(2, -1)[::-1], -1) * sin for part in (q, k))
        steps = max(steps, *(_steps(part, row[-1]) for part, row in zip((k, v), rows, strict=True)))
        seen = (dequantized(row, head_dim, torch.float32).transpose(0, 1)[None] for row in rows)
        found, _ = defined(q[None], *seen, length=len(rows[0]), causal=True)
        x = x + _times(attention.o_proj, found.flatten())
        mlp, own = layer.mlp, _normed(x, layer.post_attention_layernorm)
        inner = functional.silu(_times(mlp.gate_proj, own)) * _times(mlp.up_proj, own)
        x = x + _times(mlp.down_proj, inner)
    return _times(reference.lm_head, _normed(x, model.norm)), steps


def _times(linear: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return linear.weight.double() @ x


def _normed(x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
    return functional.rms_norm(x, x.shape, norm.weight.double(), norm.variance_epsilon)


def _rotation(reference: torch.nn.Module, position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin) [head_dim] for this position, sin with the sign that its half takes."""
    angles = position * reference.model.rotary_emb.inv_freq.double()
    return angles.cos().repeat(2), torch.cat((-angles.sin(), angles.sin()))


def _steps(wanted: torch.Tensor, row: torch.Tensor) -> float:
    """How far a row of codes [kv_heads, width] is from numbers [kv_heads, head_dim], in steps of its code."""
    assert row.dtype == CODES, row.dtype
    kept = dequantized(row, wanted.shape[-1], torch.float32).double()
    step = kept.abs().amax(-1, keepdim=True) / 127
    return float(((wanted - kept).abs() / step).max())
