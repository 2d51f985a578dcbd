"""A Llama's layers as a function of their weights, for texts with several questions each, with gradients by
weight. Knows nothing of data, adapters or optimisers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from core.model.config import ModelConfig
from core.model.rope import Rope, apply

_ROUND = 64  # ids
_BLOCK = 256  # queries of the text that share one set of keys
FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


@dataclass(frozen=True, slots=True)
class Packed:
    """One text followed by branches, each a question with its answer. A branch sees the text and itself only,
    and its positions go on from the text's end, so that it reads exactly what it would read alone.
    """

    ids: torch.Tensor  # [n]
    text: int  # so many ids are the text
    branches: tuple[int, ...]  # lengths of the branches, which fill the rest
    weight: torch.Tensor  # [n]: of predicting this id from those before it

    def positions(self) -> torch.Tensor:
        """Position of each id, [n]."""
        own = [torch.arange(self.text, self.text + length) for length in self.branches]
        return torch.cat((torch.arange(self.text), *own))

    def before(self) -> torch.Tensor:
        """Index of the id before each id in its own reading, [n]; the first one's is 0."""
        index = torch.arange(len(self.ids)) - 1
        start = self.text
        for length in self.branches:
            index[start] = self.text - 1
            start += length
        return index.clamp(min=0)

    def hidden_from(self) -> torch.Tensor:
        """bool [n - text, n]: what each id of the branches does not see."""
        n = len(self.ids)
        owner = torch.repeat_interleave(torch.arange(len(self.branches)), torch.tensor(self.branches))
        places = torch.arange(n)
        seen = places[None] < self.text
        own = (places[None] >= self.text) & (places[None] <= places[self.text :, None])
        same = torch.zeros(n - self.text, n, dtype=torch.bool)
        same[:, self.text :] = owner[:, None] == owner[None]
        return ~(seen | (own & same))


@dataclass(frozen=True, slots=True)
class Joined:
    """Several packed texts end to end, read in one pass, where none sees another: for a device that a short
    pass leaves idle. Filled up with ids that nobody sees to a round length, which its kernels want.
    """

    ids: torch.Tensor  # [n], as all but the last
    positions: torch.Tensor
    lesson: torch.Tensor  # which text
    branch: torch.Tensor  # which of its branches, from 1; 0: the text
    before: torch.Tensor  # of those learned: index of the id before, [m] as the next two
    learned: torch.Tensor  # indices
    weight: torch.Tensor

    @staticmethod
    def of(held: Sequence[Packed], device: torch.device) -> Joined:
        """The texts on a device; each tensor is moved once."""
        parts: list[list[torch.Tensor]] = [[] for _ in range(7)]
        start = 0
        for number, one in enumerate(held):
            lengths = torch.tensor([one.text, *one.branches])
            learned = one.weight.nonzero().squeeze(-1)
            values = (
                one.ids,
                one.positions(),
                torch.full((len(one.ids),), number),
                torch.repeat_interleave(torch.arange(len(lengths)), lengths),
                one.before()[learned] + start,
                learned + start,
                one.weight[learned],
            )
            for part, value in zip(parts, values, strict=True):
                part.append(value)
            start += len(one.ids)
        for part, value in zip(parts[:4], (0, 0, len(held), 0), strict=True):
            part.append(torch.full((-start % _ROUND,), value))
        return Joined(*(torch.cat(part).to(device) for part in parts))

    def bias(self, dtype: torch.dtype) -> torch.Tensor:
        """What is added to attention's scores, [n, n]: nothing, or minus infinity where nothing is seen."""
        place = torch.arange(len(self.ids), device=self.ids.device)
        seen = (self.lesson[:, None] == self.lesson[None]) & (place[None] <= place[:, None])
        seen &= (self.branch[None] == 0) | (self.branch[:, None] == self.branch[None])
        return torch.zeros(seen.shape, dtype=dtype, device=place.device).masked_fill_(~seen, float("-inf"))


