"""The sizes and switches of a Llama-family checkpoint, read from its transformers configuration. Knows
nothing of weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.cache.base import KVShape
from core.errors import UserError

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder-only model. `source` holds the values of the transformers configuration, RoPE parameters
    and all.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm_eps: float
    tied: bool
    max_position: int
    eos_ids: frozenset[int]
    source: Mapping[str, Any]

    @property
    def kv_shape(self) -> KVShape:
        """What a cache for this model holds per token."""
        return KVShape(self.layers, self.kv_heads, self.head_dim)


def load_config(folder: Path) -> ModelConfig:
    """The configuration of the checkpoint in `folder`. Raises UserError for a folder or architecture this
    runtime cannot run.
    """
    if not (folder / "config.json").is_file():
        raise UserError(
            f"{folder} holds no model (config.json is missing). Download the model again or choose its "
            "folder."
        )
    source = _stated(folder) or _completed(folder)
    _check_supported(source, folder.name)
    generation = folder / "generation_config.json"
    ends = {**source, **(_json(generation) if generation.is_file() else {})}
    return from_source(source, name=folder.name, eos=ends.get("eos_token_id"))


def from_source(source: Mapping[str, Any], *, name: str, eos: int | list[int] | None) -> ModelConfig:
    """The same from the values of a transformers configuration; `eos` is one id, several or none."""
    eos_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    heads = source["num_attention_heads"]
    return ModelConfig(
        name=name,
        family=source["model_type"],
        layers=source["num_hidden_layers"],
        hidden=source["hidden_size"],
        heads=heads,
        kv_heads=source["num_key_value_heads"] or heads,
        head_dim=source.get("head_dim") or source["hidden_size"] // heads,
        intermediate=source["intermediate_size"],
        vocab=source["vocab_size"],
        norm_eps=source["rms_norm_eps"],
        tied=bool(source["tie_word_embeddings"]),
        max_position=source["max_position_embeddings"],
        eos_ids=frozenset(eos_ids),
        source=source,
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
    return {**source, "rope_parameters": {"rope_type": "default", "rope_theta": rope["rope_theta"]}}


def _completed(folder: Path) -> dict[str, Any]:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder).to_dict()


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}). Download the model again or choose another folder."
        ) from error


def _check_supported(source: Mapping[str, Any], name: str) -> None:
    family = source["model_type"]
    if family not in _FAMILIES:
        raise UserError(
            f"{name} is a {family} model. This runtime runs {', '.join(_FAMILIES)} models; choose one of "
            "those."
        )
    window = source.get("sliding_window")
    if (
        window
        and source.get("use_sliding_window", family == "mistral")
        and window < source["max_position_embeddings"]
    ):
        raise UserError(
            f"{name} attends over a sliding window of {window:,} tokens, which reading whole books rules "
            "out. "
            "Choose a model with full attention (Mistral v0.2 or later has it)."
        )
    activation = source.get("hidden_act", "silu")
    if activation != "silu":
        raise UserError(
            f"{name} uses the activation {activation}; this runtime knows silu only. Choose another model."
        )
