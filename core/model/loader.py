"""A folder (of safetensors, or what stands for a GGUF) to a LlamaModel on a backend. Knows no decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from core.backend.base import Backend, Linear, RowSource
from core.backend.ranks import SINGLE, Ranks
from core.backend.shared.heap import trim_heap
from core.backend.shared.quantized import stacked
from core.errors import UserError
from core.events import Progress
from core.model.ahead import AheadHead
from core.model.checkpoint_weights import Weights
from core.model.config import ModelConfig, load_config
from core.model.delta import GatedDelta
from core.model.families import FAMILIES, LayerKind, is_shifted
from core.model.gguf.folder import gguf_in
from core.model.gguf.reader import read_header
from core.model.gguf.weights import GgufWeights
from core.model.joined_matrices import PartialHead, StackedLinear
from core.model.layer_inputs import LayerInputs
from core.model.llama import Layer, LlamaModel
from core.model.mixer_sizes import DeltaSizes
from core.model.rope import Rope
from core.model.short_convolution import ShortConvolution
from core.model.split_weights import Share, SplitWeights, of_gguf
from core.model.value_heads import TiledWeights
from core.model.weight_shapes import (
    AHEAD,
    INPUTS_NORM,
    INPUTS_PROJECTION,
    INPUTS_TABLE,
    require_ahead_shapes,
    require_shapes,
)
from core.text.words import translated as _

MOST_PADDING = 1024  # rows; Qwen2.5 has 151,936 below 7B and 152,064 from there on
HEAD_IDS = "head_ids"  # int32 [head]: the tokens that a trained draft's head covers


def load_model(
    folder: Path,
    backend: Backend,
    *,
    positions: int,
    stretch: float = 1.0,
    in_codes: bool = True,
    progress: Progress | None = None,
    ranks: Ranks = SINGLE,
) -> LlamaModel:
    """The model in `folder`, able to take positions [0, positions); of several `ranks` the share of this one.
    Raises UserError when the folder is incomplete or unsupported, or the model cannot be divided. `in_codes`:
    the weights of a GGUF stay in its codes.
    """
    config, weights = load_config(folder), weights_in(folder, in_codes=in_codes)
    require_shapes(config, weights)
    return build_model(
        config, weights, backend, positions=positions, stretch=stretch, progress=progress, ranks=ranks
    )


def weights_in(folder: Path, *, in_codes: bool = True) -> Weights | GgufWeights:
    """A reader of the weights in a model folder, or in a GGUF of a layer alone."""
    file = read_header(folder) if folder.is_file() else gguf_in(folder)
    return GgufWeights(file, in_codes=in_codes) if file else Weights(folder)


def load_draft(
    folder: Path,
    backend: Backend,
    *,
    target: LlamaModel,
    target_dir: Path,
    positions: int,
    in_codes: bool = True,
) -> LlamaModel:
    """The draft model in `folder` for `target`, which was loaded from `target_dir`: a checkpoint of its own,
    or a trained one.

    A trained draft (core.training) holds layers, the last norm and `head_ids`; embedding and output rows are
    the target's. `in_codes`: what is read of a GGUF stays in its codes. Raises UserError when it was made for
    another target.
    """
    weights, config = weights_in(folder, in_codes=in_codes), load_config(folder)
    if HEAD_IDS not in weights:
        return _of_vocabulary(target.config, config, weights, backend, positions=positions)
    ids = weights.tensor(HEAD_IDS).long()
    if (config.hidden, config.vocab) != (target.config.hidden, target.config.vocab):
        said = _(
            "The draft model {draft} was trained for another target than {model}: their sizes differ. "
            "Choose a draft model that was trained for it, or draft_model: none."
        )
        raise UserError(said.format(draft=config.name, model=target.config.name))
    head = PartialHead(
        _rows(weights_in(target_dir, in_codes=in_codes), backend, _head_name(target.config), ids),
        ids.to(backend.device),
        config.vocab,
    )
    return _model(config, weights, backend, embedding=target.embedding, head=head, positions=positions)


def load_ahead(
    folder: Path, backend: Backend, *, target: LlamaModel, positions: int, in_codes: bool = True
) -> AheadHead | None:
    """The layer of `target` that predicts one token further, over a cache of so many positions, from the
    target's `folder` or a file of its own; None where that holds none. Raises UserError for another shape.
    """
    weights = weights_in(folder, in_codes=in_codes)
    there = f"{AHEAD}fc.weight" in weights
    return build_ahead(weights, target, backend, positions=positions) if there else None


def build_ahead(weights: AnyWeights, target: LlamaModel, backend: Backend, *, positions: int) -> AheadHead:
    """The same from a reader of named weights."""
    require_ahead_shapes(target.config, weights)
    config, kind = target.config.ahead, LayerKind()
    model = LlamaModel(
        config,
        backend,
        embedding=target.embedding,
        layers=[_layer(f"{AHEAD}layers.0.", kind, config, weights, backend)],
        norm=_norm(f"{AHEAD}norm", config, weights, backend),
        head=target.head,
        rope=Rope(config, positions, dtype=backend.dtype, device=backend.device),
    )
    return AheadHead(
        model,
        joined=_linear(weights, backend, [f"{AHEAD}fc"]),
        embedding_norm=_norm(f"{AHEAD}pre_fc_norm_embedding", config, weights, backend),
        hidden_norm=_norm(f"{AHEAD}pre_fc_norm_hidden", config, weights, backend),
    )


def _of_vocabulary(
    target: ModelConfig, config: ModelConfig, weights: AnyWeights, backend: Backend, *, positions: int
) -> LlamaModel:
    """A draft model that speaks of as many tokens as its target: checkpoints of one tokenizer differ in the
    rows they pad it with.

    Padding that the draft lacks has probability 0 in its distributions and a row of zeros to be read as;
    padding that only the draft has is left out. Both stay lossless. Whether the tokens themselves are the
    same is for the tokenizers to say (core.text.tokenizer).
    """
    if config.vocab == target.vocab:
        return build_model(config, weights, backend, positions=positions)
    common = min(config.vocab, target.vocab)
    if max(config.vocab, target.vocab) - common > MOST_PADDING:
        said = _(
            "The draft model {draft} has {own:,} tokens and {model} has {wanted:,}. "
            "Choose a draft model with the same vocabulary, or draft_model: none."
        )
        raise UserError(
            said.format(draft=config.name, own=config.vocab, model=target.name, wanted=target.vocab)
        )
    ids = torch.arange(common)
    embedding = weights.tensor("model.embed_tokens.weight")[:common].to(backend.device, backend.storage)
    head = _rows(weights, backend, _head_name(config), ids)
    if common < target.vocab:
        embedding = torch.cat((embedding, embedding.new_zeros(target.vocab - common, config.hidden)))
        head = PartialHead(head, ids.to(backend.device), target.vocab)
    return _model(
        replace(config, vocab=target.vocab),
        weights,
        backend,
        embedding=embedding,
        head=head,
        positions=positions,
    )


def build_model(
    config: ModelConfig,
    weights: AnyWeights,
    backend: Backend,
    *,
    positions: int,
    stretch: float = 1.0,
    progress: Progress | None = None,
    ranks: Ranks = SINGLE,
    rope: Rope | None = None,
    head: Callable[[RowSource], Linear] | None = None,
) -> LlamaModel:
    """The same as `load_model` from a configuration and a reader of named weights. `rope`: another model's;
    `head` makes the output matrix of the embedding.
    """
    if ranks.size > 1:
        share = Share(ranks.rank, ranks.size)
        config, weights = share.config(config), SplitWeights(weights, share, config.name)
    embedding, matrix = _ends(config, weights, backend)
    return _model(
        config,
        weights,
        backend,
        embedding=embedding,
        head=head(embedding) if head else matrix,
        positions=positions,
        stretch=stretch,
        progress=progress,
        ranks=ranks,
        rope=rope,
    )


def _ends(config: ModelConfig, weights: AnyWeights, backend: Backend) -> tuple[RowSource, Linear]:
    """Embedding and output matrix. What is both is held once."""
    stem = "model.embed_tokens"
    if not (of_gguf(weights) and weights.keeps_codes(stem)):
        embedding = weights.tensor(f"{stem}.weight").to(backend.device, backend.storage)
        if config.tied:  # one matrix, and one place in memory
            return embedding, backend.linear(embedding, None)
        return embedding, _linear(weights, backend, [_head_name(config)])
    planes = weights.planes(stem).to(backend.device)
    head = backend.coded([planes], None) if config.tied else _linear(weights, backend, [_head_name(config)])
    return backend.coded_rows(planes), head


def _head_name(config: ModelConfig) -> str:
    return "model.embed_tokens" if config.tied else "lm_head"


def _model(
    config: ModelConfig,
    weights: AnyWeights,
    backend: Backend,
    *,
    embedding: RowSource,
    head: Linear,
    positions: int,
    stretch: float = 1.0,
    progress: Progress | None = None,
    ranks: Ranks = SINGLE,
    rope: Rope | None = None,
) -> LlamaModel:
    report = progress or (lambda stage, fraction: None)
    if isinstance(config.states, DeltaSizes) and not of_gguf(weights):
        weights = TiledWeights(weights, config.states)
    layers = []
    for index in range(config.layers):
        prefix, kind = f"model.layers.{index}.", config.kinds[index]
        layers.append(_layer(prefix, kind, config, weights, backend))
        trim_heap()  # holes of a layer's unpacking add up to a third of a model in codes
        report(_("Loading the model"), (index + 1) / config.layers)
    return LlamaModel(
        config,
        backend,
        embedding=embedding,
        layers=layers,
        norm=_norm("model.norm", config, weights, backend),
        head=head,
        rope=rope or Rope(config, positions, dtype=backend.dtype, device=backend.device, stretch=stretch),
        ranks=ranks,
        inputs=_layer_inputs(config, weights, backend) if config.input_width else None,
    )


def _layer_inputs(config: ModelConfig, weights: AnyWeights, backend: Backend) -> LayerInputs:
    if of_gguf(weights) and weights.keeps_codes(INPUTS_TABLE):
        table = weights.planes(INPUTS_TABLE)
    else:
        table = weights.tensor(f"{INPUTS_TABLE}.weight")
    return LayerInputs(
        backend,
        table=table,
        projection=_linear(weights, backend, [INPUTS_PROJECTION]),
        norm=_norm(INPUTS_NORM, config, weights, backend),
        eps=config.norm_eps,
    )


AnyWeights = Weights | GgufWeights | SplitWeights


def _layer(prefix: str, kind: LayerKind, config: ModelConfig, weights: AnyWeights, backend: Backend) -> Layer:
    mlp, sandwiched = prefix + "mlp.", FAMILIES[config.family].sandwiched
    mixer = partial(_attention, kind)
    if kind.stateful:
        mixer = _delta if isinstance(config.states, DeltaSizes) else _convolution
    scaled = FAMILIES[config.family].two_sizes

    def norm(name: str, *, there: bool = True) -> torch.Tensor | None:
        return _norm(f"{prefix}{name}_layernorm", config, weights, backend) if there else None

    return Layer(
        **mixer(prefix, config, weights, backend),
        gate_up=_linear(weights, backend, [mlp + "gate_proj", mlp + "up_proj"]),
        down=_linear(weights, backend, [mlp + "down_proj"]),
        attention_norm=norm("input"),
        mlp_norm=norm("pre_feedforward" if sandwiched else "post_attention"),
        attention_end_norm=norm("post_attention", there=sandwiched),
        mlp_end_norm=norm("post_feedforward", there=sandwiched),
        **(_input_of_layer(prefix, config, weights, backend) if config.input_width else {}),
        scale=float(weights.tensor(prefix + "layer_scalar")) if scaled else 1.0,
        kind=kind,
    )


def _input_of_layer(
    prefix: str, config: ModelConfig, weights: AnyWeights, backend: Backend
) -> dict[str, Any]:
    """What a layer has that takes in what tokens bring to it."""
    return {
        "input_gate": _linear(weights, backend, [prefix + "per_layer_input_gate"]),
        "input_out": _linear(weights, backend, [prefix + "per_layer_projection"]),
        "input_norm": _norm(prefix + "post_per_layer_input_norm", config, weights, backend),
    }


def _attention(
    kind: LayerKind, prefix: str, config: ModelConfig, weights: AnyWeights, backend: Backend
) -> dict[str, Any]:
    """What a layer has that attends."""
    own, family = prefix + "self_attn.", FAMILIES[config.family]
    gated = family.gated
    rows = [_head_rows(config, half) if gated else None for half in (0, 1)]
    parts = ["q_proj", "k_proj"] if kind.keys_as_values else ["q_proj", "k_proj", "v_proj"]
    if kind.reads >= 0:
        parts = ["q_proj"]
    found: dict[str, Any] = {
        "qkv": _linear(weights, backend, [own + part for part in parts], rows[0]),
        "out": _linear(weights, backend, [own + "o_proj"]),
        "gate": _linear(weights, backend, [own + "q_proj"], rows[1]) if gated else None,
    }
    if own + "q_norm.weight" in weights:
        found["q_norm"] = _norm(own + "q_norm", config, weights, backend, times=config.query_scale(kind))
        if kind.reads < 0:
            found["k_norm"] = _norm(own + "k_norm", config, weights, backend)
    if family.two_sizes and kind.reads < 0:
        found["v_norm"] = torch.ones_like(found["k_norm"])
    return found


def _head_rows(config: ModelConfig, half: int) -> torch.Tensor:
    """Of each head's rows in a projection that has queries and a gate, head by head, those of one half."""
    return torch.arange(2 * config.heads * config.head_dim).view(config.heads, 2, -1)[:, half].reshape(-1)


