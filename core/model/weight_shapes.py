"""What every weight of a model measures, asked of a reader before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from core.errors import UserError
from core.model.config import ModelConfig
from core.model.families import FAMILIES
from core.text.words import translated as _


class WeightReader(Protocol):
    """Reads named weights of one model."""

    def __contains__(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Its sizes. Raises UserError where it is lacking."""
        ...

    def place(self, name: str) -> tuple[Path, str]:
        """The file that holds it, and its name there."""
        ...


def require_shapes(config: ModelConfig, weights: WeightReader) -> None:
    """Raises UserError, naming file and key, where a weight is lacking or of another shape than the
    configuration says.
    """
    for name, wanted in _shapes(config):
        found = weights.shape(name)
        if found != wanted:
            file, key = weights.place(name)
            said = _("{file} has “{key}” of shape {found}, and {wanted} is expected. Choose another file.")
            raise UserError(said.format(file=file, key=key, found=list(found), wanted=list(wanted)))


def _shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    ends = ["model.embed_tokens"] if config.tied else ["model.embed_tokens", "lm_head"]
    yield from ((f"{name}.weight", (config.vocab, config.hidden)) for name in ends)
    yield "model.norm.weight", (config.hidden,)
    for layer in range(config.layers):
        for part, wanted in _of_layer(config).items():
            yield f"model.layers.{layer}.{part}.weight", wanted


def _of_layer(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, family = config.hidden, FAMILIES[config.family]
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    norms = ["input_layernorm", "post_attention_layernorm"]
    if family.sandwiched:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    of_heads = ["self_attn.q_norm", "self_attn.k_norm"] if family.normed else []
    return {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (config.intermediate, hidden),
        "mlp.up_proj": (config.intermediate, hidden),
        "mlp.down_proj": (hidden, config.intermediate),
        **dict.fromkeys(norms, (hidden,)),
        **dict.fromkeys(of_heads, (config.head_dim,)),
    }
