"""What every weight of a model measures, asked of a reader before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import torch

from core.errors import UserError
from core.model.config import ModelConfig
from core.model.families import FAMILIES, LayerKind
from core.model.mixer_sizes import ConvolutionSizes
from core.text.words import translated as _

AHEAD = "mtp."  # what checkpoints call the weights of a layer that predicts one token further
# and what makes the inputs that tokens bring to each layer
INPUTS_TABLE, INPUTS_PROJECTION = "model.embed_tokens_per_layer", "model.per_layer_model_projection"
INPUTS_NORM = "model.per_layer_projection_norm"


class WeightReader(Protocol):
    """Reads named weights of one model."""

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str) -> torch.Tensor:
        """Its numbers. Raises as `shape`."""
        ...

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
    require_named_shapes(dict(_shapes(config)), weights)


def require_ahead_shapes(config: ModelConfig, weights: WeightReader) -> None:
    """Likewise of the layer that predicts one token further. `config`: the model's."""
    require_named_shapes(ahead_shapes(config), weights)


def ahead_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """What its weights measure, by their names."""
    parts = _of_attention(config, LayerKind()) | _of_mlp(config, LayerKind())
    found = {f"{AHEAD}layers.0.{part}": wanted for part, wanted in parts.items()}
    norms = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    found |= {f"{AHEAD}{norm}.weight": (config.hidden,) for norm in norms}
    return found | {f"{AHEAD}fc.weight": (config.hidden, 2 * config.hidden)}


def require_named_shapes(shapes: Mapping[str, tuple[int, ...]], weights: WeightReader) -> None:
    """Likewise of weights by their names."""
    for name, wanted in shapes.items():
        found = weights.shape(name)
        if found != wanted:
            file, key = weights.place(name)
            said = _("{file} has “{key}” of shape {found}, and {wanted} is expected. Choose another file.")
            raise UserError(said.format(file=file, key=key, found=list(found), wanted=list(wanted)))


def _shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    ends = ["model.embed_tokens"] if config.tied else ["model.embed_tokens", "lm_head"]
    yield from ((f"{name}.weight", (config.vocab, config.hidden)) for name in ends)
    yield "model.norm.weight", (config.hidden,)
    if config.input_width:
        yield from _of_inputs(config)
    for layer, kind in enumerate(config.kinds):
        mixer = _of_state(config) if kind.stateful else _of_attention(config, kind)
        scale = {"layer_scalar": (1,)} if FAMILIES[config.family].two_sizes else {}
        for part, wanted in (mixer | _of_mlp(config, kind) | scale).items():
            yield f"model.layers.{layer}.{part}", wanted


def _of_inputs(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Of what makes the inputs that tokens bring to each layer."""
    columns = config.layers * config.input_width
    yield f"{INPUTS_TABLE}.weight", (int(config.source["vocab_size_per_layer_input"]), columns)
    yield f"{INPUTS_PROJECTION}.weight", (columns, config.hidden)
    yield f"{INPUTS_NORM}.weight", (config.input_width,)


def _of_mlp(config: ModelConfig, kind: LayerKind) -> dict[str, tuple[int, ...]]:
    """And of the norms before and behind both halves of a layer, and of a token's own input to it."""
    hidden, inner, width = config.hidden, kind.intermediate or config.intermediate, config.input_width
    norms = ["input_layernorm.weight", "post_attention_layernorm.weight"]
    if FAMILIES[config.family].sandwiched:
        norms += ["pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"]
    own = {
        "per_layer_input_gate.weight": (width, hidden),
        "per_layer_projection.weight": (hidden, width),
        "post_per_layer_input_norm.weight": (hidden,),
    }
    return {
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        **dict.fromkeys(norms, (hidden,)),
        **(own if width else {}),
    }


def _of_attention(config: ModelConfig, kind: LayerKind) -> dict[str, tuple[int, ...]]:
    hidden, family = config.hidden, FAMILIES[config.family]
    kv_heads, head_dim = config.heads_of(kind)
    q, kv = config.heads * head_dim, kv_heads * head_dim
    if kind.reads >= 0:
        return {
            "self_attn.q_proj.weight": (q, hidden),
            "self_attn.o_proj.weight": (hidden, q),
            "self_attn.q_norm.weight": (head_dim,),
        }
    of_heads = ["self_attn.q_norm.weight", "self_attn.k_norm.weight"] if family.normed else []
    values = [] if kind.keys_as_values else ["self_attn.v_proj.weight"]
    return {
        "self_attn.q_proj.weight": (2 * q if family.gated else q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        **dict.fromkeys(values, (kv, hidden)),
        "self_attn.o_proj.weight": (hidden, q),
        **dict.fromkeys(of_heads, (head_dim,)),
    }


def _of_state(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, sizes = config.hidden, config.states
    if isinstance(sizes, ConvolutionSizes):
        return {
            "conv.in_proj.weight": (3 * sizes.channels, hidden),
            "conv.conv.weight": (sizes.channels, 1, sizes.kernel),
            "conv.out_proj.weight": (hidden, sizes.channels),
        }
    return {
        "linear_attn.in_proj_qkv.weight": (sizes.channels, hidden),
        "linear_attn.in_proj_z.weight": (sizes.values, hidden),
        "linear_attn.in_proj_b.weight": (sizes.value_heads, hidden),
        "linear_attn.in_proj_a.weight": (sizes.value_heads, hidden),
        "linear_attn.out_proj.weight": (hidden, sizes.values),
        "linear_attn.conv1d.weight": (sizes.channels, 1, sizes.kernel),
        "linear_attn.A_log": (sizes.value_heads,),
        "linear_attn.dt_bias": (sizes.value_heads,),
        "linear_attn.norm.weight": (sizes.value_dim,),
    }
