"""The sizes and switches of a Llama-family checkpoint, read from its transformers configuration. Knows
nothing of weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.cache.base import KVShape, StateShape
from core.errors import UserError
from core.model.families import (
    FAMILIES,
    LayerKind,
    LayerKinds,
    layer_input_width,
    layer_kinds,
    require_family,
    state_sizes,
    text_config,
    why_no_experts,
)
from core.model.mixer_sizes import StateSizes
from core.model.shapes import Sizes, sizes_in
from core.text.words import translated as _

_STATED = {
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "tie_word_embeddings",
    "max_position_embeddings",
    "hidden_act",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(Sizes):
    """A model as it is computed. `source` holds the values of the transformers configuration, RoPE parameters
    and all.
    """

    family: str
    vocab: int
    norm_eps: float
    tied: bool
    max_position: int
    eos_ids: frozenset[int]
    kinds: LayerKinds
    source: Mapping[str, Any]
    states: StateSizes | None = None
    logit_bound: float = 0.0  # what logits approach and never pass; 0: they are as they are
    suppressed: tuple[int, ...] = ()  # tokens that are never said
    input_width: int = 0  # numbers that a token brings to each layer by itself

    @property
    def identity(self) -> str:
        """What texts written by the model are kept under: its name, and of a GGUF its content."""
        return f"{self.name} {self.source.get('content', '')}".strip()

    @property
    def ahead(self) -> ModelConfig:
        """Of the layer behind the model's own that predicts one token further: it attends."""
        return replace(self, layers=1, kinds=(LayerKind(),), states=None)

    @property
    def alike(self) -> bool:
        """Every layer rotates all that it computes and scales nothing."""
        return set(self.kinds) == {LayerKind()}

    def heads_of(self, kind: LayerKind) -> tuple[int, int]:
        """(KV heads, their size) of layers of this kind."""
        return kind.kv_heads or self.kv_heads, kind.head_dim or self.head_dim

    def query_scale(self, kind: LayerKind) -> float:
        """By how much queries are larger than where scores are divided by the root of their size."""
        _kv_heads, head_dim = self.heads_of(kind)
        undivided = 1 if FAMILIES[self.family].two_sizes else head_dim
        return (head_dim / (self.source.get("query_pre_attn_scalar") or undivided)) ** 0.5

    @property
    def storing(self) -> int:
        """The first so many layers have keys and values, or a state; those behind read what these hold."""
        return sum(kind.reads < 0 for kind in self.kinds)

    @property
    def kv_shape(self) -> KVShape:
        """What a cache for this model holds per token, and beside its tokens."""
        kinds = self.kinds[: self.storing]
        windowed = tuple(layer for layer, kind in enumerate(kinds) if kind.window)
        window = max(kind.window for kind in kinds)
        own = self.heads_of(self.kinds[windowed[0]]) if windowed else None
        return KVShape(len(kinds), self.kv_heads, self.head_dim, window, windowed, self._state_shape, own)

    @property
    def _state_shape(self) -> StateShape | None:
        layers, own = tuple(at for at, kind in enumerate(self.kinds) if kind.stateful), self.states
        return StateShape(layers, own.size, width=own.width, tail=own.kernel - 1) if layers else None


def load_config(folder: Path) -> ModelConfig:
    """The configuration of the checkpoint in `folder`. Raises UserError for a folder or architecture this
    runtime cannot run.
    """
    if not (folder / "config.json").is_file():
        said = _(
            "{folder} holds no model (config.json is missing). Download the model again or choose its folder."
        )
        raise UserError(said.format(folder=folder))
    source = _stated(folder) or _completed(folder)
    _check_supported(source, folder.name)
    generation = folder / "generation_config.json"
    said = {**source, **(_json(generation) if generation.is_file() else {})}
    if said.get("suppress_tokens"):  # not in config.json, of which transformers would drop them
        source = {**source, "suppress_tokens": said["suppress_tokens"]}
    return from_source(source, name=folder.name, eos=said.get("eos_token_id"))


