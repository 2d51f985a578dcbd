"""The families of models that run here: what sets each apart, and of which kind its layers are. No torch.

A checkpoint goes by its `model_type` in config.json, a GGUF by its `general.architecture`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.errors import UserError
from core.text.words import translated as _


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What one layer computes with queries and keys."""

    rotated: bool = True  # by RoPE; False: their position is told by what they see alone
    scaled: bool = False  # queries grow with their position: see core.model.rope
    window: int = 0  # a token sees so many, itself among them; 0: all before it
    rope: str = ""  # which of several rotations, by its key in rope_parameters
    # a gated delta rule: a state instead of keys and values; not in repr, which is part of what is on disk
    stateful: bool = field(default=False, repr=False)


LayerKinds = tuple[LayerKind, ...]
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"  # in layer_types


@dataclass(frozen=True, slots=True)
class DeltaSizes:
    """What a layer with a gated delta rule measures. `kernel`: rows that its convolution sees."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def values(self) -> int:
        """Numbers of the values of one token."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Numbers of one token that pass through the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.values

    @property
    def width(self) -> int:
        """Numbers that a token leaves until it is final: the channels, and two for each value head."""
        return self.channels + 2 * self.value_heads

    @property
    def state(self) -> int:
        """Numbers of one state."""
        return self.value_heads * self.key_dim * self.value_dim


def _alike(config: Mapping[str, Any]) -> LayerKinds:
    return (LayerKind(),) * int(config["num_hidden_layers"])


def _scaled(config: Mapping[str, Any]) -> LayerKinds:
    """Ministral 3: every layer, where the configuration says by how much."""
    parameters = config.get("rope_parameters") or {}
    scaled = bool(parameters.get("llama_4_scaling_beta"))
    if scaled and int(parameters["original_max_position_embeddings"]) < 1:
        raise ValueError("original_max_position_embeddings is below 1")
    return (LayerKind(scaled=scaled),) * int(config["num_hidden_layers"])


def _partly_rotated(config: Mapping[str, Any]) -> LayerKinds:
    """SmolLM3: a flag for each layer, or every so many layers one that is not rotated."""
    layers = int(config["num_hidden_layers"])
    flags = config.get("no_rope_layers")  # 1: rotated
    if flags is None:
        every = int(config.get("no_rope_layer_interval", 4))
        flags = [(layer + 1) % every != 0 for layer in range(layers)]
    if not isinstance(flags, Sequence) or len(flags) < layers:
        raise ValueError(f"no_rope_layers is no list of {layers} flags")
    return tuple(LayerKind(rotated=bool(flag)) for flag in flags[:layers])


def _sliding(config: Mapping[str, Any]) -> LayerKinds:
    """Gemma 3: a window and a rotation of its own in most layers, by list or all but every so many."""
    if config.get("use_bidirectional_attention"):
        raise ValueError("use_bidirectional_attention is set")
    layers, window = int(config["num_hidden_layers"]), int(config["sliding_window"])
    if window < 2:
        raise ValueError(f"sliding_window is {window}")
    types = config.get("layer_types")
    if types is None:
        every = int(config.get("sliding_window_pattern") or config.get("_sliding_window_pattern") or 6)
        types = [FULL if (layer + 1) % every == 0 else SLIDING for layer in range(layers)]
    if FULL not in types:
        raise ValueError("every layer has a window")
    kinds = {FULL: LayerKind(rope=FULL), SLIDING: LayerKind(window=window, rope=SLIDING)}
    return tuple(kinds[one] for one in types)


def _gated_delta(config: Mapping[str, Any]) -> LayerKinds:
    """Qwen3.5: a state instead of a cache in most layers, by list or all but every so many."""
    types = config.get("layer_types")
    if types is None:
        every = int(config.get("full_attention_interval") or 4)
        types = [FULL if (layer + 1) % every == 0 else LINEAR for layer in range(_layers(config))]
    if FULL not in types:
        raise ValueError("no layer has full attention")
    kinds = {FULL: LayerKind(), LINEAR: LayerKind(rotated=False, stateful=True)}
    return tuple(kinds[one] for one in types)


def _layers(config: Mapping[str, Any]) -> int:
    return int(config["num_hidden_layers"])