def _delta(prefix: str, config: ModelConfig, weights: AnyWeights, backend: Backend) -> dict[str, Any]:
    """What a layer has with a gated delta rule. A GGUF states what its decay comes to."""
    own = prefix + "linear_attn."

    def there(name: str) -> torch.Tensor:
        return weights.tensor(own + name).float().to(backend.device)

    decay = there("A_log")
    return {
        "qkv": _linear(weights, backend, [own + "in_proj_qkv", own + "in_proj_b", own + "in_proj_a"]),
        "out": _linear(weights, backend, [own + "out_proj"]),
        "gate": _linear(weights, backend, [own + "in_proj_z"]),
        "recurrence": GatedDelta(
            sizes=config.states,
            convolution=there("conv1d.weight")[:, 0].T.contiguous(),
            decay=decay if of_gguf(weights) else -decay.exp(),
            step_bias=there("dt_bias"),
            norm=there("norm.weight").to(backend.dtype),
        ).served_by(backend),
    }


def _convolution(prefix: str, config: ModelConfig, weights: AnyWeights, backend: Backend) -> dict[str, Any]:
    """What a layer has with a short convolution. Of its projection the second third is the gate."""
    own = prefix + "conv."
    first, gate, last = torch.arange(3 * config.states.channels).chunk(3)
    taps = weights.tensor(own + "conv.weight").float().to(backend.device)
    return {
        "qkv": _linear(weights, backend, [own + "in_proj"], torch.cat((first, last))),
        "out": _linear(weights, backend, [own + "out_proj"]),
        "gate": _linear(weights, backend, [own + "in_proj"], gate),
        "recurrence": ShortConvolution(config.states, taps[:, 0].T.contiguous()),
    }


