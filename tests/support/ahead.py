"""A tiny Qwen3.5 with a layer that predicts one token further: as a checkpoint, as a GGUF, in the runtime,
and by its definition.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from core.backend.base import Backend
from core.decoding.ahead import AheadDrafter, AssistantDrafter
from core.model.ahead import AheadHead
from core.model.llama import LlamaModel
from core.model.loader import build_ahead
from tests.support.gguf_models import wide
from tests.support.tiny import Named, oracle, ours

FAMILY = "qwen3_5_text"


class WithAhead:
    """Weights by name: a transformers model's, and those of a layer ahead."""

    def __init__(self, reference: torch.nn.Module, ahead: dict[str, torch.Tensor]) -> None:
        self.config, self._model, self.ahead = reference.config, reference, ahead

    def state_dict(self) -> dict[str, torch.Tensor]:
        """As torch's."""
        return self._model.state_dict() | self.ahead


class LayerAlone(WithAhead):
    """Likewise without the model's own layers, as in a file of its own."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """As torch's."""
        return {name: value for name, value in super().state_dict().items() if "model.layers." not in name}


class NamedShapes(Named):
    """As a reader of a file."""

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensor(name).shape)

    def place(self, name: str) -> tuple[Path, str]:
        return Path("tiny"), name


def ahead_weights(reference: torch.nn.Module, *, like: float = 0.0) -> dict[str, torch.Tensor]:
    """A layer of its own beside the model's, by the names of published checkpoints. `like`: how much of what
    the target made of a token goes straight through.
    """
    config, dice = reference.config, torch.Generator().manual_seed(11)
    last = config.layer_types.index("full_attention")
    prefix = f"model.layers.{last}."
    own = reference.state_dict()
    found = {
        name.replace(prefix, "mtp.layers.0.", 1): value
        for name, value in own.items()
        if name.startswith(prefix)
    }
    norms = ("mtp.norm", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden")
    found |= {f"{norm}.weight": torch.zeros(config.hidden_size) for norm in norms}
    found["mtp.fc.weight"] = torch.zeros(config.hidden_size, 2 * config.hidden_size)
    for name, value in found.items():
        spread = 0.2 if value.ndim < 2 else 0.1
        found[name] = spread * torch.randn(value.shape, generator=dice)
    found["mtp.fc.weight"][:, config.hidden_size :] += like * torch.eye(config.hidden_size)
    return found


def tiny_with_ahead(
    *, vocab: int | None = None, like: float = 1.0, backend: Backend | None = None, **more: Any
):
    """(transformers' model, the target, its layer ahead, the layer's weights by name)"""
    reference = oracle(FAMILY, **({"vocab_size": vocab} if vocab else {}), **more)
    weights = ahead_weights(reference, like=like)
    target = ours(reference, backend=backend)
    return reference, target, layer_ahead(target, reference, weights), weights


def layer_ahead(
    target: LlamaModel, reference: torch.nn.Module, weights: dict[str, torch.Tensor]
) -> AheadHead:
    """In the runtime."""
    named = NamedShapes(WithAhead(reference, weights))
    return build_ahead(named, target, target.backend, positions=512)


def checkpoint_with_ahead(folder: Path, **more: Any) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """One whose rows are whole blocks, saved as it is published."""
    from safetensors.torch import load_file, save_file

    reference = wide(FAMILY, **more)
    weights = ahead_weights(reference)
    reference.save_pretrained(folder)
    file, config = folder / "model.safetensors", folder / "config.json"
    save_file(load_file(file) | weights, file)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"mtp_num_hidden_layers": 1}))
    return reference, weights


def noted_drafts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What such a layer, or an assistant, proposes from now on, draft by draft."""
    drafts: list[tuple[int, ...]] = []

    def note(drafter: type[AheadDrafter | AssistantDrafter]) -> None:
        propose = drafter.propose

        def noted(self: AheadDrafter | AssistantDrafter, *given: Any) -> Any:
            found = propose(self, *given)
            drafts.append(tuple(found.tokens))
            return found

        monkeypatch.setattr(drafter, "propose", noted)

    note(AheadDrafter)
    note(AssistantDrafter)
    return drafts


def ahead_by_definition(
    reference: torch.nn.Module, weights: dict[str, torch.Tensor], ids: list[int], rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, logits) fp64 [n, hidden], [n, vocab] of tokens `ids` [n], each with the row [n, hidden] of the
    one before it, as the first of a text: what the architecture says, line by line.
    """
    config = reference.config
    w = {name.removeprefix("mtp."): value.double() for name, value in weights.items()}
    own = {name.removeprefix("layers.0."): value for name, value in w.items()}
    heads, kv_heads, dim, n = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        len(ids),
    )

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + config.rms_norm_eps) * (1 + weight)

    embedded = reference.get_input_embeddings().weight.detach().double()[ids]
    joined = torch.cat(
        (
            norm(embedded, w["pre_fc_norm_embedding.weight"]),
            norm(rows.double(), w["pre_fc_norm_hidden.weight"]),
        ),
        dim=-1,
    )
    x = joined @ w["fc.weight"].T

    normed = norm(x, own["input_layernorm.weight"])
    q, gate = (normed @ own["self_attn.q_proj.weight"].T).view(n, heads, 2, dim).unbind(2)
    k, v = ((normed @ own[f"self_attn.{one}_proj.weight"].T).view(n, kv_heads, dim) for one in "kv")
    q = rotated(norm(q, own["self_attn.q_norm.weight"]), config)
    k = rotated(norm(k, own["self_attn.k_norm.weight"]), config)
    k, v = (part.repeat_interleave(heads // kv_heads, dim=1) for part in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) * dim**-0.5
    scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
    found = torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v) * gate.sigmoid()
    x = x + found.reshape(n, -1) @ own["self_attn.o_proj.weight"].T

    normed = norm(x, own["post_attention_layernorm.weight"])
    inner = torch.nn.functional.silu(normed @ own["mlp.gate_proj.weight"].T)
    inner = inner * (normed @ own["mlp.up_proj.weight"].T)
    x = norm(x + inner @ own["mlp.down_proj.weight"].T, w["norm.weight"])
    return x, x @ reference.get_output_embeddings().weight.detach().double().T


def rotated(x: torch.Tensor, config: Any) -> torch.Tensor:
    """Heads [n, heads, head_dim] of tokens 0, 1, ...: a share of each turns, half by half."""
    rope = config.rope_parameters
    turning = int(x.shape[-1] * rope["partial_rotary_factor"])
    speeds = rope["rope_theta"] ** (-torch.arange(0, turning, 2).double() / turning)
    angles = torch.arange(len(x)).double()[:, None, None] * speeds
    first, second = x[..., :turning].chunk(2, dim=-1)
    turned = (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin())
    return torch.cat((*turned, x[..., turning:]), dim=-1)