class Network:
    """The decoder with `weights` by layer: fused matrices under the names of FUSED, which may carry
    gradients, and norms that do not.
    """

    def __init__(
        self, config: ModelConfig, *, embedding: torch.Tensor, norm: torch.Tensor, positions: int
    ) -> None:
        assert config.tied, "only a model that shares its embedding with its output is taught"
        self.config, self._embedding, self._norm = config, embedding, norm
        self._rope = Rope(config, positions, dtype=embedding.dtype, device=embedding.device)

    def loss(self, packed: Packed, layers: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
        """Cross entropy of the ids, each times its weight, summed."""
        hidden = self.hidden(packed, layers)
        learned = packed.weight.nonzero().squeeze(-1)
        logits = F.linear(hidden[packed.before()[learned]], self._embedding).float()
        each = F.cross_entropy(logits, packed.ids[learned], reduction="none")
        return (each * packed.weight[learned]).sum()

    def joined_loss(self, joined: Joined, layers: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
        """The sum of what `loss` gives for each of the texts, as one pass."""
        bias = joined.bias(self._embedding.dtype)
        hidden = self._through(joined.ids, joined.positions, layers, partial(_biased, bias=bias))
        logits = F.linear(hidden[joined.before], self._embedding).float()
        each = F.cross_entropy(logits, joined.ids[joined.learned], reduction="none")
        return (each * joined.weight).sum()

    def hidden(self, packed: Packed, layers: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
        """The last hidden states, normalised, [n, hidden]."""
        hidden_from = packed.hidden_from()

        def mixed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return BranchedAttention.apply(q, k, v, packed.text, hidden_from)

        return self._through(packed.ids, packed.positions(), layers, mixed)

    def _through(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        layers: Sequence[Mapping[str, torch.Tensor]],
        attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        config, n = self.config, len(ids)
        heads, kv, width = config.heads, config.kv_heads, config.head_dim
        cos, sin = self._rope.at(positions)[""][:2]
        x = F.embedding(ids, self._embedding)
        for layer in layers:
            fused = F.linear(self._rms(x, layer["input_layernorm"]), layer["qkv"]).view(
                n, heads + 2 * kv, width
            )
            rotated = apply(fused[:, : heads + kv], cos, sin)
            q, k, v = rotated[:, :heads], rotated[:, heads:], fused[:, heads + kv :]
            x = x + F.linear(attention(q, k, v).reshape(n, heads * width), layer["out"])
            h = F.linear(self._rms(x, layer["post_attention_layernorm"]), layer["gate_up"])
            gate, up = h.chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return self._rms(x, self._norm)

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.norm_eps)


def _biased(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, bias: torch.Tensor) -> torch.Tensor:
    """Attention of q [n, heads, width], k and v [n, kv_heads, width] by torch's own kernel."""
    group = q.shape[1] // k.shape[1]
    k, v = (part.repeat_interleave(group, 1) for part in (k, v))
    rows = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
    return F.scaled_dot_product_attention(*rows, attn_mask=bias[None, None]).squeeze(0).transpose(0, 1)


class BranchedAttention(torch.autograd.Function):
    """Causal attention within the text; rows behind it see what `hidden_from` leaves them. With its gradient
    by hand: torch's own for bfloat16 on a CPU takes longer than all matrix products together.
    """

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, text: int, hidden_from: torch.Tensor
    ) -> torch.Tensor:
        """q [n, heads, width], k and v [n, kv_heads, width] -> [n, heads, width]."""
        n, heads, width = q.shape
        kv = k.shape[1]
        # queries of the heads that share a key stand together: [kv, group, n, width]
        q4 = (q * width**-0.5).view(n, kv, heads // kv, width).permute(1, 2, 0, 3).contiguous()
        k3, v3 = k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous()
        out = torch.empty_like(q4)
        kept = []
        for start, end, keys in _blocks(n, text):
            p = torch.bmm(q4[:, :, start:end].reshape(kv, -1, width), k3[:, :keys].transpose(1, 2))
            p4 = p.view(kv, heads // kv, end - start, keys)
            if start < text:
                p4[..., start:].masked_fill_(_later(end - start), float("-inf"))
            else:
                p4.masked_fill_(hidden_from, float("-inf"))
            p = torch.softmax(p, -1)
            out[:, :, start:end] = torch.bmm(p, v3[:, :keys]).view(kv, heads // kv, end - start, width)
            kept.append(p)
        ctx.save_for_backward(q4, k3, v3, out, *kept)
        ctx.text = text
        return out.permute(2, 0, 1, 3).reshape(n, heads, width)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        """Gradients of q, k and v."""
        q4, k3, v3, out, *kept = ctx.saved_tensors
        kv, group, n, width = q4.shape
        g4 = grad.view(n, kv, group, width).permute(1, 2, 0, 3).contiguous()
        dot = (g4.float() * out.float()).sum(-1).to(g4.dtype)
        dq, dk, dv = torch.empty_like(q4), torch.zeros_like(k3).float(), torch.zeros_like(v3).float()
        for (start, end, keys), p in zip(_blocks(n, ctx.text), kept, strict=True):
            g = g4[:, :, start:end].reshape(kv, -1, width)
            dv[:, :keys] += torch.bmm(p.transpose(1, 2), g)
            ds = torch.bmm(g, v3[:, :keys].transpose(1, 2))
            ds -= dot[:, :, start:end].reshape(kv, -1, 1)
            ds *= p
            dq[:, :, start:end] = torch.bmm(ds, k3[:, :keys]).view(kv, group, end - start, width)
            dk[:, :keys] += torch.bmm(ds.transpose(1, 2), q4[:, :, start:end].reshape(kv, -1, width))
        # the queries that were kept carry the scale already, which is what dk needs
        back = (dq * width**-0.5).permute(2, 0, 1, 3).reshape(n, kv * group, width)
        return back, dk.to(k3.dtype).transpose(0, 1), dv.to(v3.dtype).transpose(0, 1), None, None


def _blocks(n: int, text: int) -> list[tuple[int, int, int]]:
    """Rows that are computed together, and how many keys they may see: (start, end, keys)."""
    within = [(s, min(s + _BLOCK, text), min(s + _BLOCK, text)) for s in range(0, text, _BLOCK)]
    return [*within, *([(text, n, n)] if n > text else [])]


def _later(n: int) -> torch.Tensor:
    return torch.ones(n, n, dtype=torch.bool).triu(1)