def delta_sizes(config: Mapping[str, Any]) -> DeltaSizes | None:
    """Of the layers with a gated delta rule; None in a family without such. Raises KeyError, TypeError or
    ValueError where the configuration does not say them.
    """
    if not FAMILIES[config["model_type"]].gated:
        return None
    names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    numbers = [int(config[f"linear_{name}"]) for name in names]
    if min(numbers) < 1 or numbers[1] % numbers[0]:
        raise ValueError(f"linear_num_value_heads is {numbers[1]} beside {numbers[0]} key heads")
    return DeltaSizes(*numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row of the table."""

    architecture: str  # the class of transformers
    gguf: str  # what a GGUF calls it
    paired: bool = False  # a GGUF has the two rows of q and k that RoPE mixes beside each other
    biased: bool = False  # q, k and v have biases
    normed: bool = False  # each head of q and k is normed
    slides: bool = False  # a sliding window holds wherever one is named, and no such layer runs here
    sandwiched: bool = False  # attention and MLP have a norm behind them, too
    shifted: bool = False  # a checkpoint's norms multiply by 1 + their weights; a GGUF has the sum
    gated: bool = False  # what attention gives is multiplied by a gate; other layers have a gated delta rule
    tied_outside: bool = True  # of a checkpoint that also sees pictures, unless it says otherwise
    activation: str = "silu"
    embedding_scaled: bool = False  # by the root of their size
    kinds: Callable[[Mapping[str, Any]], LayerKinds] = _alike
    defaults: Mapping[str, Any] = field(default_factory=dict)  # what published configurations leave out


FAMILIES = {
    "llama": Family(architecture="LlamaForCausalLM", gguf="llama", paired=True),
    "mistral": Family(architecture="MistralForCausalLM", gguf="mistral", slides=True),
    "ministral3": Family(
        architecture="Ministral3ForCausalLM", gguf="mistral3", paired=True, slides=True, kinds=_scaled
    ),
    "qwen2": Family(architecture="Qwen2ForCausalLM", gguf="qwen2", biased=True),
    "qwen3": Family(architecture="Qwen3ForCausalLM", gguf="qwen3", normed=True),
    "qwen3_5_text": Family(
        architecture="Qwen3_5ForCausalLM",
        gguf="qwen35",
        normed=True,
        shifted=True,
        gated=True,
        tied_outside=False,
        kinds=_gated_delta,
        defaults={
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "head_dim": 256,
        },
    ),
    "gemma3_text": Family(
        architecture="Gemma3ForCausalLM",
        gguf="gemma3",
        normed=True,
        sandwiched=True,
        shifted=True,
        activation="gelu_pytorch_tanh",
        embedding_scaled=True,
        kinds=_sliding,
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
            "tie_word_embeddings": True,
        },
    ),
    "smollm3": Family(architecture="SmolLM3ForCausalLM", gguf="smollm3", paired=True, kinds=_partly_rotated),
}
_BY_GGUF = {family.gguf: name for name, family in FAMILIES.items()}


def is_shifted(name: str, family: str) -> bool:
    """Whether a checkpoint's weight multiplies by 1 + what it holds."""
    return FAMILIES[family].shifted and "norm" in name and "linear_attn" not in name


def require_family(family: str, model: str) -> None:
    """Raises UserError for a family that this runtime does not cover."""
    if family not in FAMILIES:
        raise UserError(why_not(family, model))


def family_of_gguf(architecture: str, model: str) -> str:
    """The family's name in FAMILIES. Raises UserError for one that this runtime does not cover."""
    if architecture not in _BY_GGUF:
        raise UserError(why_not(architecture, model))
    return _BY_GGUF[architecture]


def why_not(family: str, model: str) -> str:
    """Why a model of such a family or architecture does not run here, and what would."""
    said = _("{model} is of type “{family}”; only {families} run here. Choose one of the list of models.")
    return said.format(model=model, family=family or _("unknown"), families=", ".join(FAMILIES))


def why_no_experts(model: str) -> str:
    """Why a mixture of experts does not run here, and what would."""
    said = _("{model} is a mixture of experts; only dense models of {families} run here. Choose another one.")
    return said.format(model=model, families=", ".join(FAMILIES))


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a checkpoint's configuration says of its text model, which one that also sees pictures holds
    inside; the rest of such a checkpoint is not used.
    """
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return _completed(config)
    # transformers ties them, or not, unless the outer configuration says otherwise
    family = FAMILIES.get(str(inner.get("model_type", "")))
    tied = family is None or family.tied_outside
    outer = {"tie_word_embeddings": config.get("tie_word_embeddings", tied)}
    outer |= {key: config[key] for key in ("eos_token_id", "quantization_config") if config.get(key)}
    return {**_completed(inner), **outer}


def _completed(config: Mapping[str, Any]) -> Mapping[str, Any]:
    family = FAMILIES.get(str(config.get("model_type", "")))
    return {**family.defaults, **config} if family is not None and family.defaults else config


def layer_kinds(config: Mapping[str, Any], model: str) -> LayerKinds:
    """The kind of each layer. Raises UserError, naming file and key, for layers that do not run here."""
    try:
        _require_known_layers(config)
        delta_sizes(config)
        return FAMILIES[config["model_type"]].kinds(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        said = _(
            "config.json of {model} asks for layers that do not run here ({error}). Choose another model."
        )
        raise UserError(said.format(model=model, error=error)) from error


def _require_known_layers(config: Mapping[str, Any]) -> None:
    types = config.get("layer_types")
    if types is None:
        return
    if not isinstance(types, Sequence) or len(types) != int(config["num_hidden_layers"]):
        raise ValueError(f"layer_types is no list of {config['num_hidden_layers']} names")
    # a window that holds every position is full attention
    whole = (config.get("sliding_window") or 0) >= int(config.get("max_position_embeddings") or 0)
    kinds = FAMILIES[config["model_type"]].kinds
    known = {FULL, LINEAR} if kinds is _gated_delta else {FULL}
    if whole or kinds is _sliding:
        known |= {SLIDING}
    for index, kind in enumerate(types):
        if kind not in known:
            raise ValueError(f"layer_types[{index}] is {kind!r}")