def from_source(source: Mapping[str, Any], *, name: str, eos: int | list[int] | None) -> ModelConfig:
    """The same from the values of a transformers configuration; `eos` is one id, several or none."""
    eos_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    return ModelConfig(
        name=name,
        **sizes_in(source),
        family=source["model_type"],
        vocab=source["vocab_size"],
        norm_eps=source["rms_norm_eps"],
        tied=bool(source["tie_word_embeddings"]),
        max_position=source["max_position_embeddings"],
        eos_ids=frozenset(eos_ids),
        kinds=layer_kinds(source, name),
        source=source,
        states=state_sizes(source),
        logit_bound=float(source.get("final_logit_softcapping") or 0),
        suppressed=_suppressed(source),
        input_width=layer_input_width(source),
    )


def _suppressed(source: Mapping[str, Any]) -> tuple[int, ...]:
    """Tokens that are never said; numbers without a token say nothing."""
    return tuple(
        sorted({one for one in source.get("suppress_tokens") or () if 0 <= one < source["vocab_size"]})
    )


def _stated(folder: Path) -> dict[str, Any] | None:
    """config.json of a Llama that states all we need; None where transformers has to fill in defaults. It
    takes seconds to import.
    """
    source = _json(folder / "config.json")
    rope = source.get("rope_parameters") or {"rope_theta": source.get("rope_theta")}
    default = (
        not source.get("rope_scaling")
        and rope.get("rope_type", "default") == "default"
        and rope.get("rope_theta")
    )
    if source.get("model_type") != "llama" or not default or not source.keys() >= _STATED:
        return None
    return {**source, "rope_parameters": {**rope, "rope_type": "default"}}


def _completed(folder: Path) -> dict[str, Any]:
    given = text_config(_json(folder / "config.json"))
    require_family(str(given.get("model_type", "")), folder.name)
    layer_kinds(given, folder.name)  # before transformers says it in its own words
    from transformers import AutoConfig

    return dict(text_config(AutoConfig.from_pretrained(folder).to_dict()))


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        said = _("{file} cannot be read ({error}). Download the model again or choose another folder.")
        raise UserError(said.format(file=path, error=error)) from error


def _check_supported(source: Mapping[str, Any], name: str) -> None:
    family = source["model_type"]
    require_family(family, name)
    experts = any((source.get(key) or 0) > 1 for key in ("num_local_experts", "num_experts"))
    if experts or source.get("enable_moe_block"):
        raise UserError(why_no_experts(name))
    window = source.get("sliding_window")
    slides = window and source.get("use_sliding_window", FAMILIES[family].slides)
    known = any(kind.window for kind in layer_kinds(source, name))
    if slides and not known and window < source["max_position_embeddings"]:
        said = _(
            "{model} attends over a sliding window of {tokens} tokens, which reading whole books rules "
            "out. Choose a model with full attention (Mistral v0.2 or later has it)."
        )
        raise UserError(said.format(model=name, tokens=f"{window:,}"))
    stored = source.get("quantization_config")
    if stored:
        said = _(
            "{model} keeps its weights as {kind}, which does not run here. Choose its checkpoint of 16 bits "
            "or a GGUF of it."
        )
        raise UserError(said.format(model=name, kind=stored.get("quant_method", _("unknown"))))
    known = FAMILIES[family].activation
    activation = source.get("hidden_activation") or source.get("hidden_act") or known
    if activation != known:
        said = _(
            "{model} uses the activation {activation}; this runtime knows {known} only. Choose another model."
        )
        raise UserError(said.format(model=name, activation=activation, known=known))
    bounded = () if FAMILIES[family].two_sizes else ("final_logit_softcapping",)
    for key in ("attn_logit_softcapping", *bounded):
        if source.get(key):
            said = _("config.json of {model} asks for {key}, which does not run here. Choose another model.")
            raise UserError(said.format(model=name, key=key))
