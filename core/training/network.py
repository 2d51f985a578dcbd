"""The draft as an ordinary trainable network that sees exactly what StreamingKVCache will show it. Knows
nothing of data or optimisers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from core.model.config import ModelConfig
from core.model.families import FAMILIES
from core.model.rope import Rope, apply


class DraftNetwork(nn.Module):
    """Decoder layers between the target's frozen embedding and a head of the rows `head_ids` of the target's
    output matrix.

    Only the layers and the last norm are trained. Token t attends to the sinks, to the `window` tokens before
    it and to itself, which is what a StreamingLLM cache holds when t is fed (https://arxiv.org/abs/2309.17453
    section 3.2). Rotations follow slots: within the window distances are the true ones, and from `sinks +
    window` on every query stands at that slot, so the sinks keep the distance they have in use.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        layers: int,
        embedding: torch.Tensor,
        head: torch.Tensor,
        sinks: int,
        window: int,
    ) -> None:
        super().__init__()
        self.config, self.sinks, self.window = config, sinks, window
        self.layers = nn.ModuleList(DraftLayer(config) for _ in range(layers))
        self.norm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.register_buffer("embedding", embedding, persistent=False)  # [vocab, hidden]
        self.register_buffer("head", head, persistent=False)  # [head, hidden]
        self._rope: tuple[int, Rope] | None = None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The last hidden states [batch, n, hidden], normalised, of ids [batch, n]; see `logits`."""
        n = ids.shape[1]
        places = SequencePositions(n, self.sinks, self.window, self._rotation(n), ids.device)
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            x = layer(x, places)
        return self.norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., head] over the tokens of the head."""
        return F.linear(hidden, self.head)

    def _rotation(self, n: int) -> Rope:
        """A table for positions [0, n): how far apart two tokens may be."""
        positions = max(n, self.sinks + self.window + 1)
        if self._rope is None or self._rope[0] < positions:
            self._rope = (
                positions,
                Rope(self.config, positions, dtype=torch.float32, device=self.embedding.device),
            )
        return self._rope[1]


class SequencePositions:
    """Where a sequence's tokens stand: rotations, and who sees whom in blocks of `window` queries."""

    def __init__(self, n: int, sinks: int, window: int, rope: Rope, device: torch.device) -> None:
        self.sinks, self.window, self.blocks = min(sinks, n), window, -(-n // window)
        tokens = torch.arange(n, device=device)
        # cos, sin [n, 1, head_dim]
        self.true = rope.at(tokens)[""][:2]
        self.slot = rope.at(tokens.clamp(max=sinks + window))[""][:2]
        queries = torch.arange(self.blocks * window, device=device).view(-1, window, 1)
        keys = torch.arange(2 * window, device=device) + window * (
            torch.arange(self.blocks, device=device).view(-1, 1, 1) - 1
        )
        # [blocks, window, 2 * window]
        near = (keys >= sinks) & (keys <= queries) & (keys >= queries - window)
        first = torch.arange(self.sinks, device=device) <= queries  # [blocks, window, sinks]
        self.seen = torch.cat((first, near), dim=-1)


class DraftLayer(nn.Module):
    """One decoder layer of the Llama family, its parameters named as in a checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.self_attn = WindowedAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, eps=config.norm_eps)
        self.mlp = GatedMlp(config)

    def forward(self, x: torch.Tensor, places: SequencePositions) -> torch.Tensor:
        """x [batch, n, hidden] -> the same."""
        x = x + self.self_attn(self.input_layernorm(x), places)
        return x + self.mlp(self.post_attention_layernorm(x))


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden] -> [..., hidden]"""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class WindowedAttention(nn.Module):
    """Attention to sinks and window in blocks: block i of `window` queries looks at key blocks i - 1 and i
    and at the sinks.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        bias = FAMILIES[config.family].biased or bool(config.source.get("attention_bias"))
        self.q_proj = nn.Linear(config.hidden, config.heads * config.head_dim, bias=bias)
        self.k_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=bias)
        self.v_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=bias)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)
        normed = FAMILIES[config.family].normed
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if normed else None
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if normed else None

    def forward(self, x: torch.Tensor, places: SequencePositions) -> torch.Tensor:
        """x [batch, n, hidden] -> the same, before the residual."""
        batch, n, _ = x.shape
        q, k, v = (
            project(x).view(batch, n, -1, self.head_dim)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        # [batch, blocks * window, heads, head_dim]
        mixed = self._attend(q, k, v, places)
        return self.o_proj(mixed[:, :n].flatten(2))

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, places: SequencePositions
    ) -> torch.Tensor:
        rotated_k = apply(k, *places.true)
        near_q, near_k = self._queries(apply(q, *places.true), places), self._near(rotated_k, places)
        far_q, far_k = self._queries(apply(q, *places.slot), places), _first(rotated_k, places.sinks)
        scores = torch.cat(
            (far_q @ far_k.transpose(-1, -2), near_q @ near_k.transpose(-1, -2)), dim=-1
        ).float()
        # as the queries' rows
        seen = places.seen.repeat_interleave(self.heads // self.kv_heads, dim=1).unsqueeze(1)
        weights = (scores * self.head_dim**-0.5).masked_fill(~seen, -torch.inf).softmax(-1).to(v.dtype)
        far, near = weights.split((places.sinks, 2 * places.window), dim=-1)
        out = far @ _first(v, places.sinks) + near @ self._near(v, places)
        # [batch, blocks, kv_heads, window * group, head_dim]
        batch, blocks, _, rows, _ = out.shape
        out = out.view(batch, blocks, self.kv_heads, places.window, -1, self.head_dim)
        return out.transpose(2, 3).reshape(batch, blocks * places.window, -1, self.head_dim)

    def _queries(self, q: torch.Tensor, places: SequencePositions) -> torch.Tensor:
        """[batch, n, heads, head_dim] -> [batch, blocks, kv_heads, window * group, head_dim]"""
        batch = q.shape[0]
        rows = _padded(q, places.blocks * places.window - q.shape[1]).view(
            batch, places.blocks, places.window, self.kv_heads, -1, self.head_dim
        )
        return rows.transpose(2, 3).reshape(batch, places.blocks, self.kv_heads, -1, self.head_dim)

    def _near(self, k: torch.Tensor, places: SequencePositions) -> torch.Tensor:
        """[batch, n, kv_heads, head_dim] -> keys of the block before and of the block, [batch, blocks,
        kv_heads, 2 * window, head_dim]
        """
        batch = k.shape[0]
        padded = F.pad(k, (0, 0, 0, 0, places.window, places.blocks * places.window - k.shape[1]))
        rows = padded.view(batch, places.blocks + 1, places.window, self.kv_heads, self.head_dim)
        return torch.cat((rows[:, :-1], rows[:, 1:]), dim=2).transpose(2, 3)


def _padded(x: torch.Tensor, more: int) -> torch.Tensor:
    return F.pad(x, (0, 0, 0, 0, 0, more))


def _first(x: torch.Tensor, sinks: int) -> torch.Tensor:
    """[batch, n, kv_heads, head_dim] -> the sinks, [batch, 1, kv_heads, sinks, head_dim]"""
    return x[:, :sinks].transpose(1, 2).unsqueeze(1)
