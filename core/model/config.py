"""The sizes and switches of a Llama-family checkpoint, read from its transformers configuration. Knows nothing of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.cache.base import KVShape
from core.errors import UserError

_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder-only model. `source` is the transformers configuration, which knows the RoPE parameters."""

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
    source: object

    @property
    def kv_shape(self) -> KVShape:
        """What a cache for this model holds per token."""
        return KVShape(self.layers, self.kv_heads, self.head_dim)


def load_config(folder: Path) -> ModelConfig:
    """The configuration of the checkpoint in `folder`. Raises UserError for a folder or architecture this runtime cannot run."""
    from transformers import AutoConfig, GenerationConfig

    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no model (config.json is missing). Download the model again or choose its folder.")
    source = AutoConfig.from_pretrained(folder)
    _check_supported(source, folder.name)
    generation = GenerationConfig.from_pretrained(folder) if (folder / "generation_config.json").is_file() else source
    return from_transformers(source, name=folder.name, eos=generation.eos_token_id)


def from_transformers(source: object, *, name: str, eos: int | list[int] | None) -> ModelConfig:
    """The same from a configuration object; `eos` is one id, several or none."""
    eos_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    return ModelConfig(
        name=name,
        family=source.model_type,
        layers=source.num_hidden_layers,
        hidden=source.hidden_size,
        heads=source.num_attention_heads,
        kv_heads=source.num_key_value_heads or source.num_attention_heads,
        head_dim=getattr(source, "head_dim", None) or source.hidden_size // source.num_attention_heads,
        intermediate=source.intermediate_size,
        vocab=source.vocab_size,
        norm_eps=source.rms_norm_eps,
        tied=bool(source.tie_word_embeddings),
        max_position=source.max_position_embeddings,
        eos_ids=frozenset(eos_ids),
        source=source,
    )


def _check_supported(source: object, name: str) -> None:
    if source.model_type not in _FAMILIES:
        raise UserError(f"{name} is a {source.model_type} model. This runtime runs {', '.join(_FAMILIES)} models; choose one of those.")
    window = getattr(source, "sliding_window", None)
    if window and getattr(source, "use_sliding_window", source.model_type == "mistral") and window < source.max_position_embeddings:
        raise UserError(
            f"{name} attends over a sliding window of {window:,} tokens, which reading whole books rules out. "
            "Choose a model with full attention (Mistral v0.2 or later has it)."
        )
    activation = getattr(source, "hidden_act", "silu")
    if activation != "silu":
        raise UserError(f"{name} uses the activation {activation}; this runtime knows silu only. Choose another model.")