def _norm(
    name: str, config: ModelConfig, weights: AnyWeights, backend: Backend, *, times: float = 1.0
) -> torch.Tensor:
    """What a norm multiplies by, `times` as much."""
    found = weights.tensor(f"{name}.weight")
    if is_shifted(name, config.family) and not of_gguf(weights):
        found = found.float() + 1
    return (found if times == 1 else found.float() * times).to(backend.device, backend.dtype)


def _linear(
    weights: AnyWeights, backend: Backend, stems: list[str], rows: torch.Tensor | None = None
) -> Linear:
    """One product for several stacked matrices [sum of out, in]; of the first one `rows` alone, int64 [n]."""
    if of_gguf(weights) and any(weights.keeps_codes(stem) for stem in stems):
        return _in_codes(weights, backend, stems, rows)
    parts = [weights.tensor(f"{stem}.weight") for stem in stems]
    if rows is not None:
        parts[0] = parts[0][rows]
    weight = torch.cat(parts)
    biased = f"{stems[0]}.bias" in weights
    bias = torch.cat([weights.tensor(f"{stem}.bias") for stem in stems]) if biased else None
    return backend.linear(weight.to(backend.device), bias)


def _in_codes(
    weights: AnyWeights, backend: Backend, stems: list[str], rows: torch.Tensor | None = None
) -> Linear:
    """The same where some matrices, or all, stay in codes."""
    biased = f"{stems[0]}.bias" in weights
    biases = [weights.tensor(f"{stem}.bias") if biased else None for stem in stems]
    wanted = [rows, *[None] * (len(stems) - 1)]
    if all(weights.keeps_codes(stem) for stem in stems):
        parts = [
            weights.planes(stem) if own is None else weights.planes(stem).picked(own)
            for stem, own in zip(stems, wanted, strict=True)
        ]
        return backend.coded(stacked(parts), torch.cat(biases) if biased else None)
    return StackedLinear(
        [
            _linear_of(weights, backend, stem, own, bias)
            for stem, own, bias in zip(stems, wanted, biases, strict=True)
        ]
    )


def _linear_of(
    weights: AnyWeights, backend: Backend, stem: str, rows: torch.Tensor | None, bias: torch.Tensor | None
) -> Linear:
    """One matrix, in codes or not, or some of its rows."""
    if weights.keeps_codes(stem):
        planes = weights.planes(stem)
        return backend.coded([planes if rows is None else planes.picked(rows)], bias)
    weight = weights.tensor(f"{stem}.weight")
    return backend.linear((weight if rows is None else weight[rows]).to(backend.device), bias)


def _rows(weights: AnyWeights, backend: Backend, stem: str, ids: torch.Tensor) -> Linear:
    """The rows `ids` of one matrix."""
    if of_gguf(weights) and weights.keeps_codes(stem):
        return backend.coded([weights.planes(stem).picked(ids).to(backend.device)], None)
    return backend.linear(weights.tensor(f"{stem}.weight")[ids].to(backend.device), None)
